package provisioning

import (
	"time"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Plan says where a gang could run now, what to launch for it, or why not.
//
// Existing room comes before launches, and so does room that others leave on machines that
// are being launched for them, see Upcoming. Options are compared by the least wanted
// market they need, then price ÷ chance, then price, then number of machines, then
// region; so the order is total and the same input gives the same plan. Where the best
// would pass a budget it is the best of those that cost no more than budgets allow.
func Plan(s *Snapshot, gang Gang, policy Policy) Verdict {
	return withinBudgets(s, &gang, policy, unbudgeted(s, gang, policy))
}

// unbudgeted is the plan whatever budgets there are.
func unbudgeted(s *Snapshot, gang Gang, policy Policy) Verdict {
	pods, refusal := s.read(&gang)
	if refusal != nil {
		return *refusal
	}
	q := newQuery(s, &gang, pods, policy, asItIs)
	best := q.search()
	if shared, ok := q.sharing(best); ok {
		return shared
	}
	if best != nil && !best.overPrice() {
		return best.verdict()
	}
	if policy.Class == CheckCapacity {
		return Verdict{Outcome: Wait, Reasons: q.explain(nil)}
	}
	// Before there is any group nothing is hopeless: they may be about to come.
	if len(s.Groups) > 0 {
		if ideal := newQuery(s, &gang, pods, policy, bestOfDays); ideal.hopeless() {
			return Verdict{Outcome: Never, Reasons: ideal.explain(ideal.search())}
		}
	}
	reasons := q.explain(best)
	return Verdict{Outcome: Wait, Reasons: reasons, Until: q.until(reasons)}
}

// read is what the gang's pods ask for, or why that is not known.
func (s *Snapshot) read(gang *Gang) ([]*fit.Pod, *Verdict) {
	pods := make([]*fit.Pod, len(gang.PodSets))
	for i, ps := range gang.PodSets {
		p, refusal := ps.read(gang.Namespace, s.Objects)
		switch refusal.Kind {
		case fit.NotRefused:
			pods[i] = p
		case fit.Unready:
			return nil, &Verdict{Outcome: Wait, Reasons: []Reason{{Code: CodeUnready, Message: refusal.Message}}}
		default:
			return nil, &Verdict{Outcome: Never, Reasons: []Reason{{Code: CodeUnsupported, Message: refusal.Message}}}
		}
	}
	return pods, nil
}

// A query is about the snapshot as it is, or as it would be on the best of days:
// every group empty and willing, every node outside of groups free and open.
const (
	asItIs     = false
	bestOfDays = true
)

// hopeless says that the gang cannot be placed, nor one of its podSets alone, or
// only for too much money. Where each podSet alone fits, placing the largest
// first may just have missed the way to place all: that is no reason to give up.
func (q *query) hopeless() bool {
	best := q.search()
	if best != nil {
		return best.overPrice()
	}
	for i := range q.pods {
		if !q.alone(i).possible() {
			return true
		}
	}
	return false
}

// alone is the same question about one podSet only.
func (q *query) alone(i int) *query {
	return newQuery(q.Snapshot, q.gang, q.pods[i:i+1], q.policy, q.ideal)
}

// possible says that the gang could be placed within its price.
func (q *query) possible() bool {
	best := q.search()
	return best != nil && !best.overPrice()
}

// search returns the best option, or nil where there is none. Where the best one
// costs more than the policy allows, the cheapest is returned instead.
func (q *query) search() *trial {
	if best := q.best(byMarket); best == nil || !best.overPrice() {
		return best
	}
	return q.best(byPrice)
}

func (q *query) best(pref preference) *trial {
	var best *trial
	for _, r := range q.regions {
		t := newTrial(q, r, pref)
		if t.placeAll() && (best == nil || t.compare(best) < 0) {
			best = t
		}
	}
	return best
}

// until is when the first of the groups that hold the gang up may be tried again.
func (q *query) until(reasons []Reason) (at time.Time) {
	for _, r := range reasons {
		if !r.Until.IsZero() && (at.IsZero() || r.Until.Before(at)) {
			at = r.Until
		}
	}
	return at
}

// Place puts a gang on the given nodes alone, launching nothing: how a launch
// whose nodes have all joined is turned into bookings.
func Place(nodes *Nodes, gang Gang) (Verdict, bool) {
	p := DefaultPolicy(CheckCapacity)
	p.Split = v1alpha1.AnyZone
	v := Plan(&Snapshot{Nodes: nodes}, gang, p)
	return v, v.Outcome == Fits
}
