package queueing

import (
	"fmt"
	"math"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
)

// maxMessage is how long the API lets the message of a condition be, in bytes.
const maxMessage = 32 << 10

// editor makes a new status out of that of a Workload; the old one stays.
type editor struct {
	object *kueue.Workload
	now    metav1.Time
	status *kueue.WorkloadStatus
}

func edit(w *kueue.Workload, now time.Time) *editor {
	return &editor{object: w, now: metav1.NewTime(now), status: w.Status.DeepCopy()}
}

func (e *editor) set(condition string, status metav1.ConditionStatus, reason, message string) {
	message = provisioning.Clip(message, maxMessage)
	apimeta.SetStatusCondition(&e.status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: e.object.Generation, LastTransitionTime: e.now,
	})
}

// unset turns a true condition false and keeps what it said.
func (e *editor) unset(condition, reason string) {
	if c := apimeta.FindStatusCondition(e.status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
		e.set(condition, metav1.ConditionFalse, reason, "Previously: "+c.Message)
	}
}

// pending gives the reason why there is no quota.
func (e *editor) pending(reason, message string) {
	e.set(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason, message)
}

// reserve gives quota. Without checks the Workload is admitted with it.
func (e *editor) reserve(admission *kueue.Admission, checks []kueue.AdmissionCheckState) {
	e.status.Admission = admission
	e.status.AdmissionChecks = checks
	// The admission says it.
	e.status.ResourceRequests = nil
	e.set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved",
		fmt.Sprintf("Quota reserved in ClusterQueue %s", admission.ClusterQueue))
	e.unset(kueue.WorkloadEvicted, "QuotaReserved")
	e.unset(kueue.WorkloadPreempted, "QuotaReserved")
	e.unset(kueue.WorkloadBlockedOnPreemptionGates, "QuotaReserved")
	e.requeued()
	if e.status.RequeueState != nil {
		e.status.RequeueState.RequeueAt = nil
	}
	if len(checks) == 0 {
		e.admit()
		return
	}
	e.set(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks,
		"The workload has not all checks ready")
}

// requeued says what ended the time in which the Workload was not queued.
func (e *editor) requeued() {
	c := apimeta.FindStatusCondition(e.status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status == metav1.ConditionTrue {
		return
	}
	switch c.Reason {
	case kueue.WorkloadEvictedByClusterQueueStopped:
		e.set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadClusterQueueRestarted, "The ClusterQueue was restarted after being stopped")
	case kueue.WorkloadEvictedByLocalQueueStopped:
		e.set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadLocalQueueRestarted, "The LocalQueue was restarted after being stopped")
	case kueue.WorkloadEvictedByAdmissionCheck, kueue.WorkloadEvictedByPodsReadyTimeout, ReasonPodsRefused:
		e.set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadBackoffFinished, "The workload backoff was finished")
	default:
		e.set(kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadReactivated, "The workload was reactivated")
	}
}

