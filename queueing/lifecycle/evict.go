package lifecycle

import (
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

// evictDueTo is evict for reasons that have causes.
func (s Rules) evictDueTo(w *cache.Workload, reason, cause, message, pending string, requeueAt time.Time) *Verdict {
	e := workload.Edit(w.Object, s.now)
	e.Evict(reason, cause, message)
	s.checks.Recount(w.Object, e.Status)
	if !requeueAt.IsZero() {
		e.Pause(requeueAt)
	}
	if !workload.MayRun(w.Object) {
		why := message
		if pending == kueue.WorkloadDeactivated {
			why = workload.DeactivatedMessage
		}
		e.Release(pending, why)
	}
	if reason == kueue.WorkloadDeactivated && cause != "" {
		reason += workload.DueTo + cause
	}
	return &Verdict{Workload: w, Action: Evict, Reason: reason, Message: message, Status: e.Status}
}
