package app

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/kwok"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/cmd/muster/health"
	"github.com/muster-dev/muster/cmd/muster/stream"
	"github.com/muster-dev/muster/deploy"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/feed"
	"github.com/muster-dev/muster/provisioning/controller/group"
	provisioningmetrics "github.com/muster-dev/muster/provisioning/controller/metrics"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/controller/scaledown"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/transaction"
	queuecontroller "github.com/muster-dev/muster/queueing/controller"
	"github.com/muster-dev/muster/queueing/controller/fence"
	"github.com/muster-dev/muster/queueing/controller/history"
	queuemetrics "github.com/muster-dev/muster/queueing/controller/metrics"
	"github.com/muster-dev/muster/queueing/controller/notify"
	"github.com/muster-dev/muster/queueing/jobs"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/orphans"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/jobs/ungater"
)

// NewScheme returns a scheme with all types that the manager handles.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, provreq.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme, kwokv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// run builds the manager and runs it until ctx is done.
func run(ctx context.Context, o Options) error {
	limitMemory(os.DirFS("/sys/fs/cgroup"), os.Getenv)
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster (set --kubeconfig if outside of it): %w", err)
	}
	// The API server's priority and fairness limits the load; a client-side limit would only hide it.
	config.QPS = -1
	config.Wrap(countWrites)
	scheme, err := NewScheme()
	if err != nil {
		return err
	}
	options := ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{DefaultTransform: trim},
		// Jobs of custom resources have no Go type, and are read as often as others.
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metricsOptions(o),
		HealthProbeBindAddress: o.HealthAddress,
		NewClient:              stream.NewClient,
	}
	unfenced := rest.CopyConfig(config)
	if o.LeaderElect {
		lead, err := newLeader(unfenced, o.Namespace, leaseName, o.LeaseDuration)
		if err != nil {
			return err
		}
		config.Wrap(lead.guard)
		config.Dial = lead.dial
		o.mayAct = lead.mayAct
		lead.lead(&options, o.LeaseDuration)
		o.leads = lead.ready
	}
	if o.DryRun {
		config.Wrap(onlyObserve)
		o.mayAct = func() error { return errDryRun }
	}
	if options.Cache.NewInformer, err = stream.Informers(config); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	if err := checkKinds(mgr.GetRESTMapper(), o.halves()); err != nil {
		return err
	}
	// What every process does, whichever leads, is not fenced.
	kube, err := client.New(unfenced, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client that is not fenced: %w", err)
	}
	names, err := whoAmI(ctx, kube, o.Namespace)
	if err != nil {
		return err
	}
	if err := addMutations(mgr, o, kube, names); err != nil {
		return err
	}
	watchdog := health.NewWatchdog(clock.RealClock{})
	if err := addControllers(ctx, mgr, o, watchdog); err != nil {
		return err
	}
	if err := addProbes(mgr, o, kube, names, watchdog); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// metricsOptions returns where and to which users metrics are served.
func metricsOptions(o Options) metricsserver.Options {
	out := metricsserver.Options{BindAddress: o.MetricsAddress}
	if o.MetricsSecure {
		out.SecureServing, out.CertDir, out.FilterProvider = true, o.MetricsCertDir, filters.WithAuthenticationAndAuthorization
	}
	return out
}

