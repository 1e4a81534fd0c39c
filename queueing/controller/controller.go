package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/controller/loop"
	"github.com/muster-dev/muster/queueing/controller/metrics"
)

// Config is what the queues need from outside.
type Config struct {
	// Capacity may be nil, see loop.Config.
	Capacity loop.Capacity
	// Settings are the administrator's.
	Settings config.Config
	// Metrics show what happens; nil shows nothing.
	Metrics *metrics.Metrics
	// Stepping may be nil, see loop.Config.
	Stepping func(step func())
	// Registry takes the metrics while the process leads; nil shows none.
	Registry prometheus.Registerer
}

// needed are the kinds without which there are no queues.
var needed = []client.Object{
	&corev1.Namespace{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{},
	&kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.ResourceFlavor{}, &kueue.Workload{}, &kueue.WorkloadPriorityClass{},
}

// optional are the kinds that a cluster may do without: the queues alone need no CRD but
// Kueue's.
var optional = []client.Object{
	&kueue.Cohort{}, &kueue.Topology{}, &kueue.AdmissionCheck{}, &kueue.ProvisioningRequestConfig{},
	&v1alpha1.CapacityPolicy{}, &autoscaling.ProvisioningRequest{},
	&resourcev1.DeviceClass{}, &resourcev1.ResourceClaimTemplate{},
}

// optionalFor are the optional kinds for these settings: only sources of quota look at devices.
func optionalFor(settings config.Config) []client.Object {
	if !settings.CountsBySources() {
		return optional
	}
	return append(slices.Clip(optional), &resourcev1.ResourceSlice{}, &v1alpha1.NodeGroup{})
}

// servedAgain is how often the kinds of the cluster are listed while it lacks some.
const servedAgain = 20 * time.Second

// Add adds the loop to a manager. Its scheme must have Kueue's v1beta2, the ProvisioningRequest v1 and the muster.dev types. Kinds that
// only some clusters have are watched once their CRD is installed.
func Add(mgr ctrl.Manager, c Config) error {
	served := func() ([]client.Object, error) { return kindsOf(mgr.GetScheme(), mgr.GetRESTMapper(), c.Settings) }
	kinds, err := served()
	if err != nil {
		return err
	}
	nodes := &nodes{informers: mgr.GetCache(), kinds: kindsOnNodes(kinds)}
	l := loop.New(mgr.GetClient(), mgr.GetAPIReader(), loop.Config{
		Capacity: c.Capacity,
		Nodes:    nodes,
		Settings: c.Settings,
		Metrics:  c.Metrics,
		Recorder: mgr.GetEventRecorder("muster-queue"),
		Stepping: c.Stepping,
		Alone:    !slices.ContainsFunc(kinds, isPolicy),
	})
	r := &runner{loop: l, informers: mgr.GetCache(), nodes: nodes, kinds: kinds, served: served,
		settings: c.Settings, registry: c.Registry}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the loop of the queues: %w", err)
	}
	return nil
}

func isPolicy(o client.Object) bool { _, is := o.(*v1alpha1.CapacityPolicy); return is }

// kindsOf are the kinds to watch in a cluster.
func kindsOf(scheme *runtime.Scheme, mapper meta.RESTMapper, settings config.Config) ([]client.Object, error) {
	kinds := needed
	for _, kind := range optionalFor(settings) {
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
	loop      *loop.Loop
	informers cache.Informers
	nodes     *nodes
	// kinds are those to watch from the start, and served those as the cluster is now.
	kinds    []client.Object
	served   func() ([]client.Object, error)
	settings config.Config
	registry prometheus.Registerer
}

// NeedLeaderElection reports true, since two loops would give out the same quota.
func (r *runner) NeedLeaderElection() bool { return true }

// Start runs the loop until ctx is done.
func (r *runner) Start(ctx context.Context) error {
	r.nodes.ctx = ctx
	synced := make([]toolscache.InformerSynced, 0, len(r.kinds))
	for _, kind := range r.kinds {
		handler, err := r.watch(ctx, kind)
		if err != nil {
			return err
		}
		synced = append(synced, handler.HasSynced)
	}
	// Every Workload with quota must be in the State before more quota is assigned.
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	if r.registry != nil {
		if err := r.registry.Register(r.loop.Metrics()); err != nil {
			return fmt.Errorf("registering the metrics of the queues: %w", err)
		}
		defer r.registry.Unregister(r.loop.Metrics())
	}
	go r.watchNew(ctx)
	r.loop.Run(ctx)
	return nil
}

// watch delivers the objects of a kind to the loop until ctx is done.
func (r *runner) watch(ctx context.Context, kind client.Object, options ...cache.InformerGetOption) (
	toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := r.informers.GetInformer(ctx, kind, options...)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", nameOf(kind), err)
	}
	handler, err := informer.AddEventHandler(r.loop.Inbox())
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", nameOf(kind), err)
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(handler) })
	return handler, nil
}

