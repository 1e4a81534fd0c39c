package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// leaver is a deleted object that bears Kueue's finalizer. ClusterQueues, flavors and
// checks are born with it and stay while something uses them; Workloads have it where Kueue
// was.
type leaver struct {
	object client.Object
	// underWay: it is being let go of. Until after a failure it is not tried again.
	underWay bool
	after    time.Time
}

// finalize keeps an object in mind that waits to be let go.
func (l *loop) finalize(object client.Object) {
	if object.GetDeletionTimestamp().IsZero() || !controllerutil.ContainsFinalizer(object, kueue.ResourceInUseFinalizerName) {
		return
	}
	switch object.(type) {
	case *kueue.Workload, *kueue.ClusterQueue, *kueue.ResourceFlavor, *kueue.AdmissionCheck:
	default:
		return
	}
	if have := l.leaving[object.GetUID()]; have != nil {
		have.object = object
		return
	}
	l.leaving[object.GetUID()] = &leaver{object: object}
}

// release lets go of what nothing rests on any more, and returns when to try those
// again that could not be.
func (l *loop) release(now time.Time) (next time.Time) {
	for uid, x := range l.leaving {
		switch {
		case x.underWay || l.inUse(x.object):
			continue
		case now.Before(x.after):
			next = earliest(next, x.after)
			continue
		}
		x.underWay = true
		object := x.object
		l.start(freeing, func(ctx context.Context) settle {
			released := object.DeepCopyObject().(client.Object)
			controllerutil.RemoveFinalizer(released, kueue.ResourceInUseFinalizerName)
			err := l.client.Patch(ctx, released, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
			return func(now time.Time) {
				if err == nil {
					delete(l.leaving, uid)
					return
				}
				if !isStale(err) {
					l.log.Error(err, "Removing a finalizer failed", "kind", fmt.Sprintf("%T", object), "name", client.ObjectKeyFromObject(object))
				}
				x.underWay, x.after = false, now.Add(firstRetry)
			}
		})
	}
	return next
}

// inUse reports whether something uses an object.
func (l *loop) inUse(object client.Object) bool {
	switch o := object.(type) {
	case *kueue.ClusterQueue:
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
	case *kueue.AdmissionCheck:
		return l.known.some(func(x client.Object) bool {
			cq, ok := x.(*kueue.ClusterQueue)
			return ok && cq.Spec.AdmissionChecksStrategy != nil &&
				slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(r kueue.AdmissionCheckStrategyRule) bool { return string(r.Name) == o.Name })
		})
	}
	return false
}
