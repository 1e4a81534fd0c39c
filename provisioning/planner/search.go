package planner

import (
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// read returns the demand of the gang's pods, or a verdict if it is unknown.
func (s *Snapshot) read(gang *state.Gang) ([]*fit.Pod, *Verdict) {
	pods := make([]*fit.Pod, len(gang.PodSets))
	for i, ps := range gang.PodSets {
		p, refusal := ps.Read(gang.Namespace, s.Objects)
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

// A query is about the current snapshot, or about an ideal one: every group is empty and willing, every node outside of groups is free and
// open.
const (
	asItIs     = false
	bestOfDays = true
)

// hopeless reports whether neither the gang nor one of its podSets alone can ever be placed, or only at too high a price. If each podSet
// fits alone, the search may have missed a way to place them all, which is no reason to give up.
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

// alone returns the query for one podSet only.
func (q *query) alone(i int) *query {
	return newQuery(q.Snapshot, q.gang, q.pods[i:i+1], q.policy, q.ideal)
}

// possible reports whether the gang could be placed within its price limit.
func (q *query) possible() bool {
	_, best := q.inTime()
	return best != nil && !best.overPrice()
}

// search returns the best option, or nil for none. If the best one costs more than the policy allows, it returns the cheapest.
func (q *query) search() *trial {
	if best := q.best(byCapacityType); best == nil || !best.overPrice() {
		return best
	}
	return q.best(byPrice)
}

// inTime searches for a gang that starts when all machines of the option have joined. If some have to be launched, it searches again
// without the nodes that could end before the gang.
func (q *query) inTime() (*query, *trial) {
	best := q.search()
	for q.ending && best != nil && best.joinWithin() > q.starts {
		later := *q
		later.starts, later.regions = best.joinWithin(), nil
		later.collect()
		q, best = &later, later.search()
	}
	return q, best
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
