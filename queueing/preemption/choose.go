package preemption

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// ask removes candidates in their order until the preemptor fits.
func (t *trial) ask() bool {
	if t.FairSharing != nil {
		return t.askFair()
	}
	all := func(*candidate) bool { return true }
	free := func(c *candidate) bool { return !c.bound }
	// Candidates that forbid the preemptor to borrow come first only if it has nominal
	// quota left and no other claim. Other ClusterQueues then give back quota before
	// Workloads of its own ClusterQueue are preempted.
	if t.boundFirst() {
		return t.askAll(all) || t.askAll(free)
	}
	return t.askAll(free) || t.askAll(all)
}

func (t *trial) boundFirst() bool {
	for _, fr := range t.short {
		if t.Queue.Usage(fr) >= t.Queue.Quota(fr).Nominal {
			return false
		}
	}
	return !MayBorrow(t.Policy.BorrowWithinCohort) && !slices.ContainsFunc(t.candidates, func(c *candidate) bool { return c.rank() == 0 })
}

func (t *trial) askAll(which func(*candidate) bool) bool {
	for c := range inOrder(t.candidates) {
		if which(c) && t.allowed(c) {
			t.remove(c)
			if t.enough() {
				return true
			}
		}
	}
	t.restore()
	return false
}

// conceivable reports whether the preemptor would fit without all candidates, whether
// or not their preemption is allowed.
func (t *trial) conceivable() bool {
	defer t.restore()
	for _, bound := range []bool{false, true} {
		for _, c := range t.candidates {
			if c.bound == bound {
				t.remove(c)
			}
		}
		if t.enough() {
			return true
		}
	}
	return false
}

// searchedSteps bounds a search to a few milliseconds. A search among ten candidates is
// exhaustive. To look at the nodes costs more than to look at quota.
const (
	searchedSteps       = 1 << 14
	searchedStepsOnRoom = 1 << 8
)

// search removes candidates in one order after the other until it is done. The order
// matters if a small victim brings a ClusterQueue back within its nominal quota, and
// thereby protects a large candidate that would have been enough.
func (t *trial) search(candidates []*candidate, done func() bool) bool {
	steps, most := 0, searchedSteps
	if t.Room != nil {
		most = searchedStepsOnRoom
	}
	seen := map[string]bool{}
	left := bytes.Repeat([]byte{1}, len(candidates))
	var from func() bool
	from = func() bool {
		if done() {
			return true
		}
		if seen[string(left)] {
			return false
		}
		seen[string(left)] = true
		for i, c := range candidates {
			if left[i] == 0 {
				continue
			}
			if steps++; steps > most {
				return false
			}
			if !t.allowed(c) {
				continue
			}
			left[i] = 0
			t.remove(c)
			if from() {
				return true
			}
			t.putBack(c)
			left[i] = 1
		}
		return false
	}
	return from()
}

// spare puts back the victims that the preemptor does not need: those of the highest
// priority and cost first, and evicted ones last.
func (t *trial) spare() {
	chosen := slices.Clone(t.gone)
	slices.Reverse(chosen)
	slices.SortStableFunc(chosen, func(a, b *candidate) int {
		switch {
		case a.Evicted != b.Evicted && a.Evicted:
			return 1
		case a.Evicted != b.Evicted:
			return -1
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.Cost, a.Cost))
	})
	for {
		// Once a victim is put back, others may become dispensable: they were removed
		// so that it was allowed, or because it forbade the preemptor to borrow.
		left := slices.DeleteFunc(chosen, t.dispensable)
		if len(left) == len(chosen) {
			return
		}
		chosen = left
	}
}

// dispensable puts a victim back if the others are enough and still allowed, and
// reports whether it did.
func (t *trial) dispensable(c *candidate) bool {
	before := slices.Clone(t.gone)
	t.putBack(c)
	if !t.enough() {
		t.remove(c)
		copy(t.gone, before)
		return false
	}
	if others := slices.Clone(t.gone); t.supports(c) {
		t.restore()
		if !t.search(others, func() bool { return len(t.gone) == len(others) }) {
			t.removeAll(before)
			return false
		}
	}
	return true
}

// supports reports whether other victims may be allowed only because this one is
// removed, since usage nearer to the preemptor counts in its share. In all other cases
// a Workload that stays only gives its own part of the tree a larger share.
func (t *trial) supports(c *candidate) bool {
	return t.FairSharing != nil &&
		slices.ContainsFunc(t.gone, func(o *candidate) bool { return o.distance > c.distance })
}

// single replaces several victims by one candidate, if that costs less and the
// candidate ranks no higher than they do.
func (t *trial) single() {
	several := slices.Clone(t.gone)
	var anyway []*candidate
	var worst loss
	for _, c := range several {
		if c.Evicted {
			anyway = append(anyway, c)
		} else {
			worst.add(c)
		}
	}
	if len(several)-len(anyway) < 2 {
		return
	}
	t.restore()
	t.removeAll(anyway)
	holds := t.holder()
	var best *candidate
	for _, c := range t.candidates {
		better := best == nil || c.Cost < best.Cost || c.Cost == best.Cost && order(c, best) < 0
		if c.Evicted || !better || !t.covers(worst, c) || !holds(c) || !t.allowed(c) {
			continue
		}
		t.remove(c)
		if t.enough() {
			best = c
		}
		t.putBack(c)
	}
	if best == nil {
		t.restore()
		t.removeAll(several)
		return
	}
	t.remove(best)
	t.spare()
}

// loss is what is lost by preempting several victims.
type loss struct {
	cost     int64
	rank     int
	priority int32
	queues   []*quota.Node
}

func (l *loss) add(c *candidate) {
	if l.queues == nil {
		l.priority = c.Priority
	}
	l.cost = nodegroups.Plus(l.cost, max(0, c.Cost))
	l.rank, l.priority = max(l.rank, c.rank()), max(l.priority, c.Priority)
	l.queues = append(l.queues, c.queue)
}

// covers reports whether preempting the candidate is no worse than the loss: it has no
// higher rank, priority or cost. With fair sharing the shares decide which ClusterQueue
// gives, so it is in one of theirs.
func (t *trial) covers(l loss, c *candidate) bool {
	return c.Cost <= l.cost && c.Priority <= l.priority && c.rank() <= l.rank &&
		(t.FairSharing == nil || slices.Contains(l.queues, c.queue))
}

// holder returns a function that reports whether a candidate uses all that is lacking
// now. Its removal frees no more than that.
func (t *trial) holder() func(*candidate) bool {
	lacking := map[quota.FlavorResource]int64{}
	for _, fr := range t.short {
		lacking[fr] = t.Needs[fr] - max(0, t.Queue.Available(fr))
	}
	return func(c *candidate) bool {
		return !slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return c.Usage[fr] < lacking[fr] })
	}
}
