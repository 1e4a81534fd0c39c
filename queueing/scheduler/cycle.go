package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Run decides what can be decided now.
func (s *Cycle) Run() (out []lifecycle.Verdict) {
	if s.cache.Outdated {
		s.cache.Rebuild()
	}
	s.cache.RequeueForNodes()
	s.cache.Sample(s.now)
	for _, w := range s.cache.Timers.Expired(s.now) {
		s.cache.MarkDue(w.Object.UID)
	}
	// A table that was large once would cost as much to go through ever after.
	due := s.cache.Due
	s.cache.Due = map[types.UID]*cache.Workload{}
	for _, w := range cache.ByName(due) {
		if v := s.rules.Prioritize(w); v != nil {
			out = append(out, *v)
		}
		if w.Busy {
			continue // once it is settled, it is looked at
		}
		delete(s.cache.Due, w.Object.UID)
		if v := s.next(w); v != nil {
			out = s.emit(out, v)
		}
	}
	for _, t := range s.cache.Trees {
		t.ScheduleRejudge(s.now)
		t.Released = t.Released || !t.RejudgeAt.IsZero() && !s.now.Before(t.RejudgeAt)
		if t.Released || slices.ContainsFunc(t.Queues, (*cache.ClusterQueue).HasUnjudged) {
			t.Released = t.Released || t.Claimed
			out = append(out, s.drain(t)...)
		}
		t.ScheduleRejudge(s.now)
	}
	return out
}

// next says what is to be done about a Workload that something has happened to,
// and puts it in line if it waits for quota.
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
		// The job runs by it until then.
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
