package queueing

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func checkRules(cq *kueue.ClusterQueue) []kueue.AdmissionCheckStrategyRule {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	return cq.Spec.AdmissionChecksStrategy.AdmissionChecks
}

// flavorsOf lists the flavors of a ClusterQueue in the order of its spec.
func flavorsOf(cq *kueue.ClusterQueue) []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			if !slices.Contains(out, f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// applies says that a check is needed where a flavor is assigned.
func applies(rule kueue.AdmissionCheckStrategyRule, flavor kueue.ResourceFlavorReference) bool {
	return len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor)
}

// checksFor lists the checks that an assignment needs, in the order of the
// queue's spec.
func checksFor(cq *kueue.ClusterQueue, flavors []kueue.ResourceFlavorReference) []kueue.AdmissionCheckReference {
	var out []kueue.AdmissionCheckReference
	for _, rule := range checkRules(cq) {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(flavors, func(f kueue.ResourceFlavorReference) bool { return applies(rule, f) }) {
			out = append(out, rule.Name)
		}
	}
	return out
}

// isCapacity says that a check is one that Muster serves by ProvisioningRequests.
func (s *State) isCapacity(name kueue.AdmissionCheckReference) bool {
	ac := s.checks[name]
	return ac != nil && ac.Spec.ControllerName == CapacityController
}

// serve looks at a check; ours is false if another controller serves it.
func (s *State) serve(w *Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) (out step, ours bool) {
	if !s.isCapacity(state.Name) {
		return out, false
	}
	return s.capacityStep(w, checks, state), true
}

// capacityChecks are those of the names that Muster serves.
func (s *State) capacityChecks(names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckReference {
	return slices.DeleteFunc(slices.Clone(names), func(n kueue.AdmissionCheckReference) bool { return !s.isCapacity(n) })
}

// assignedFlavors lists the flavors of an admission in a fixed order.
func assignedFlavors(a *kueue.Admission) []kueue.ResourceFlavorReference {
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

func findCheck(states []kueue.AdmissionCheckState, name kueue.AdmissionCheckReference) *kueue.AdmissionCheckState {
	for i := range states {
		if states[i].Name == name {
			return &states[i]
		}
	}
	return nil
}
