package planner

import (
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/when"
)

// Plan returns where a gang could run now, what to launch for it, or why it has to wait.
//
// Existing capacity is preferred to launches. It includes the room on a node that other gangs have booked as a whole, see beside, and the
// room that remains on machines that are being launched for other gangs, see Upcoming. A gang that counts on upcoming room keeps it: no
// other gang may use it. Options are compared by the least preferred capacity type that they need, then price ÷ chance, then price, then
// number of machines, then region. So the order is total and the same input gives the same plan. If the best option would exceed a budget,
// Plan returns the best of those within the budgets.
func Plan(s *Snapshot, gang state.Gang, policy state.Policy) Verdict {
	v := withinBudgets(s, &gang, policy, func(p state.Policy) Verdict { return Unbudgeted(s, gang, p) })
	if v.Outcome == Wait && policy.Class == state.AtomicScaleUp {
		v.Until = when.Earliest(v.Until, s.BackoffEnds(&gang))
	}
	return v
}

// Unbudgeted returns the plan without budgets, and without the time of the next plan.
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
	// Without any group, nothing is hopeless: groups may still be created.
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

// Place places a gang on the given nodes only, without a launch. It turns a launch whose nodes have all joined into bookings.
func Place(nodes *nodeset.Set, gang state.Gang) (Verdict, bool) {
	p := state.DefaultPolicy(state.CheckCapacity)
	p.Split = v1alpha1.AnyZone
	v := Plan(&Snapshot{Nodes: nodes}, gang, p)
	return v, v.Outcome == Fits
}
