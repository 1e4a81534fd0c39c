package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// unfinalize lets go of deleted objects that bear Kueue's finalizer. Muster puts
// it on none, but a cluster that has used Kueue has it on all of them. Queues and
// flavors stay while something rests on them.
func (l *loop) unfinalize(ctx context.Context, s *queueing.Snapshot) error {
	var errs []error
	release := func(object client.Object, inUse bool) {
		if inUse || object.GetDeletionTimestamp().IsZero() || !controllerutil.ContainsFinalizer(object, kueue.ResourceInUseFinalizerName) {
			return
		}
		released := object.DeepCopyObject().(client.Object)
		controllerutil.RemoveFinalizer(released, kueue.ResourceInUseFinalizerName)
		err := l.client.Patch(ctx, released, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
		if err := ignoreStale(err); err != nil {
			errs = append(errs, fmt.Errorf("removing the finalizer of %T %s: %w", object, client.ObjectKeyFromObject(object), err))
		}
	}
	used := map[string]bool{}
	for _, w := range s.Workloads {
		release(w.Object, false)
		if queueing.HasQuota(w.Object) {
			used[string(w.Object.Status.Admission.ClusterQueue)] = true
		}
	}
	for _, cq := range s.ClusterQueues {
		release(cq, used[cq.Name])
	}
	for _, flavor := range s.Flavors {
		release(flavor, slices.ContainsFunc(s.ClusterQueues, func(cq *kueue.ClusterQueue) bool {
			return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
				return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == flavor.Name })
			})
		}))
	}
	return errors.Join(errs...)
}
