package podgroup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/owners"
	"github.com/muster-dev/muster/queueing/workload"
)

// parts are pods that queue with what makes them, though they bear the label of a queue. A start marks the pods of a job, and the
// policy gates no such pod; but those of a job that ran before Muster came, or that an administrator lets run, bear no mark, and
// a policy cannot read what controls a pod.
type parts struct{ *reconciler }

func makersOf(kinds []jobs.Kind) map[schema.GroupKind]schema.GroupVersionKind {
	out := map[schema.GroupKind]schema.GroupVersionKind{}
	for _, kind := range kinds {
		gvk := kind.GroupVersionKind()
		out[gvk.GroupKind()] = gvk
	}
	return out
}

// release lets the gated pods of a gang run that queue with what makes them. It reports whether there were any.
func (r parts) release(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	released := false
	search := owners.Search{Live: r.live, IsNamed: r.naming.IsNamed, New: r.newMaker}
	for _, pod := range g.gated {
		maker, _, err := search.Outermost(ctx, pod)
		switch {
		case err != nil:
			return false, err
		case maker == nil:
			continue
		case w != nil && g.family == single:
			return true, writes.Delete(ctx, r.client, w) // its event asks again
		}
		if err := r.pass(ctx, pod); err != nil {
			return false, err
		}
		released = true
	}
	return released, nil
}

// newMaker is an empty object of a kind, of which only the metadata is read; nil for kinds that do not queue as a whole.
func (r parts) newMaker(kind schema.GroupKind) (client.Object, error) {
	gvk, ok := r.makers[kind]
	if !ok {
		return nil, nil
	}
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(gvk)
	return out, nil
}

// pass takes the gates off a pod, and the mark by which it queues by itself.
func (r parts) pass(ctx context.Context, pod *corev1.Pod) error {
	free := pod.DeepCopy()
	delete(free.Labels, workload.ManagedLabel)
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, isGate)
	if err := r.client.Patch(ctx, free, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("taking the gate off pod %s/%s, which queues with what makes it: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