// addControllers adds the controllers of the chosen halves.
func addControllers(ctx context.Context, mgr ctrl.Manager, o Options, watchdog *health.Watchdog) error {
	// Without the provisioner in this process there is no snapshot, and flavors are tried in their order.
	shown, err := queuemetrics.ConfigFrom(o.Queues.LocalQueueMetrics)
	if err != nil {
		return fmt.Errorf("localQueueMetrics: %w", err)
	}
	if o.LeaderElect {
		shown.Role = queuemetrics.Leader
	}
	queues := queuecontroller.Config{Settings: o.Queues, Registry: metrics.Registry, Metrics: queuemetrics.New(shown),
		Stepping: watchdog.Of("queues")}
	var provisioner *model.Model
	if o.Provisioning {
		if provisioner, err = addProvisioning(ctx, mgr, o, watchdog); err != nil {
			return err
		}
		queues.Capacity = provisioner
	}
	if !o.Queueing {
		return nil
	}
	after := &afterKueue{
		kube:  mgr.GetAPIReader(),
		clock: clock.RealClock{},
		begin: func() error {
			if err := queuecontroller.Add(mgr, queues); err != nil {
				return err
			}
			kinds := jobkinds.All(o.JobKinds...)
			if err := jobs.Add(mgr, o.Queues, queues.Metrics, o.WebhookAddress != noWebhook, kinds...); err != nil {
				return err
			}
			if err := orphans.Add(mgr); err != nil {
				return err
			}
			if err := ungater.Add(mgr, queues.Metrics, types.NamespacedName{Namespace: o.Namespace, Name: deploy.Moved}); err != nil {
				return err
			}
			if err := podgroup.Add(mgr, o.Queues, queues.Metrics, kinds...); err != nil || o.DryRun {
				return err
			}
			recorder := &history.Recorder{
				Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.Namespace, Informers: mgr.GetCache(), Clock: clock.RealClock{},
			}
			if provisioner != nil {
				recorder.Spender = provisioner
			}
			if err := mgr.Add(recorder); err != nil {
				return err
			}
			if err := addNotifications(ctx, mgr, o); err != nil {
				return err
			}
			return mgr.Add(&fence.Controller{
				Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: o.Namespace, Events: mgr.GetEventRecorder("muster-queue"),
				Clock: clock.RealClock{},
			})
		},
	}
	if err := mgr.AddReadyzCheck("queues", after.ready); err != nil {
		return err
	}
	return mgr.Add(after)
}

