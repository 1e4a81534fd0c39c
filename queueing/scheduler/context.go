package scheduler

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Cycle is one pass over the queues: what it decides on, beside the Cache.
type Cycle struct {
	cache  *cache.Cache
	checks checks.Evaluator
	rules  lifecycle.Rules
	now    time.Time
	plan   Planner
	// capacity is the provisioner's picture of the machines without what the cycle has
	// given out; nil if there is none.
	capacity *planner.Snapshot
	// upcomingAssumed says that capacity lacks what Workloads with quota will use.
	upcomingAssumed bool
	// released are the requests of this cycle's returning; nil before it is asked for.
	released []types.UID
}

// New returns a cycle at a time, and a control plane that answers since another. Plan and
// capacity may be nil: then there is no advice on machines. The advice is consumed as the
// cycle goes on, so the caller's stays as it is.
func New(c *cache.Cache, plan Planner, capacity *planner.Snapshot, now, answering time.Time) *Cycle {
	rules := lifecycle.NewRules(c, now, answering)
	return &Cycle{cache: c, checks: checks.NewEvaluator(c, now), rules: rules, now: now, plan: plan, capacity: capacity}
}

// Planner is the signature of provisioning.Plan.
type Planner func(*planner.Snapshot, state.Gang, state.Policy) planner.Verdict

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

// flavorOffset is how many flavors an attempt passes over that has no advice: as many
// as attempts have failed before it. So even then a stockout leads to the next
// flavor and not to the same one again.
func (s *Cycle) flavorOffset(q *cache.ClusterQueue, w *cache.Workload) int {
	state := w.Object.Status.RequeueState
	if s.capacity != nil || state == nil || state.Count == nil ||
		len(s.cache.CapacityChecks(cache.ChecksFor(q.Object, cache.FlavorsOf(q.Object)))) == 0 {
		return 0
	}
	return int(*state.Count)
}
