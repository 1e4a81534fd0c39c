package podgroup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/owners"
	"github.com/muster-dev/muster/queueing/workload"
)

// parts are pods that queue with what makes them, though they bear the label of a queue. A start marks the pods of a job, and the
// policy gates no such pod; but those of a job that ran before Muster came, or that an administrator lets run, bear no mark, and
// a policy cannot read what controls a pod.
type parts struct {
	client client.Client
	live   client.Reader
	// makers are the kinds whose objects queue with all their pods, and naming says which of the objects queue.
	makers map[schema.GroupKind]schema.GroupVersionKind
	naming owners.Naming
}

func makersOf(kinds []jobs.Kind) map[schema.GroupKind]schema.GroupVersionKind {
	out := map[schema.GroupKind]schema.GroupVersionKind{}
	for _, kind := range kinds {
		gvk := kind.GroupVersionKind()
		out[gvk.GroupKind()] = gvk
	}
	return out
}

// has reports whether a pod queues with what makes it.
func (p parts) has(ctx context.Context, pod *corev1.Pod) (bool, error) {
	maker, _, err := owners.Search{Live: p.live, IsNamed: p.naming.IsNamed, New: p.newMaker}.Outermost(ctx, pod)
	return maker != nil, err
}

// newMaker returns an empty object of a kind, for reading its metadata; nil for kinds that do not queue as a whole.
func (p parts) newMaker(kind schema.GroupKind) (client.Object, error) {
	gvk, ok := p.makers[kind]
	if !ok {
		return nil, nil
	}
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(gvk)
	return out, nil
}

// pass takes the gates off a pod, and the mark by which it queues by itself.
func (p parts) pass(ctx context.Context, pod *corev1.Pod) error {
	free := pod.DeepCopy()
	delete(free.Labels, workload.ManagedLabel)
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, isGate)
	if err := p.client.Patch(ctx, free, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("taking the gate off pod %s/%s, which queues with what makes it: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
