package workload

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Waiting returns the status of a Workload that waits for a reason, with its resource requests; nil if it does not
// change.
func Waiting(w *kueue.Workload, requested []kueue.PodSetRequest, reason, message string, now time.Time) *kueue.WorkloadStatus {
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if have != nil && have.Status == metav1.ConditionFalse && have.Reason == reason && have.Message == message {
		return nil
	}
	e := Edit(w, now)
	if IsTrue(w, kueue.WorkloadQuotaReserved) || w.Status.Admission != nil {
		// An incomplete reservation, for example after a manual edit.
		e.Release(reason, message)
	} else {
		e.Pending(reason, message)
	}
	switch reason {
	case kueue.WorkloadQuotaReservedReasonSuspended, kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadDeactivated:
	default:
		// Nothing keeps it from being queued any more.
		e.requeue()
		if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil && !now.Before(state.RequeueAt.Time) {
			e.endPause()
		}
	}
	e.blockedOnGates(reason, message)
	e.Status.ResourceRequests = requested
	return e.Status
}

// ReasonPodsRefused is the reason of PodsReady=False, and then of Evicted, if the API server rejects the pods of a
// started job. Kueue has no such reason; there such a job keeps its quota until the timeout of waitForPodsReady.
const ReasonPodsRefused = "PodsRefused"

// PodsRefused returns the status of an admitted Workload whose pods the API server rejects. The Workload is evicted for
// it.
func PodsRefused(w *kueue.Workload, words string, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	// The transition time is that of the rejection, even if the pods were not ready before.
	apimeta.RemoveStatusCondition(&e.Status.Conditions, kueue.WorkloadPodsReady)
	e.Set(kueue.WorkloadPodsReady, metav1.ConditionFalse, ReasonPodsRefused, words)
	return e.Status
}

// Messages of PodsReady, as in Kueue (pkg/controller/jobframework/reconciler.go).
const (
	podsReadyMessage    = "All pods reached readiness and the workload is running"
	podsNotReadyMessage = "Not all pods are ready or succeeded"
)

// Readiness returns the status of a Workload whose pods are all ready, or not; nil if it does not change.
func Readiness(w *kueue.Workload, ready bool, now time.Time) *kueue.WorkloadStatus {
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == (have != nil && have.Status == metav1.ConditionTrue) {
		return nil
	}
	want := metav1.Condition{
		Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted,
		Message:            podsReadyMessage,
		ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case !ready:
		want.Status, want.Reason = metav1.ConditionFalse, kueue.WorkloadWaitForRecovery
		want.Message = "At least one pod has failed, waiting for recovery"
	case have != nil && have.Reason == kueue.WorkloadWaitForRecovery:
		want.Reason = kueue.WorkloadRecovered
	}
	status := w.Status.DeepCopy()
	apimeta.SetStatusCondition(&status.Conditions, want)
	return status
}

// ReasonSuspendedByHand is the reason of Evicted if a user suspended a running job. Kueue has no such reason, because
// it starts the job again at once.
const ReasonSuspendedByHand = "SuspendedByHand"

// Evicted returns the status of an evicted Workload. Its quota is kept until Released.
func Evicted(w *kueue.Workload, reason, message string, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	e.Evict(reason, "", message)
	return e.Status
}

// Released returns the status of an evicted Workload whose pods have all stopped: its quota is released.
func Released(w *kueue.Workload, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	reason, message := kueue.WorkloadQuotaReservedReasonPendingEvaluation, "The workload was evicted"
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		message = c.Message
	}
	if !IsActive(w) {
		reason, message = kueue.WorkloadDeactivated, DeactivatedMessage
	}
	e.Release(reason, message)
	return e.Status
}

// Finished returns the status of a Workload whose job is finished.
func Finished(w *kueue.Workload, reason, message string, now time.Time) *kueue.WorkloadStatus {
	e := Edit(w, now)
	e.Set(kueue.WorkloadFinished, metav1.ConditionTrue, reason, message)
	return e.Status
}
