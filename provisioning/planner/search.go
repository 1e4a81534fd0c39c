package planner

import (
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// read is what the gang's pods ask for, or why that is not known.
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

// A query is about the snapshot as it is, or as it would be on the best of days:
// every group empty and willing, every node outside of groups free and open.
const (
	asItIs     = false
	bestOfDays = true
)

// hopeless reports whether the gang cannot be placed, nor one of its podSets alone, or
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

// possible reports whether the gang could be placed within its price.
func (q *query) possible() bool {
	_, best := q.inTime()
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

// inTime is the search for a gang that begins once all machines of the option have joined. Where
// some have to be launched, nodes that could end before the gang are left out, and the question
// is asked again.
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
