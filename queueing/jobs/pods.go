package jobs

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// podsOf are all pods of a job, as the API server has them.
func (r *reconciler) podsOf(ctx context.Context, job client.Object) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(job.GetNamespace()), r.kind.PodLabels(job)); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", r.name(job), err)
	}
	return pods.Items, nil
}

// isOver reports whether a pod has ended.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// livePods are the pods of an elastic job that are not over: how many of each pod set may
// be scheduled, and those that may not.
func (r *reconciler) livePods(ctx context.Context, job client.Object, w *kueue.Workload) (open []int32, gated []*corev1.Pod, err error) {
	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	open = make([]int32, len(w.Spec.PodSets))
	for i := range pods {
		switch pod := &pods[i]; {
		case isOver(pod):
		case !slices.ContainsFunc(pod.Spec.SchedulingGates, isElasticGate):
			open[podSetOf(w, pod)]++
		case pod.DeletionTimestamp.IsZero():
			gated = append(gated, pod)
		}
	}
	return open, gated, nil
}
