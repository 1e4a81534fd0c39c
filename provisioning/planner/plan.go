package planner

import (
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/when"
)

// Plan says where a gang could run now, what to launch for it, or why not.
//
// Existing room comes before launches, also on a node that other gangs have booked as a
// whole, see beside, and so does room that others leave on machines that are being
// launched for them, see Upcoming. What is counted on that way is kept: no other gang is
// given it. Options are compared by the least wanted
// market they need, then price ÷ chance, then price, then number of machines, then
// region; so the order is total and the same input gives the same plan. Where the best
// would pass a budget it is the best of those that cost no more than budgets allow.
func Plan(s *Snapshot, gang state.Gang, policy state.Policy) Verdict {
	v := withinBudgets(s, &gang, policy, func(p state.Policy) Verdict { return Unbudgeted(s, gang, p) })
	if v.Outcome == Wait && policy.Class == state.AtomicScaleUp {
		v.Until = when.Earliest(v.Until, s.BackoffEnds(&gang))
	}
	return v
}

// Unbudgeted is the plan whatever budgets there are, without when to plan again.
func Unbudgeted(s *Snapshot, gang state.Gang, policy state.Policy) Verdict {
	pods, refusal := s.read(&gang)
	if refusal != nil {
		return *refusal
	}
	s = s.unkept()
	q, best := newQuery(s, &gang, pods, policy, asItIs).inTime()
	if best == nil || best.machines() > 0 {
		if v, ok := q.beside(); ok {
			return v
		}
	}
	if shared, ok := q.sharing(best); ok {
		return shared
	}
	if best != nil && !best.overPrice() {
		v := best.verdict()
		if v.Outcome == Launch && q.Upcoming != nil && q.Upcoming.shares {
			q.share(&v, q.Nodes)
		}
		return v
	}
	if policy.Class == state.CheckCapacity {
		return Verdict{Outcome: Wait, Reasons: q.explain(nil)}
	}
	// Before there is any group nothing is hopeless: they may be about to come.
	if len(s.Groups) > 0 {
		if ideal := newQuery(s, &gang, pods, policy, bestOfDays); ideal.hopeless() {
			if r, ok := ideal.undeclared(); ok {
				return Verdict{Outcome: Wait, Reasons: append([]Reason{r}, q.explain(nil)...)}
			}
			return Verdict{Outcome: Never, Reasons: ideal.explain(ideal.search())}
		}
	}
	return Verdict{Outcome: Wait, Reasons: q.explain(best)}
}

// Place puts a gang on the given nodes alone, launching nothing: how a launch
// whose nodes have all joined is turned into bookings.
func Place(nodes *nodeset.Set, gang state.Gang) (Verdict, bool) {
	p := state.DefaultPolicy(state.CheckCapacity)
	p.Split = v1alpha1.AnyZone
	v := Plan(&Snapshot{Nodes: nodes}, gang, p)
	return v, v.Outcome == Fits
}
