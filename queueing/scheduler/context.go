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

// Cycle is one scheduling cycle over all queues.
type Cycle struct {
	cache  *cache.Cache
	checks checks.Evaluator
	rules  lifecycle.Rules
	now    time.Time
	plan   Planner
	// capacity is the snapshot of the provisioner without what this cycle has already assigned; nil if there is none.
	capacity *planner.Snapshot
	// upcomingAssumed reports whether assumeUpcoming has run.
	upcomingAssumed bool
	// toDelete caches requestsToDelete.
	toDelete []types.UID
	// budget is the effort of the cycle; zero is unlimited. share is that of one queue. effort is what was spent.
	budget, share, effort int
}

// New returns a cycle at the time now. Answering is since when the control plane answers. Plan and capacity may be nil;
// then the scheduler does not consider machines. The cycle works on a copy of capacity. A budget of zero is unlimited.
func New(c *cache.Cache, plan Planner, capacity *planner.Snapshot, now, answering time.Time, budget int) *Cycle {
	rules := lifecycle.NewRules(c, now, answering)
	return &Cycle{cache: c, checks: checks.NewEvaluator(c, now), rules: rules, now: now, plan: plan, capacity: capacity, budget: budget}
}

// Planner is the signature of provisioning.Plan.
type Planner func(*planner.Snapshot, state.Gang, state.Policy) planner.Verdict

// emit appends a verdict. A Workload whose verdict does more than report why it waits is not evaluated again until the
// verdict is settled.
func (s *Cycle) emit(out []lifecycle.Verdict, v *lifecycle.Verdict) []lifecycle.Verdict {
	w := v.Workload
	w.Busy = w.Busy || v.Acts()
	if v.Unobtained != nil {
		w.Unobtained = cache.Unobtained{Flavors: v.Unobtained, Until: s.now.Add(checks.StockoutPause)}
	}
	return append(out, *v)
}

// flavorOffset is the number of flavors that an attempt without a capacity snapshot skips: one for each failed attempt.
// So a stockout leads to the next flavor even then.
func (s *Cycle) flavorOffset(q *cache.ClusterQueue, w *cache.Workload) int {
	state := w.Object.Status.RequeueState
	if s.capacity != nil || state == nil || state.Count == nil ||
		len(s.cache.CapacityChecks(cache.ChecksFor(q.Object, cache.FlavorsOf(q.Object)))) == 0 {
		return 0
	}
	return int(*state.Count)
}
