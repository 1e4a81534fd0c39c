package workload

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func PodsIn(a *kueue.Admission) (n int32) {
	for i := range a.PodSetAssignments {
		n += CountOf(&a.PodSetAssignments[i])
	}
	return n
}

// AssignedFlavors lists the flavors of an admission, sorted.
func AssignedFlavors(a *kueue.Admission) []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, ps := range a.PodSetAssignments {
		for _, f := range ps.Flavors {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	slices.Sort(out)
	return out
}

func CountOf(assignment *kueue.PodSetAssignment) int32 {
	if assignment.Count == nil {
		return 0
	}
	return *assignment.Count
}

func FindPodSet(w *kueue.Workload, name kueue.PodSetReference) *kueue.PodSet {
	for i := range w.Spec.PodSets {
		if w.Spec.PodSets[i].Name == name {
			return &w.Spec.PodSets[i]
		}
	}
	return &kueue.PodSet{}
}

func FindAssignment(w *kueue.Workload, podSet kueue.PodSetReference) *kueue.PodSetAssignment {
	for i := range w.Status.Admission.PodSetAssignments {
		if ps := &w.Status.Admission.PodSetAssignments[i]; ps.Name == podSet {
			return ps
		}
	}
	return &kueue.PodSetAssignment{}
}

// AwaitsTopology reports whether pods of an admission get their topology assignment once their machines are booked.
func AwaitsTopology(a *kueue.Admission) bool {
	return slices.ContainsFunc(a.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
		return a.DelayedTopologyRequest != nil && *a.DelayedTopologyRequest == kueue.DelayedTopologyRequestStatePending &&
			a.TopologyAssignment == nil
	})
}
