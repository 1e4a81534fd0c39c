package workload

import (
	"fmt"
	"math"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
)

// Pause keeps an evicted Workload from being evaluated before a time.
func (e *Editor) Pause(until time.Time) {
	if c := apimeta.FindStatusCondition(e.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		e.Set(kueue.WorkloadRequeued, metav1.ConditionFalse, c.Reason, c.Message)
	}
	if e.Status.RequeueState == nil {
		e.Status.RequeueState = &kueue.RequeueState{}
	}
	e.Status.RequeueState.RequeueAt = new(metav1.NewTime(until))
}

// A Workload is deactivated by a user, or by Muster for a cause. By Muster it takes three writes, because spec and
// status are written separately, and the cause must survive a crash after the second:
//
//	active ─requestDeactivation─▶ DeactivationTarget ─Deactivate─▶ spec.active: false ─▶ Evicted, DeactivatedDueTo<cause>
//	   ▲                                                                                  │
//	   └────────────────────────── a user sets spec.active: true ─────────────────────────┘

// DeactivatedMessage is the message of a deactivated Workload.
const DeactivatedMessage = "The workload is deactivated; set spec.active to true to queue it again"

// MaxMessage is the maximum length of a condition's message in the API, in bytes.
const MaxMessage = 32 << 10

// Editor edits a copy of the status of a Workload.
type Editor struct {
	object *kueue.Workload
	now    metav1.Time
	Status *kueue.WorkloadStatus
}

func Edit(w *kueue.Workload, now time.Time) *Editor {
	e := &Editor{object: w, now: metav1.NewTime(now), Status: w.Status.DeepCopy()}
	if s := e.Status.RequeueState; s != nil {
		e.setRequeueState(*s)
	}
	return e
}

// setRequeueState sets the requeue state, or nil if it is empty. An apply that removes all fields of an object sets it
// to null, which the API server rejects.
func (e *Editor) setRequeueState(s kueue.RequeueState) {
	e.Status.RequeueState = nil
	if s != (kueue.RequeueState{}) {
		e.Status.RequeueState = &s
	}
}

// Set sets a condition, and reports whether it changed.
func (e *Editor) Set(condition string, status metav1.ConditionStatus, reason, message string) bool {
	message = text.Clip(message, MaxMessage)
	return apimeta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: e.object.Generation, LastTransitionTime: e.now,
	})
}

// AwaitsTopology sets why the pods have no topology assignment on their nodes yet, and reports whether it changed.
func (e *Editor) AwaitsTopology(why string) bool {
	return e.Set(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests,
		"There are pending delayed topology requests: "+why)
}

// unset sets a true condition to false and keeps its message.
func (e *Editor) unset(condition, reason string) {
	if c := apimeta.FindStatusCondition(e.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
		e.Set(condition, metav1.ConditionFalse, reason, "Previously: "+c.Message)
	}
}

// Pending sets why there is no quota.
func (e *Editor) Pending(reason, message string) {
	e.Set(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason, message)
}

// Reserve reserves quota. Without checks it also admits the Workload.
func (e *Editor) Reserve(admission *kueue.Admission, checks []kueue.AdmissionCheckState) {
	e.Status.Admission = admission
	e.Status.AdmissionChecks = checks
	// The admission includes them.
	e.Status.ResourceRequests = nil
	e.Set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved",
		fmt.Sprintf("Quota reserved in ClusterQueue %s", admission.ClusterQueue))
	e.unset(kueue.WorkloadEvicted, "QuotaReserved")
	e.unset(kueue.WorkloadPreempted, "QuotaReserved")
	e.unset(kueue.WorkloadBlockedOnPreemptionGates, "QuotaReserved")
	e.requeue()
	e.endPause()
	if len(checks) == 0 {
		e.Admit()
		return
	}
	e.Set(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks,
		"The workload has not all checks ready")
}

// endPause deletes RequeueAt. As in Kueue (pkg/controller/core/workload_controller.go), it keeps the number of
// requeues.
func (e *Editor) endPause() {
	if s := e.Status.RequeueState; s != nil {
		e.setRequeueState(kueue.RequeueState{Count: s.Count})
	}
}

// requeue sets the condition Requeued to true, with the reason that ended the wait.
func (e *Editor) requeue() {
	c := apimeta.FindStatusCondition(e.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status == metav1.ConditionTrue {
		return
	}
	switch c.Reason {
	case kueue.WorkloadEvictedByClusterQueueStopped:
		e.Set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadClusterQueueRestarted,
			"The ClusterQueue was restarted after being stopped")
	case kueue.WorkloadEvictedByLocalQueueStopped:
		e.Set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadLocalQueueRestarted, "The LocalQueue was restarted after being stopped")
	case kueue.WorkloadEvictedByAdmissionCheck, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadEvictedByPreemption, ReasonPodsRefused:
		e.Set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadBackoffFinished, "The workload backoff was finished")
	default:
		e.Set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadReactivated, "The workload was reactivated")
	}
}