func nameOf(kind client.Object) string { return reflect.TypeOf(kind).Elem().Name() }

// isWatched reports whether a kind is.
func (r *runner) isWatched(kind client.Object) bool {
	return slices.ContainsFunc(r.kinds, func(o client.Object) bool { return nameOf(o) == nameOf(kind) })
}

// watchNew watches the kinds that the cluster lacked once it serves them: another provisioner may be installed after Muster, say.
func (r *runner) watchNew(ctx context.Context) {
	log := ctrl.LoggerFrom(ctx).WithName("queues")
	ticker := time.NewTicker(servedAgain)
	defer ticker.Stop()
	for slices.ContainsFunc(optionalFor(r.settings), func(o client.Object) bool { return !r.isWatched(o) }) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		kinds, err := r.served()
		if err != nil {
			log.Error(err, "Looking for kinds that are new in the cluster failed, and is tried again")
			continue
		}
		for _, kind := range slices.DeleteFunc(slices.Clone(kinds), r.isWatched) {
			if err := r.watchLater(ctx, kind); err != nil {
				log.Error(err, "A kind that is new in the cluster cannot be watched, which is tried again")
				continue
			}
			log.Info("A kind is used from now on", "kind", nameOf(kind))
			if r.kinds = append(slices.Clip(r.kinds), kind); isPolicy(kind) {
				r.loop.Join()
			}
		}
	}
}

// watchLater watches a kind, and what depends on it on nodes. It may be called again after an error.
func (r *runner) watchLater(ctx context.Context, kind client.Object) error {
	for _, of := range kindsOnNodes([]client.Object{kind}) {
		if err := r.nodes.add(of); err != nil {
			return err
		}
	}
	_, err := r.watch(ctx, kind, cache.BlockUntilSynced(false))
	return err
}

// nodes are the informers of nodes, their pods and devices, while the loop runs.
type nodes struct {
	ctx       context.Context
	informers cache.Informers

	mu    sync.Mutex
	kinds []client.Object
	// current is the watch of the loop; nil while there is none.
	current *nodeWatch
}

// nodeWatch delivers the objects of kinds to a handler.
type nodeWatch struct {
	handler toolscache.ResourceEventHandler
	synced  []toolscache.InformerSynced
	stops   []func()
}

// kindsOnNodes are the kinds that count for the free capacity of nodes, in a cluster with these others.
func kindsOnNodes(others []client.Object) []client.Object {
	out := []client.Object{&corev1.Node{}, &corev1.Pod{}}
	if slices.ContainsFunc(others, func(o client.Object) bool { _, is := o.(*resourcev1.DeviceClass); return is }) {
		out = append(out, &resourcev1.ResourceSlice{})
	}
	return out
}

// Watch adds a handler to all.
func (n *nodes) Watch(handler toolscache.ResourceEventHandler) (read func() bool, stop func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &nodeWatch{handler: handler}
	stop = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.current = nil
		w.stop()
	}
	for _, kind := range n.kinds {
		if err := n.deliver(kind, w); err != nil {
			w.stop()
			return nil, nil, err
		}
	}
	n.current = w
	return func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !slices.ContainsFunc(w.synced, func(s toolscache.InformerSynced) bool { return !s() })
	}, stop, nil
}

// add delivers the objects of one more kind, also to the watch that there is.
func (n *nodes) add(kind client.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.kinds, func(o client.Object) bool { return nameOf(o) == nameOf(kind) }) {
		return nil
	}
	if n.current != nil {
		if err := n.deliver(kind, n.current); err != nil {
			return err
		}
	}
	n.kinds = append(n.kinds, kind)
	return nil
}

// deliver adds the handler of a watch to a kind. The loop goes on meanwhile.
func (n *nodes) deliver(kind client.Object, to *nodeWatch) error {
	informer, err := n.informers.GetInformer(n.ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	handle, err := informer.AddEventHandler(to.handler)
	if err != nil {
		return fmt.Errorf("watching %T: %w", kind, err)
	}
	to.synced = append(to.synced, handle.HasSynced)
	to.stops = append(to.stops, func() { _ = informer.RemoveEventHandler(handle) })
	return nil
}

func (w *nodeWatch) stop() {
	for _, s := range w.stops {
		s()
	}
}
