package jobs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/order"
)

// countsOf are those of a job, for each pod set of its Workload; nil if the job does not
// count its pods, or has other pod sets.
func countsOf(kind Kind, job client.Object, w *kueue.Workload) []Counts {
	counted, ok := kind.(Counted)
	if !ok {
		return nil
	}
	counts := counted.Counts(job)
	if len(counts) != len(w.Spec.PodSets) {
		return nil
	}
	return counts
}

// left returns how many pods of a job exist according to its status.
func left(counts []Counts) (n int32) {
	for _, c := range counts {
		n += c.Left
	}
	return n
}

// podSetOf is the index of the pod set that a pod belongs to. A pod that started before
// Muster came does not say.
func podSetOf(w *kueue.Workload, pod *corev1.Pod) int {
	return max(0, slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return string(s.Name) == pod.Labels[PodSetLabel] }))
}

// orderOf is what the pods of each pod set of a Workload come after.
func orderOf(kind Source, job client.Object, w *kueue.Workload) []*order.After {
	out := make([]*order.After, len(w.Spec.PodSets))
	ordered, ok := kind.(Ordered)
	if !ok {
		for i := range out {
			out[i] = &order.After{}
		}
		return out
	}
	if all := ordered.Order(job); len(all) == len(out) {
		return all
	}
	return out
}
