package scheduler

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/queueing/cache"
)

// A cycle has a budget, so that a ClusterQueue whose Workloads are many and all different does not delay the others. The
// Workloads that it leaves are evaluated in the next cycles.

// DefaultBudget is 64 plans, which take 0.3 to 1 ms each, or 2048 evaluations without a plan.
const DefaultBudget = 64 * EffortOfPlan

const (
	effortOfEvaluation = 1
	// EffortOfPlan is that of a plan, a search for victims, or a placement in a Topology.
	EffortOfPlan = 32
)

// startBudget divides the budget among the ClusterQueues that did not get through their Workloads in the last cycle. Any
// other queue may spend as much as each of these.
func (s *Cycle) startBudget() {
	deferred := 0
	for _, q := range s.cache.Order {
		if q.Effort = 0; q.Deferred {
			deferred++
		}
	}
	s.share = max(1, s.budget/max(1, deferred))
	s.cache.Cycles++
}

// withinBudget reports whether the queue may evaluate its head. If it may not, either another Workload is the head now or
// none is left in this cycle. From half of its share on, a queue evaluates those first that were not evaluated for the
// longest time: otherwise, with quota released in every cycle, those at the end would never be evaluated. Whatever its share
// is, a queue may evaluate one Workload of both kinds in each cycle.
func (d *treeIterator) withinBudget(l *queueIterator) bool {
	s := d.s
	spent := func(share int) bool { return l.effort >= share || s.effort >= 2*s.budget }
	switch {
	case s.budget == 0 || l.effort == 0 || d.mustEvaluate(l.pending[0]):
		return true
	case !l.leastRecent && !isStrict(l.queue) && spent(s.share/2):
		l.leastRecent, l.effortInOrder = true, l.effort
		l.pending, l.localQueues = l.remaining(), nil
		slices.SortStableFunc(l.pending, func(a, b *cache.Workload) int {
			return cmp.Or(btoi(d.mustEvaluate(b))-btoi(d.mustEvaluate(a)), cmp.Compare(a.EvaluatedIn, b.EvaluatedIn))
		})
		return false
	case spent(s.share) && (!l.leastRecent || l.effort > l.effortInOrder):
		l.queue.Defer(l.remaining())
		l.pending, l.localQueues = nil, nil
		return false
	}
	return true
}

// mustEvaluate reports whether a Workload is evaluated whatever was spent: the quota of one whose victims stop, or whose
// machines are provisioned, is reserved again in every cycle.
func (d *treeIterator) mustEvaluate(w *cache.Workload) bool {
	return w.AwaitsVictims || len(d.s.cache.Requests.ProvisionFirst(w)) > 0
}
