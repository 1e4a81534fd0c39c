package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Release releases the quota of a Workload whose pods never ran with it.
func (s Rules) Release(w *cache.Workload, reason, message string) *Verdict {
	e := workload.Edit(w.Object, s.now)
	e.ResetChecks()
	e.Release(reason, message)
	return &Verdict{Workload: w, Action: Release, Reason: reason, Message: message, Status: e.Status}
}

// Evict evicts a Workload. If none of its pods can be running, its quota is released in the same write; pending is then
// the reason of QuotaReserved=False. It is evaluated again at requeueAt; zero is at once.
func (s Rules) Evict(w *cache.Workload, reason, message, pending string, requeueAt time.Time) *Verdict {
	return s.evictDueTo(w, reason, "", message, pending, requeueAt)
}

const (
	// A Workload that is preempted within soon after it got quota may be part of a preemption cycle. After turns
	// preemptions it backs off.
	soon  = 5 * time.Minute
	turns = 3
	// circlePause doubles with each further preemption, up to maxCirclePause.
	circlePause    = 10 * time.Second
	maxCirclePause = 30 * time.Minute
)

// Preempt evicts a Workload for another one. With fair sharing, preemption may be cyclic: the share of one queue
// preempts a second Workload, that of its queue a third, and the priority of the third preempts the first. So a
// Workload that was preempted several times, and again soon after it got quota, backs off exponentially.
func (s Rules) Preempt(w *cache.Workload, message string) *Verdict {
	var again time.Time
	before := workload.Evictions(w.Object, kueue.WorkloadEvictedByPreemption, "")
	if before >= turns && s.now.Sub(workload.ReservedSince(w.Object)) < soon {
		again = s.now.Add(workload.Backoff(circlePause, before-turns, maxCirclePause))
		message += fmt.Sprintf("; it was preempted %d times before, and is judged again at %s", before, again.UTC().Format(time.RFC3339))
	}
	return s.Evict(w, kueue.WorkloadEvictedByPreemption, message, kueue.WorkloadQuotaReservedReasonPendingEvaluation, again)
}

// evictDueTo is Evict for reasons that have underlying causes.
func (s Rules) evictDueTo(w *cache.Workload, reason, cause, message, pending string, requeueAt time.Time) *Verdict {
	e := workload.Edit(w.Object, s.now)
	e.Evict(reason, cause, message)
	s.checks.Recount(w.Object, e.Status)
	if !requeueAt.IsZero() {
		e.Pause(requeueAt)
	}
	if !workload.MayHold(w.Object) {
		why := message
		if pending == kueue.WorkloadDeactivated {
			why = workload.DeactivatedMessage
		}
		e.Release(pending, why)
	}
	if reason == kueue.WorkloadDeactivated && cause != "" {
		reason += workload.DueTo + cause
	}
	return &Verdict{Workload: w, Action: Evict, Reason: reason, Cause: cause, Message: message, Status: e.Status}
}
