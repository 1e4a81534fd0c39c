package scheduler

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// reserve reserves the quota of an assignment.
func (s *Cycle) reserve(q *cache.ClusterQueue, w *cache.Workload, p *Assignment) *lifecycle.Verdict {
	if p.plan != nil {
		s.assumeMachines(w, p.plan)
	}
	names := cache.ChecksFor(q.Object, workload.AssignedFlavors(p.admission))
	e := workload.Edit(w.Object, s.now)
	e.Reserve(p.admission, s.rules.NewCheckStates(w, names))
	s.cache.Assume(w, q, p.Usage, cache.UsageOf(p.placed))
	s.cache.UpdateReplacement(w, true)
	s.cache.Penalize(q, w, p.addedUsage(), s.now)
	w.Busy = true
	s.cache.ExpectPods(w, p.admission)
	w.Reason, w.Message = "", ""
	s.cache.Timers.Set(w, time.Time{})
	return &lifecycle.Verdict{
		Workload: w, Action: lifecycle.Reserve, Status: e.Status, Reason: "QuotaReserved", Plan: p.plan,
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s, wait time since queued was %.0fs",
			q.Object.Name, max(0, s.now.Sub(w.Since).Seconds())),
	}
}
