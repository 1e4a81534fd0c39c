// Package podcounts counts the pods of each pod set of a Workload that has been admitted.
package podcounts

import (
	"slices"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Assigned returns how many pods of each pod set of an admitted Workload got quota.
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

// Reclaimable returns the reclaimable pods of each pod set. As in the API, they count from the whole spec, including
// pods that were not admitted.
func Reclaimable(w *kueue.Workload) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for _, p := range w.Status.ReclaimablePods {
		if i := slices.IndexFunc(w.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == p.Name }); i >= 0 {
			out[i] = p.Count
		}
	}
	return out
}

// NotAdmitted returns how many pods of each pod set got no quota.
func NotAdmitted(w *kueue.Workload) []int32 {
	out := Assigned(w)
	for i := range out {
		out[i] = max(0, w.Spec.PodSets[i].Count-out[i])
	}
	return out
}

// Reclaimed returns how many pods with quota have released it.
func Reclaimed(w *kueue.Workload) []int32 {
	out, without := Reclaimable(w), NotAdmitted(w)
	for i := range out {
		out[i] = max(0, out[i]-without[i])
	}
	return out
}

// Granted returns how many pods of each pod set currently have quota.
func Granted(w *kueue.Workload) []int32 {
	out, gone := Assigned(w), Reclaimed(w)
	for i := range out {
		out[i] -= gone[i]
	}
	return out
}
