package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
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
	// Capacity may be nil: then flavors are tried in their order, and a stockout
	// is only learned from the ProvisioningRequest.
	Capacity Capacity
}

// firstRetry and lastRetry bound the pause after a run with an error.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// everything is the only key: one run of the loop looks at all queues.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "queues"}}

// Add adds the loop to a manager. Its scheme must know Kueue's v1beta2, the
// ProvisioningRequest v1 and muster.dev types.
func Add(mgr ctrl.Manager, config Config) error {
	l := &loop{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("muster-queue"),
		capacity: config.Capacity,
		now:      time.Now,
		pending:  newPendingWriter(),
	}
	wake := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	// Status writes of queues are the loop's own and tell it nothing.
	spec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).Named("queue").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 1,
			// All queues share the loop, so an error in one place may keep the others
			// from the time they asked to be woken at for this long at most.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Watches(&kueue.Workload{}, wake).
		Watches(&kueue.ClusterQueue{}, wake, spec).
		Watches(&kueue.LocalQueue{}, wake, spec).
		Watches(&kueue.ResourceFlavor{}, wake).
		Watches(&kueue.AdmissionCheck{}, wake).
		Watches(&v1alpha1.CapacityPolicy{}, wake).
		Watches(&autoscaling.ProvisioningRequest{}, wake).
		Watches(&corev1.Namespace{}, wake, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	if config.Capacity != nil {
		b = b.WatchesRawSource(source.Func(l.followCapacity))
	}
	if err := b.Complete(l); err != nil {
		return fmt.Errorf("adding the queue controller: %w", err)
	}
	return nil
}

// followCapacity wakes the loop when machines change and somebody waits for
// some.
func (l *loop) followCapacity(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := l.capacity.Changed()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				if l.wantsCapacity.Load() {
					queue.Add(everything)
				}
			}
		}
	}()
	return nil
}