func (e *editor) admit() {
	e.set(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted")
	e.status.RequeueState = nil
}

// evict tells whoever runs the pods to stop, and resets what belongs to the
// attempt. The cause says more about some reasons; empty is none. The quota stays
// until release.
func (e *editor) evict(reason, cause, message string) {
	e.counted(reason, cause)
	if reason == kueue.WorkloadDeactivated {
		e.deactivated()
		if cause != "" {
			reason += dueTo + cause
		}
	}
	e.set(kueue.WorkloadEvicted, metav1.ConditionTrue, reason, message)
	requeued := metav1.ConditionFalse
	if reason == kueue.WorkloadEvictedByPreemption {
		// It waits for nothing but quota.
		requeued = metav1.ConditionTrue
	}
	e.set(kueue.WorkloadRequeued, requeued, reason, message)
	e.unset(kueue.WorkloadBlockedOnPreemptionGates, reason)
	e.closeGates()
	e.resetChecks()
}

// dueTo stands between the reason of an eviction and its cause.
const dueTo = "DueTo"

// counted adds an eviction to the statistics.
func (e *editor) counted(reason, cause string) {
	if e.status.SchedulingStats == nil {
		e.status.SchedulingStats = &kueue.SchedulingStats{}
	}
	stats := e.status.SchedulingStats
	for i := range stats.Evictions {
		if x := &stats.Evictions[i]; x.Reason == reason && string(x.UnderlyingCause) == cause {
			x.Count = plus(x.Count, 1)
			return
		}
	}
	stats.Evictions = append(stats.Evictions, kueue.WorkloadSchedulingStatsEviction{
		Reason: reason, UnderlyingCause: kueue.EvictionUnderlyingCause(cause), Count: 1,
	})
}

// evictions is how often a Workload was evicted for a reason; an empty cause
// stands for all.
func evictions(w *kueue.Workload, reason, cause string) (n int32) {
	if w.Status.SchedulingStats == nil {
		return 0
	}
	for _, x := range w.Status.SchedulingStats.Evictions {
		if x.Reason == reason && (cause == "" || string(x.UnderlyingCause) == cause) {
			n = plus(n, x.Count)
		}
	}
	return n
}

// plus is a + b for numbers that are not negative, or the largest int32: whoever may
// write a status may have written that, and a count below 0 is refused.
func plus(a, b int32) int32 {
	if a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}

// deactivated forgets what a Workload that is activated again starts without.
func (e *editor) deactivated() {
	e.status.RequeueState = nil
	apimeta.RemoveStatusCondition(&e.status.Conditions, kueue.WorkloadDeactivationTarget)
}

// resetChecks sends all checks back to Pending, and counts for those in Retry that they
// were. A check that has not answered keeps what it says.
func (e *editor) resetChecks() {
	for i := range e.status.AdmissionChecks {
		c := &e.status.AdmissionChecks[i]
		if c.State == kueue.CheckStatePending {
			continue
		}
		count := c.RetryCount
		if c.State == kueue.CheckStateRetry {
			count = new(plus(retries(c), 1))
		}
		*c = kueue.AdmissionCheckState{
			Name:               c.Name,
			State:              kueue.CheckStatePending,
			LastTransitionTime: e.now,
			Message:            fmt.Sprintf("Reset to Pending after eviction. Previously: %s", c.State),
			RetryCount:         count,
		}
	}
}

func retries(c *kueue.AdmissionCheckState) int32 {
	if c == nil || c.RetryCount == nil {
		return 0
	}
	return *c.RetryCount
}

// release takes the quota back.
func (e *editor) release(reason, message string) {
	e.ran()
	e.unset(ConditionAdopted, reason)
	e.status.Admission = nil
	e.pending(reason, message)
	e.set(kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.WorkloadAdmittedReasonNoReservation, "The workload has no reservation")
	e.podsGone()
}

// podsGone takes back what was said of the pods of an attempt that is over. Where nothing
// waits for pods to be ready, nothing is said of those of the next one.
func (e *editor) podsGone() {
	switch c := apimeta.FindStatusCondition(e.status.Conditions, kueue.WorkloadPodsReady); {
	case c == nil:
	case c.Reason == ReasonPodsRefused:
		apimeta.RemoveStatusCondition(&e.status.Conditions, kueue.WorkloadPodsReady)
	default:
		e.set(kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, "Not all pods are ready or have succeeded")
	}
}

// ran adds the time since the admission to that of earlier ones. Whoever
// activates a Workload again whose time was over gives it all of it anew.
func (e *editor) ran() {
	conditions := e.status.Conditions
	admitted := apimeta.FindStatusCondition(conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue {
		return
	}
	evicted := apimeta.FindStatusCondition(conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Reason == kueue.WorkloadDeactivated+dueTo+kueue.WorkloadMaximumExecutionTimeExceeded {
		e.status.AccumulatedPastExecutionTimeSeconds = nil
		return
	}
	seconds := max(0, e.now.Sub(admitted.LastTransitionTime.Time)/time.Second)
	before := accumulated(e.status)
	e.status.AccumulatedPastExecutionTimeSeconds = new(plus(before, int32(min(seconds, math.MaxInt32))))
}

// accumulated is how many seconds a Workload has run in earlier admissions.
func accumulated(status *kueue.WorkloadStatus) int32 {
	if status.AccumulatedPastExecutionTimeSeconds == nil {
		return 0
	}
	return max(0, *status.AccumulatedPastExecutionTimeSeconds)
}

// ReasonSuspendedByHand is the reason of Evicted where a person has suspended a
// job that ran. Kueue has none, since it starts such a job again at once.
const ReasonSuspendedByHand = "SuspendedByHand"

// Evicted is the status of a Workload that has to stop. Its quota stays until it
// is Released.
func Evicted(w *kueue.Workload, reason, message string, now time.Time) *kueue.WorkloadStatus {
	e := edit(w, now)
	e.evict(reason, "", message)
	return e.status
}

// Released is the status of an evicted Workload once no pod of it runs any more:
// its quota goes back to the queue.
func Released(w *kueue.Workload, now time.Time) *kueue.WorkloadStatus {
	e := edit(w, now)
	reason, message := kueue.WorkloadQuotaReservedReasonPendingEvaluation, "The workload was evicted"
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		message = fmt.Sprintf("Evicted: %s", c.Message)
	}
	if !IsActive(w) {
		reason, message = kueue.WorkloadDeactivated, deactivatedMessage
	}
	e.release(reason, message)
	return e.status
}

// Finished is the status of a Workload whose job is over.
func Finished(w *kueue.Workload, reason, message string, now time.Time) *kueue.WorkloadStatus {
	e := edit(w, now)
	e.set(kueue.WorkloadFinished, metav1.ConditionTrue, reason, message)
	return e.status
}
