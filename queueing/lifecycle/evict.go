package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Release takes the quota of a Workload back of which nothing has run on it.
func (s Rules) Release(w *cache.Workload, reason, message string) *Verdict {
	e := workload.Edit(w.Object, s.now)
	e.ResetChecks()
	e.Release(reason, message)
	return &Verdict{Workload: w, Action: Release, Reason: reason, Message: message, Status: e.Status}
}

// Evict stops a Workload. Its quota goes with the same write where nothing of it
// can be running; pending is then the reason of QuotaReserved=False. It is
// judged again from requeueAt on; zero is at once.
func (s Rules) Evict(w *cache.Workload, reason, message, pending string, requeueAt time.Time) *Verdict {
	return s.evictDueTo(w, reason, "", message, pending, requeueAt)
}

const (
	// soon is how long a Workload has quota at most before its preemption counts as one more turn of a circle, and
	// turns are how many there are before it pauses.
	soon  = 5 * time.Minute
	turns = 3
	// circlePause doubles with each further turn, up to maxCirclePause.
	circlePause    = 10 * time.Second
	maxCirclePause = 30 * time.Minute
)

// Preempt evicts a Workload for another one. With fair sharing the rules of preemption may lead in a circle: the
// share of a queue has one stop for another, which has a third stop, whose priority has the first stop. So a Workload
// that was preempted several times, and again soon after it had quota, pauses longer and longer.
func (s Rules) Preempt(w *cache.Workload, message string) *Verdict {
	var again time.Time
	before := workload.Evictions(w.Object, kueue.WorkloadEvictedByPreemption, "")
	if before >= turns && s.now.Sub(workload.ReservedSince(w.Object)) < soon {
		again = s.now.Add(workload.Backoff(circlePause, before-turns, maxCirclePause))
		message += fmt.Sprintf("; it was preempted %d times before, and is judged again at %s", before, again.UTC().Format(time.RFC3339))
	}
	return s.Evict(w, kueue.WorkloadEvictedByPreemption, message, kueue.WorkloadQuotaReservedReasonPendingEvaluation, again)
}

// evictDueTo is evict for reasons that have causes.
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
