package jobs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
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

// assignments are those of each pod set of an admitted Workload.
func assignments(w *kueue.Workload) []kueue.PodSetAssignment {
	out := make([]kueue.PodSetAssignment, len(w.Spec.PodSets))
	copy(out, w.Status.Admission.PodSetAssignments)
	return out
}

// assigned is how many pods of each pod set of an admitted Workload got quota.
func assigned(w *kueue.Workload) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for i, a := range assignments(w) {
		out[i] = ptr.Deref(a.Count, w.Spec.PodSets[i].Count)
	}
	return out
}

// reclaimable is how many pods of each pod set are, as the API counts them: from all of
// the spec, those that were not admitted included.
func reclaimable(w *kueue.Workload) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for _, p := range w.Status.ReclaimablePods {
		if i := slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == p.Name }); i >= 0 {
			out[i] = p.Count
		}
	}
	return out
}

// notAdmitted is how many pods of each pod set of the spec got no quota.
func notAdmitted(w *kueue.Workload) []int32 {
	out := assigned(w)
	for i := range out {
		out[i] = max(0, w.Spec.PodSets[i].Count-out[i])
	}
	return out
}

// reclaimed is how many of the pods that got quota have released it.
func reclaimed(w *kueue.Workload) []int32 {
	out, without := reclaimable(w), notAdmitted(w)
	for i := range out {
		out[i] = max(0, out[i]-without[i])
	}
	return out
}

// granted is how many pods of each pod set have quota now.
func granted(w *kueue.Workload) []int32 {
	out, gone := assigned(w), reclaimed(w)
	for i := range out {
		out[i] -= gone[i]
	}
	return out
}

func sum(counts []int32) (n int32) {
	for _, c := range counts {
		n += c
	}
	return n
}

// left is how many pods of a job its status knows to exist.
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
