package queueing

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A Workload is deactivated by a person, or by Muster for a cause. Then it takes
// three writes, since spec and status are written apart, and the cause has to be
// known after the second, whoever dies in between:
//
//	active ─condemn─▶ DeactivationTarget ─Deactivate─▶ spec.active: false ─▶ Evicted, DeactivatedDueTo<cause>
//	   ▲                                                                        │
//	   └────────────────────── a person sets spec.active: true ─────────────────┘

// deactivatedMessage is what a deactivated Workload waits for.
const deactivatedMessage = "The workload is deactivated; set spec.active to true to queue it again"

// condemn marks a Workload that has to be deactivated, with the cause.
func (s Rules) condemn(w *Workload, cause, message string) *Verdict {
	e := edit(w.Object, s.now)
	e.set(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, cause, message)
	return &Verdict{Workload: w, Action: Advance, Reason: cause, Message: message, Status: e.status}
}

// deactivate carries out what condemn has marked; nil where nothing is.
func (s Rules) deactivate(w *Workload) *Verdict {
	if !IsActive(w.Object) || !isTrue(w.Object, kueue.WorkloadDeactivationTarget) {
		return nil
	}
	target := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadDeactivationTarget)
	v := &Verdict{Workload: w, Action: Deactivate, Reason: target.Reason, Message: "Deactivated due to " + target.Message}
	switch limit := w.Object.Spec.MaximumExecutionTimeSeconds; {
	case target.Reason == kueue.WorkloadEvictedByAdmissionCheck:
		v.Reason = "AdmissionCheckRejected"
	case target.Reason == kueue.WorkloadMaximumExecutionTimeExceeded && limit != nil:
		v.Message = fmt.Sprintf("The maximum execution time (%ds) exceeded", *limit)
	}
	return v
}

// deactivationCause is why an inactive Workload was deactivated; the cause is
// empty if a person did it.
func deactivationCause(w *kueue.Workload) (cause, message string) {
	if target := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadDeactivationTarget); target != nil {
		return target.Reason, fmt.Sprintf("The workload is deactivated due to %s", target.Message)
	}
	return "", "The workload is deactivated"
}

// inactive tells a Workload without quota that it is deactivated.
func (s Rules) inactive(w *Workload) *Verdict {
	if IsEvicted(w.Object) && w.Object.Status.RequeueState == nil {
		return s.wait(w, kueue.WorkloadDeactivated, deactivatedMessage)
	}
	e := edit(w.Object, s.now)
	if IsEvicted(w.Object) {
		e.deactivated()
	} else {
		cause, why := deactivationCause(w.Object)
		e.evict(kueue.WorkloadDeactivated, cause, why)
		s.recount(w.Object, e.status)
	}
	e.pending(kueue.WorkloadDeactivated, deactivatedMessage)
	w.reason, w.message = kueue.WorkloadDeactivated, deactivatedMessage
	return &Verdict{Workload: w, Action: Advance, Reason: kueue.WorkloadDeactivated, Message: deactivatedMessage, Status: e.status}
}
