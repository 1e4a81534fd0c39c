package queueing

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Evaluator looks at the checks of Workloads at a time.
type Evaluator struct {
	*Cache
	now time.Time
}

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
func (s *Cache) isCapacity(name kueue.AdmissionCheckReference) bool {
	ac := s.checks[name]
	return ac != nil && ac.Spec.ControllerName == CapacityController
}

// books says that a check makes requests, whichever way.
func (s *Cache) books(name kueue.AdmissionCheckReference) bool {
	return s.isCapacity(name) || s.isRequest(name)
}

// serve looks at a check; ours is false if another controller serves it.
func (s Evaluator) serve(w *Workload, checks []kueue.AdmissionCheckState, state *kueue.AdmissionCheckState) (out step, ours bool) {
	switch {
	case s.isCapacity(state.Name):
		return s.capacityStep(w, checks, state), true
	case s.isRequest(state.Name):
		return s.requestStep(w, checks, state), true
	}
	return out, false
}

// capacityChecks are those of the names that Muster serves.
func (s *Cache) capacityChecks(names []kueue.AdmissionCheckReference) []kueue.AdmissionCheckReference {
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

// revoked looks at the requests of Kueue's own checks once the Workload is
// admitted: what was booked may have been taken away.
func (s Rules) revoked(w *Workload) *Verdict {
	e := edit(w.Object, s.now)
	for i := range e.status.AdmissionChecks {
		state := &e.status.AdmissionChecks[i]
		if !s.isRequest(state.Name) {
			continue
		}
		step := s.requestStep(w, e.status.AdmissionChecks, state)
		if over := step.state == kueue.CheckStateRetry || step.state == kueue.CheckStateRejected; over && step.write(state, s.now) {
			return &Verdict{Workload: w, Action: Advance, Status: e.status, Reason: "AdmissionCheckUpdated",
				Message: fmt.Sprintf("Admission check %s is %s: %s", state.Name, state.State, state.Message)}
		}
	}
	return nil
}

// retryAt is when the last of the checks that are in Retry wants the Workload to be
// queued again; zero is at once.
func retryAt(w *kueue.Workload) (at time.Time) {
	for i := range w.Status.AdmissionChecks {
		c := &w.Status.AdmissionChecks[i]
		if c.State != kueue.CheckStateRetry || c.RequeueAfterSeconds == nil {
			continue
		}
		if t := c.LastTransitionTime.Add(time.Duration(*c.RequeueAfterSeconds) * time.Second); t.After(at) {
			at = t
		}
	}
	return at
}

// retryCount is that of a check at the start of an attempt. Muster's own checks
// count all attempts, whatever ended them, so that the objects of two attempts
// never share a name, whichever flavors they were on. Other checks count, as in
// Kueue, how often they asked for another attempt.
func (s Evaluator) retryCount(w *Workload, name kueue.AdmissionCheckReference) *int32 {
	states := w.Object.Status.AdmissionChecks
	if !s.isCapacity(name) {
		if have := findCheck(states, name); have != nil {
			return have.RetryCount
		}
		return nil
	}
	var tried int32
	for i := range states {
		if s.isCapacity(states[i].Name) {
			tried = max(tried, plus(retries(&states[i]), 1))
		}
	}
	if tried == 0 {
		return nil
	}
	return &tried
}

// recount forgets how often checks asked for another attempt that had their answer before
// the Workload had to stop, as Kueue does: what they ask for next is asked for the first
// time. Muster's own checks count on.
func (s Evaluator) recount(before *kueue.Workload, after *kueue.WorkloadStatus) {
	for i := range before.Status.AdmissionChecks {
		c := &before.Status.AdmissionChecks[i]
		if answered := c.State == kueue.CheckStateReady || c.State == kueue.CheckStateRejected; answered && !s.isCapacity(c.Name) {
			if now := findCheck(after.AdmissionChecks, c.Name); now != nil {
				now.RetryCount = nil
			}
		}
	}
}

func findCheck(states []kueue.AdmissionCheckState, name kueue.AdmissionCheckReference) *kueue.AdmissionCheckState {
	for i := range states {
		if states[i].Name == name {
			return &states[i]
		}
	}
	return nil
}