func (e *Editor) Admit() {
	e.Set(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
}

// Evict sets the condition Evicted, so that the controller of the job stops the pods, and resets the state of the
// attempt. Some reasons have a cause; it may be empty. The quota is kept until Release.
func (e *Editor) Evict(reason, cause, message string) {
	e.countEviction(reason, cause)
	if IsAdmitted(e.object) && reason != kueue.WorkloadEvictedByPodsReadyTimeout && reason != ReasonPodsRefused {
		e.Status.RequeueState = nil // the failed attempts before the admission no longer count
	}
	if reason == kueue.WorkloadDeactivated {
		e.Deactivated()
		if cause != "" {
			reason += DueTo + cause
		}
	}
	e.Set(kueue.WorkloadEvicted, metav1.ConditionTrue, reason, message)
	requeued := metav1.ConditionFalse
	if reason == kueue.WorkloadEvictedByPreemption || reason == kueue.WorkloadEvictedDueToNodeFailures {
		// It waits only for quota.
		requeued = metav1.ConditionTrue
	}
	e.Set(kueue.WorkloadRequeued, requeued, reason, message)
	e.unset(kueue.WorkloadBlockedOnPreemptionGates, reason)
	e.closeGates()
	e.ResetChecks()
	// Where its copies are is recorded elsewhere.
	e.Status.ClusterName, e.Status.NominatedClusterNames = nil, nil
	e.Status.UnhealthyNodes = nil
}

// DueTo separates the reason of an eviction from its cause.
const DueTo = "DueTo"

// countEviction adds an eviction to the statistics.
func (e *Editor) countEviction(reason, cause string) {
	if e.Status.SchedulingStats == nil {
		e.Status.SchedulingStats = &kueue.SchedulingStats{}
	}
	stats := e.Status.SchedulingStats
	for i := range stats.Evictions {
		if x := &stats.Evictions[i]; x.Reason == reason && string(x.UnderlyingCause) == cause {
			x.Count = SaturatingAdd(x.Count, 1)
			return
		}
	}
	stats.Evictions = append(stats.Evictions, kueue.WorkloadSchedulingStatsEviction{
		Reason: reason, UnderlyingCause: kueue.EvictionUnderlyingCause(cause), Count: 1,
	})
}

// Evictions returns how often a Workload was evicted for a reason; an empty cause matches all.
func Evictions(w *kueue.Workload, reason, cause string) (n int32) {
	if w.Status.SchedulingStats == nil {
		return 0
	}
	for _, x := range w.Status.SchedulingStats.Evictions {
		if x.Reason == reason && (cause == "" || string(x.UnderlyingCause) == cause) {
			n = SaturatingAdd(n, x.Count)
		}
	}
	return n
}

// SaturatingAdd returns a + b for numbers that are not negative, or the largest int32. A client with write access to
// the status may have written any number, and the API server rejects negative counts.
func SaturatingAdd(a, b int32) int32 {
	if a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}

// Deactivated deletes the state that a reactivated Workload must not have.
func (e *Editor) Deactivated() {
	e.Status.RequeueState = nil
	apimeta.RemoveStatusCondition(&e.Status.Conditions, kueue.WorkloadDeactivationTarget)
}

// ResetChecks sets all checks to Pending and increments the retry count of the checks in Retry. A check without an answer keeps its
// message. As in Kueue, the time at which a check in Retry requested its next attempt stays in the status.
func (e *Editor) ResetChecks() {
	for i := range e.Status.AdmissionChecks {
		c := &e.Status.AdmissionChecks[i]
		if c.State == kueue.CheckStatePending {
			continue
		}
		count := c.RetryCount
		if c.State == kueue.CheckStateRetry {
			count = new(SaturatingAdd(Retries(c), 1))
		}
		*c = kueue.AdmissionCheckState{
			Name:               c.Name,
			State:              kueue.CheckStatePending,
			LastTransitionTime: e.now,
			Message:            fmt.Sprintf("Reset to Pending after eviction. Previously: %s", c.State),
			RetryCount:         count,

			RequeueAfterSeconds: c.RequeueAfterSeconds,
		}
	}
}

func Retries(c *kueue.AdmissionCheckState) int32 {
	if c == nil || c.RetryCount == nil {
		return 0
	}
	return *c.RetryCount
}

// Release releases the quota.
func (e *Editor) Release(reason, message string) {
	e.addExecutionTime()
	e.unset(ConditionAdopted, reason)
	e.Status.Admission = nil
	e.Pending(reason, message)
	e.Set(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonNoReservation, "The workload has no reservation")
	e.resetPodsReady()
}

// resetPodsReady resets PodsReady after an attempt. If waitForPodsReady is off, the condition is removed.
func (e *Editor) resetPodsReady() {
	switch c := apimeta.FindStatusCondition(e.Status.Conditions, kueue.WorkloadPodsReady); {
	case c == nil:
	case c.Reason == ReasonPodsRefused:
		apimeta.RemoveStatusCondition(&e.Status.Conditions, kueue.WorkloadPodsReady)
	default:
		e.Set(kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, podsNotReadyMessage)
	}
}

// addExecutionTime adds the time since the admission to the accumulated time. A Workload that was deactivated for its
// execution time starts again from zero.
func (e *Editor) addExecutionTime() {
	conditions := e.Status.Conditions
	admitted := apimeta.FindStatusCondition(conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue {
		return
	}
	evicted := apimeta.FindStatusCondition(conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Reason == kueue.WorkloadDeactivated+DueTo+kueue.WorkloadMaximumExecutionTimeExceeded {
		e.Status.AccumulatedPastExecutionTimeSeconds = nil
		return
	}
	seconds := max(0, e.now.Sub(admitted.LastTransitionTime.Time)/time.Second)
	before := Accumulated(e.Status)
	e.Status.AccumulatedPastExecutionTimeSeconds = new(SaturatingAdd(before, int32(min(seconds, math.MaxInt32))))
}

// Accumulated returns for how many seconds a Workload ran in earlier admissions.
func Accumulated(status *kueue.WorkloadStatus) int32 {
	if status.AccumulatedPastExecutionTimeSeconds == nil {
		return 0
	}
	return max(0, *status.AccumulatedPastExecutionTimeSeconds)
}
