package workload

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ClosedGate returns the first preemption gate of a Workload that is not open; empty if all are open. A gate without a
// state is closed.
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

// blockedOnGates sets the condition that shows the controllers of gates that the Workload waits for one.
func (e *Editor) blockedOnGates(reason, message string) {
	if reason == kueue.WorkloadAdmissionGated && ClosedGate(e.object) != "" && e.object.Annotations[GatedByAnnotation] == "" {
		e.Set(kueue.WorkloadBlockedOnPreemptionGates, metav1.ConditionTrue, kueue.PreemptionGated, message)
	}
}

// closeGates closes all gates, because a new attempt needs them opened again.
func (e *Editor) closeGates() {
	for i := range e.Status.PreemptionGates {
		if g := &e.Status.PreemptionGates[i]; g.Position != kueue.PreemptionGatePositionClosed {
			g.Position, g.LastTransitionTime = kueue.PreemptionGatePositionClosed, e.now
		}
	}
}
