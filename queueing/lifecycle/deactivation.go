package lifecycle

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// requestDeactivation sets the condition DeactivationTarget, with the cause.
func (s Rules) requestDeactivation(w *cache.Workload, cause, message string) *Verdict {
	e := workload.Edit(w.Object, s.now)
	e.Set(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, cause, message)
	return &Verdict{Workload: w, Action: Advance, Reason: cause, Message: message, Status: e.Status}
}

// Deactivate deactivates a Workload with the condition DeactivationTarget; nil if it has none.
func (s Rules) Deactivate(w *cache.Workload) *Verdict {
	if !workload.IsActive(w.Object) || !workload.IsTrue(w.Object, kueue.WorkloadDeactivationTarget) {
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

// deactivationCause returns why a Workload is inactive; the cause is empty if a user deactivated it.
func deactivationCause(w *kueue.Workload) (cause, message string) {
	if target := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadDeactivationTarget); target != nil {
		return target.Reason, fmt.Sprintf("The workload is deactivated due to %s", target.Message)
	}
	return "", "The workload is deactivated"
}

// Inactive returns the verdict on an inactive Workload without quota.
func (s Rules) Inactive(w *cache.Workload) *Verdict {
	if workload.IsEvicted(w.Object) && w.Object.Status.RequeueState == nil {
		return s.Wait(w, kueue.WorkloadDeactivated, workload.DeactivatedMessage)
	}
	e := workload.Edit(w.Object, s.now)
	if workload.IsEvicted(w.Object) {
		e.Deactivated()
	} else {
		cause, why := deactivationCause(w.Object)
		e.Evict(kueue.WorkloadDeactivated, cause, why)
		s.checks.Recount(w.Object, e.Status)
	}
	e.Pending(kueue.WorkloadDeactivated, workload.DeactivatedMessage)
	w.Reason, w.Message = kueue.WorkloadDeactivated, workload.DeactivatedMessage
	return &Verdict{Workload: w, Action: Advance, Reason: kueue.WorkloadDeactivated, Message: workload.DeactivatedMessage, Status: e.Status}
}
