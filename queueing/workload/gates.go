package workload

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ClosedGate is the first of a Workload's preemption gates that is not open;
// empty if all are open. One without a state is closed.
func ClosedGate(w *kueue.Workload) string {
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

// blockedOnGates keeps the condition that tells those controllers that open gates that one is
// waited for.
func (e *Editor) blockedOnGates(reason, message string) {
	if reason == kueue.WorkloadAdmissionGated && ClosedGate(e.object) != "" && e.object.Annotations[GatedByAnnotation] == "" {
		e.Set(kueue.WorkloadBlockedOnPreemptionGates, metav1.ConditionTrue, kueue.PreemptionGated, message)
	}
}

// closeGates closes all gates, since a new attempt has to ask again.
func (e *Editor) closeGates() {
	for i := range e.Status.PreemptionGates {
		if g := &e.Status.PreemptionGates[i]; g.Position != kueue.PreemptionGatePositionClosed {
			g.Position, g.LastTransitionTime = kueue.PreemptionGatePositionClosed, e.now
		}
	}
}