// addNotifications adds the sender of notifications, if the settings allow a receiver.
func addNotifications(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if len(o.Notifications.AllowedHosts) == 0 {
		return nil
	}
	uid, err := clusterUID(ctx, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	return mgr.Add(&notify.Watcher{
		Client: mgr.GetClient(), Informers: mgr.GetCache(), Budgets: o.Provisioning,
		Sender: &notify.Sender{
			Live: mgr.GetAPIReader(), Namespace: o.Namespace, AllowedHosts: notify.WithPorts(o.Notifications.AllowedHosts),
			Source: "urn:uuid:" + uid, Events: mgr.GetEventRecorder("muster-notifications"), Dial: notify.Dial,
		},
	})
}

// addProvisioning adds the provisioner and returns its model of the cluster.
func addProvisioning(ctx context.Context, mgr ctrl.Manager, o Options, watchdog *health.Watchdog) (*model.Model, error) {
	served := transaction.Instance{Classes: o.Classes, Name: o.Instance}
	m := model.New(clock.RealClock{}, served)
	providers, err := clouds(ctx, mgr, o, (&request.Terminator{Model: m, Live: mgr.GetAPIReader()}).InUse)
	if err != nil {
		return nil, err
	}
	watchers := map[v1alpha1.Provider]cloudprovider.Watcher{}
	for name, p := range providers {
		watchers[name] = p
	}
	recorder := mgr.GetEventRecorder("muster")
	discovery := group.NewDiscovery(mgr.GetClient(), providers, recorder, clock.RealClock{})
	claimsServed := func() ([]client.Object, error) { return feed.Claims(mgr.GetRESTMapper()) }
	claims, err := claimsServed()
	if err != nil {
		return nil, err
	}
	feed, err := feed.New(ctx, m, mgr.GetCache(), mgr.GetAPIReader(), watchers, claims...)
	if err != nil {
		return nil, err
	}
	controllers := []manager.Runnable{
		feed, feed.Later(mgr.GetCache(), claims, claimsServed),
		&neighbours{leases: mgr.GetAPIReader(), clock: clock.RealClock{}, classes: o.Classes, log: ctrl.Log.WithName("neighbours").Info},
		&health.Probe{Decide: m.Decide, Stepping: watchdog.Of("provisioner"), Clock: clock.RealClock{}},
		&request.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Providers: providers,
			Model: m, Synced: feed.Synced, Changed: m.Changed(), Events: recorder, Clock: clock.RealClock{},
			DryRun: o.DryRun,
		},
		&request.Unserved{Informers: mgr.GetCache(), Served: served, Events: recorder},
		&scaledown.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Providers: providers,
			Model: m, Synced: feed.Synced, Changed: m.Changed(), Events: recorder, Clock: clock.RealClock{},
			DryRun: o.DryRun,
		},
		&provisioningmetrics.Controller{
			Informers: mgr.GetCache(), Served: served, Queued: queued(mgr.GetClient(), o), Model: m, Synced: feed.Synced,
			Lists: cloudprovider.ListsOf(providers), Registry: metrics.Registry, Clock: clock.RealClock{},
		},
		discovery,
		&group.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Model: m, Synced: feed.Synced, Changed: m.Changed(), Discovery: discovery,
			Lists: cloudprovider.ListsOf(providers), Clock: clock.RealClock{},
		},
	}
	if !o.DryRun { // its nodes are not born cordoned
		controllers = append(controllers, &group.LaunchMarker{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), ConfigMap: types.NamespacedName{Namespace: o.Namespace, Name: deploy.Launching},
			Model: m, Synced: feed.Synced, Changed: m.Changed(), Clock: clock.RealClock{},
		})
	}
	for _, c := range controllers {
		if err := mgr.Add(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// queued returns a lookup of the Workload that owns a request; nil unless this process
// queues, and thus caches Workloads anyway.
func queued(kube client.Reader, o Options) func(context.Context, *provreq.ProvisioningRequest) provisioningmetrics.Queued {
	if !o.Queueing {
		return nil
	}
	return func(ctx context.Context, r *provreq.ProvisioningRequest) (out provisioningmetrics.Queued) {
		owner := metav1.GetControllerOf(r)
		if owner == nil || owner.Kind != "Workload" {
			return out
		}
		w := &kueue.Workload{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: owner.Name}, w); err != nil {
			return out // deleted before its request, which is deleted next
		}
		return provisioningmetrics.Queued{Queue: string(w.Spec.QueueName), Since: w.CreationTimestamp.Time}
	}
}

// clouds returns the clouds of the configuration, and the simulated one if its CRD is
// installed.
func clouds(ctx context.Context, mgr ctrl.Manager, o Options, inUse cloudprovider.InUse) (map[v1alpha1.Provider]cloudprovider.Provider,
	error) {
	out := map[v1alpha1.Provider]cloudprovider.Provider{}
	if o.connect != nil && o.Clouds != (configuration.Clouds{}) {
		uid, err := clusterUID(ctx, mgr.GetAPIReader())
		if err != nil {
			return nil, err
		}
		out, err = o.connect(ctx, o.Clouds, cloudprovider.Cluster{UID: uid, Groups: groups(mgr.GetClient()), MayAct: o.mayAct, InUse: inUse})
		if err != nil {
			return nil, fmt.Errorf("provisioning.clouds: %w", err)
		}
	}
	kind := kwokv1alpha1.GroupVersion.WithKind("Machine").GroupKind()
	switch _, err := mgr.GetRESTMapper().RESTMapping(kind); {
	case err == nil:
		out[v1alpha1.ProviderKwok] = kwok.New(kwok.Config{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Informers: mgr.GetCache(), Clock: clock.RealClock{},
		})
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("checking for simulated machines: %w", err)
	}
	return out, nil
}

// clusterUID returns the UID of the namespace kube-system. No other cluster has it, whatever
// its name is, and no cluster loses it.
func clusterUID(ctx context.Context, kube client.Reader) (string, error) {
	n := &corev1.Namespace{}
	if err := kube.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, n); err != nil {
		return "", fmt.Errorf("reading the identity of the cluster, the UID of namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(n.UID), nil
}

// groups lists the NodeGroups.
func groups(kube client.Reader) func(context.Context) ([]*v1alpha1.NodeGroup, error) {
	return func(ctx context.Context) ([]*v1alpha1.NodeGroup, error) {
		list := &v1alpha1.NodeGroupList{}
		if err := kube.List(ctx, list); err != nil {
			return nil, err
		}
		out := make([]*v1alpha1.NodeGroup, len(list.Items))
		for i := range list.Items {
			out[i] = &list.Items[i]
		}
		return out, nil
	}
}
