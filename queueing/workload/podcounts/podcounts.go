// Package podcounts counts the pods of each pod set of a Workload that has been admitted.
package podcounts

import (
	"slices"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Assigned is how many pods of each pod set of an admitted Workload got quota.
func Assigned(w *kueue.Workload) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for i := range out {
		out[i] = w.Spec.PodSets[i].Count
		if all := w.Status.Admission.PodSetAssignments; i < len(all) {
			out[i] = ptr.Deref(all[i].Count, out[i])
		}
	}
	return out
}

// Reclaimable is how many pods of each pod set are, as the API counts them: from all of
// the spec, those that were not admitted included.
func Reclaimable(w *kueue.Workload) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for _, p := range w.Status.ReclaimablePods {
		if i := slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == p.Name }); i >= 0 {
			out[i] = p.Count
		}
	}
	return out
}

// NotAdmitted is how many pods of each pod set of the spec got no quota.
func NotAdmitted(w *kueue.Workload) []int32 {
	out := Assigned(w)
	for i := range out {
		out[i] = max(0, w.Spec.PodSets[i].Count-out[i])
	}
	return out
}

// Reclaimed is how many of the pods that got quota have released it.
func Reclaimed(w *kueue.Workload) []int32 {
	out, without := Reclaimable(w), NotAdmitted(w)
	for i := range out {
		out[i] = max(0, out[i]-without[i])
	}
	return out
}

// Granted is how many pods of each pod set have quota now.
func Granted(w *kueue.Workload) []int32 {
	out, gone := Assigned(w), Reclaimed(w)
	for i := range out {
		out[i] -= gone[i]
	}
	return out
}
