package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Run decides what can be decided now, as far as the budget of the cycle allows. If there is more, the cache wakes at once.
func (s *Cycle) Run() (out []lifecycle.Verdict) {
	if s.cache.Outdated {
		s.cache.Rebuild()
	}
	s.cache.RefreshDevices()
	s.cache.RequeueForNodes()
	s.cache.RereadDevices()
	s.cache.Sample(s.now)
	for _, w := range s.cache.Timers.Expired(s.now) {
		s.cache.MarkDue(w.Object.UID)
	}
	// Replace the map: iterating over one that was once large stays expensive.
	due := s.cache.Due
	s.cache.Due = map[types.UID]*cache.Workload{}
	for _, w := range cache.ByName(due) {
		if v := s.rules.Prioritize(w); v != nil {
			out = append(out, *v)
		}
		if w.Busy {
			continue // it is evaluated once the verdict is settled
		}
		delete(s.cache.Due, w.Object.UID)
		if v := s.next(w); v != nil {
			out = s.emit(out, v)
		}
	}
	s.startBudget()
	for _, t := range s.cache.Trees {
		t.ScheduleRequeue(s.now)
		if t.QuotaReleased || t.RefreshDue(s.now) || slices.ContainsFunc(t.Queues, (*cache.ClusterQueue).HasUnevaluated) {
			out = append(out, s.scheduleTree(t)...)
		}
		t.ScheduleRequeue(s.now)
	}
	s.cache.ResumeAt = time.Time{}
	if slices.ContainsFunc(s.cache.Order, func(q *cache.ClusterQueue) bool { return q.Deferred }) {
		s.cache.ResumeAt = s.now
	}
	return out
}

// next returns the next step of a Workload after an event, and adds it to its queue if it waits for quota.
func (s *Cycle) next(w *cache.Workload) *lifecycle.Verdict {
	s.cache.Timers.Set(w, time.Time{})
	if workload.IsFinished(w.Object) {
		return s.rules.DeleteStale(w, nil)
	}
	if v := s.rules.Orphaned(w); v != nil {
		return v
	}
	if by := s.cache.ReplacementOf(w); by != nil {
		if v := s.rules.FinishReplaced(w, by); v != nil || !workload.HasQuota(w.Object) {
			return v
		}
		// Until then the job runs with the quota of this slice.
	}
	if workload.HasQuota(w.Object) {
		return s.rules.Advance(w)
	}
	v, q := s.gate(w)
	if q != nil {
		q.Push(w)
	} else if w.Queue != nil {
		w.Queue.Remove(w)
	}
	return v
}
