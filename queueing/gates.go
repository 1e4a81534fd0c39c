package queueing

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// closedGate is the first of a Workload's preemption gates that nobody has opened;
// empty if all are open. One without a state is closed.
func closedGate(w *kueue.Workload) string {
	for _, gate := range w.Spec.PreemptionGates {
		open := slices.ContainsFunc(w.Status.PreemptionGates, func(s kueue.PreemptionGateState) bool {
			return s.Name == gate.Name && s.Position == kueue.PreemptionGatePositionOpen
		})
		if !open {
			return gate.Name
		}
	}
	return ""
}

// gated holds back who could have quota only by having others leave, as long as
// one of its gates is closed.
func (s *Cycle) gated(w *Workload, p *proposal) *hold {
	gate := closedGate(w.Object)
	if len(p.victims) == 0 || gate == "" {
		return nil
	}
	return &hold{reason: kueue.WorkloadAdmissionGated, message: "Workload requires preemption, but it's gated by preemptionGate " + gate +
		"; it is admitted when that is open or quota is free"}
}

// blockedOnGates keeps the condition that tells whoever opens gates that one is
// waited for.
func (e *editor) blockedOnGates(reason, message string) {
	if reason == kueue.WorkloadAdmissionGated && closedGate(e.object) != "" && e.object.Annotations[GatedByAnnotation] == "" {
		e.set(kueue.WorkloadBlockedOnPreemptionGates, metav1.ConditionTrue, kueue.PreemptionGated, message)
	}
}

// closeGates closes all gates, since a new attempt has to ask again.
func (e *editor) closeGates() {
	for i := range e.status.PreemptionGates {
		if g := &e.status.PreemptionGates[i]; g.Position != kueue.PreemptionGatePositionClosed {
			g.Position, g.LastTransitionTime = kueue.PreemptionGatePositionClosed, e.now
		}
	}
}
