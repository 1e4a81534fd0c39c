package loop

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/when"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// leaver is a deleted object with Kueue's finalizer. ClusterQueues, flavors, topologies and checks
// are created with it and stay while something uses them; Workloads have it where Kueue was.
type leaver struct {
	object client.Object
	// underWay: the finalizer is being removed. After a failure that is tried again at retryAt.
	underWay bool
	retryAt  time.Time
}

// finalize keeps an object that waits for its finalizer to be removed.
func (l *Loop) finalize(object client.Object) {
	if object.GetDeletionTimestamp().IsZero() || !controllerutil.ContainsFinalizer(object, kueue.ResourceInUseFinalizerName) {
		return
	}
	switch object.(type) {
	case *kueue.Workload, *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.Topology, *kueue.AdmissionCheck:
	default:
		return
	}
	if have := l.leaving[object.GetUID()]; have != nil {
		have.object = object
		return
	}
	l.leaving[object.GetUID()] = &leaver{object: object}
}

// release removes the finalizer of what nothing uses any more, and returns when to try those
// again that failed.
func (l *Loop) release(now time.Time) (next time.Time) {
	for uid, x := range l.leaving {
		switch {
		case x.underWay || l.inUse(x.object):
			continue
		case now.Before(x.retryAt):
			next = when.Earliest(next, x.retryAt)
			continue
		}
		x.underWay = true
		object := x.object
		l.start(writes.Freeing, object.GetNamespace(), func(ctx context.Context) writes.Done {
			err := l.writer.RemoveFinalizer(ctx, object)
			return func(now time.Time) {
				if err == nil {
					delete(l.leaving, uid)
					return
				}
				if !writes.IsStale(err) {
					l.log.Error(err, "Removing a finalizer failed", "kind", fmt.Sprintf("%T", object), "name", client.ObjectKeyFromObject(object))
				}
				x.underWay, x.retryAt = false, now.Add(firstRetry)
			}
		})
	}
	return next
}

// inUse reports whether something uses an object.
func (l *Loop) inUse(object client.Object) bool {
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		if q := l.state.Queues[kueue.ClusterQueueReference(o.Name)]; q != nil && q.Unobserved > 0 {
			return true // quota that is just being given
		}
		return l.known.some(func(x client.Object) bool {
			w, ok := x.(*kueue.Workload)
			return ok && workload.HasQuota(w) && string(w.Status.Admission.ClusterQueue) == o.Name
		})
	case *kueue.ResourceFlavor:
		return l.known.some(func(x client.Object) bool {
			cq, ok := x.(*kueue.ClusterQueue)
			return ok && slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
				return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == o.Name })
			})
		})
	case *kueue.Topology:
		return l.known.some(func(x client.Object) bool {
			f, ok := x.(*kueue.ResourceFlavor)
			return ok && f.Spec.TopologyName != nil && string(*f.Spec.TopologyName) == o.Name
		})
	case *kueue.AdmissionCheck:
		return l.known.some(func(x client.Object) bool {
			cq, ok := x.(*kueue.ClusterQueue)
			return ok && cq.Spec.AdmissionChecksStrategy != nil &&
				slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(r kueue.AdmissionCheckStrategyRule) bool {
					return string(r.Name) == o.Name
				})
		})
	}
	return false
}
