package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/metrics"
)

// Capacity is the provisioner's picture of the machines. It is asked for advice
// only: what it says may be out of date, and nothing rests on it.
type Capacity interface {
	// Snapshot is cheap and does not block. The caller does not change it.
	Snapshot(now time.Time) *provisioning.Snapshot
	// Distinguish says that somebody selects on these node labels, so that plans for
	// them stay cheap.
	Distinguish(labels ...string)
	// Changed subscribes to changes: a value comes soon after each.
	Changed() <-chan struct{}
}

// Config is what the queues need from outside.
type Config struct {
	// Capacity may be nil, where the provisioner is another process: then flavors are
	// tried in their order, and a stockout is only learned from the ProvisioningRequest.
	Capacity Capacity
	// Settings are the administrator's.
	Settings config.Config
	// Metrics show what happens; nil shows nothing.
	Metrics *metrics.Metrics
	// Registry takes the metrics while the process leads; nil shows none.
	Registry prometheus.Registerer
}

// needed are the kinds without which there are no queues.
var needed = []client.Object{
	&corev1.Namespace{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	&kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.ResourceFlavor{}, &kueue.Workload{}, &kueue.WorkloadPriorityClass{},
}

// optional are the kinds that a cluster may do without: who runs the queues alone
// needs no CRD but Kueue's.
var optional = []client.Object{
	&kueue.Cohort{}, &kueue.AdmissionCheck{}, &kueue.ProvisioningRequestConfig{}, &v1alpha1.CapacityPolicy{}, &autoscaling.ProvisioningRequest{},
}

// Add adds the loop to a manager. Its scheme must know Kueue's v1beta2, the
// ProvisioningRequest v1 and muster.dev types. Of the kinds that only some clusters
// have, those are watched whose CRD is there now.
func Add(mgr ctrl.Manager, c Config) error {
	kinds, err := kindsOf(mgr.GetScheme(), mgr.GetRESTMapper(), c.Settings)
	if err != nil {
		return err
	}
	l := newLoop(mgr.GetClient(), mgr.GetAPIReader(), c)
	if !slices.ContainsFunc(kinds, func(o client.Object) bool { _, ok := o.(*v1alpha1.CapacityPolicy); return ok }) {
		l.state.WithoutProvisioner()
	}
	l.recorder = mgr.GetEventRecorder("muster-queue")
	r := &runner{loop: l, informers: mgr.GetCache(), kinds: kinds, registry: c.Registry}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the loop of the queues: %w", err)
	}
	return nil
}

// kindsOf are the kinds to watch in a cluster.
func kindsOf(scheme *runtime.Scheme, mapper meta.RESTMapper, settings config.Config) ([]client.Object, error) {
	kinds := needed
	for _, kind := range optional {
		gvk, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			return nil, fmt.Errorf("finding the kind of %T: %w", kind, err)
		}
		switch _, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); {
		case err == nil:
			kinds = append(kinds[:len(kinds):len(kinds)], kind)
		case !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("looking for the CRD of %s: %w", gvk.Kind, err)
		}
	}
	if settings.NamespaceQuota {
		kinds = append(kinds[:len(kinds):len(kinds)], &corev1.ResourceQuota{})
	}
	return kinds, nil
}

// runner is the loop in a manager: it runs where the manager leads.
type runner struct {
	*loop
	informers cache.Informers
	kinds     []client.Object
	registry  prometheus.Registerer
}

// NeedLeaderElection says that two loops would give out the same quota.
func (r *runner) NeedLeaderElection() bool { return true }

// Start runs the loop until ctx is done.
func (r *runner) Start(ctx context.Context) error {
	synced := make([]toolscache.InformerSynced, 0, len(r.kinds))
	for _, kind := range r.kinds {
		informer, err := r.informers.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %s: %w", reflect.TypeOf(kind).Elem().Name(), err)
		}
		handler, err := informer.AddEventHandler(r.inbox)
		if err != nil {
			return fmt.Errorf("watching %s: %w", reflect.TypeOf(kind).Elem().Name(), err)
		}
		defer func() { _ = informer.RemoveEventHandler(handler) }()
		synced = append(synced, handler.HasSynced)
	}
	// Whoever holds quota has to be known before any is given out.
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	if r.registry != nil {
		if err := r.registry.Register(r.metrics); err != nil {
			return fmt.Errorf("registering the metrics of the queues: %w", err)
		}
		defer r.registry.Unregister(r.metrics)
	}
	r.run(ctx)
	return nil
}
