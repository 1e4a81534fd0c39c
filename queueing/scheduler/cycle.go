package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// Cycle is one pass over the queues: what it decides on, beside the Cache.
type Cycle struct {
	cache  *cache.Cache
	checks checks.Evaluator
	rules  lifecycle.Rules
	now    time.Time
	plan   Planner
	// capacity is the provisioner's picture of the machines without what the cycle has
	// given out; nil if there is none.
	capacity *provisioning.Snapshot
	// upcomingAssumed says that capacity lacks what Workloads with quota will use.
	upcomingAssumed bool
	// released are the requests of this cycle's returning; nil before it is asked for.
	released []types.UID
}

// New returns a cycle at a time. Plan and capacity may be nil: then there is no advice
// on machines. The advice is consumed as the cycle goes on, so the caller's stays as it
// is.
func New(c *cache.Cache, plan Planner, capacity *provisioning.Snapshot, now time.Time) *Cycle {
	return &Cycle{cache: c, checks: checks.NewEvaluator(c, now), rules: lifecycle.NewRules(c, now), now: now, plan: plan, capacity: capacity}
}

// Run decides what can be decided now.
func (s *Cycle) Run() (out []lifecycle.Verdict) {
	if s.cache.Outdated {
		s.cache.Rebuild()
	}
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

// emit adds a verdict to those of the cycle. A Workload for which there is more to do
// than to tell it why it waits is not judged again before that is settled.
func (s *Cycle) emit(out []lifecycle.Verdict, v *lifecycle.Verdict) []lifecycle.Verdict {
	w := v.Workload
	w.Busy = w.Busy || v.Acts()
	if v.Unobtained != nil {
		w.Unobtained = cache.Unobtained{Flavors: v.Unobtained, Until: s.now.Add(checks.StockoutPause)}
	}
	return append(out, *v)
}

// next says what is to be done about a Workload that something has happened to,
// and puts it in line if it waits for quota.
func (s *Cycle) next(w *cache.Workload) *lifecycle.Verdict {
	s.cache.Timers.Set(w, time.Time{})
	switch {
	case workload.IsFinished(w.Object):
		return s.rules.DeleteStale(w, nil)
	case s.rules.Orphaned(w) != nil:
		return s.rules.Orphaned(w)
	case s.cache.ReplacementOf(w) != nil:
		return s.rules.FinishReplaced(w, s.cache.ReplacementOf(w))
	case workload.HasQuota(w.Object):
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

// Planner is the signature of provisioning.Plan.
type Planner func(*provisioning.Snapshot, provisioning.Gang, provisioning.Policy) provisioning.Verdict
