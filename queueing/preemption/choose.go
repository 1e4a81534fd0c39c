package preemption

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// ask lets candidates go in their order until that is enough.
func (t *trial) ask() bool {
	if t.FairSharing != nil {
		return t.askFair()
	}
	all := func(*candidate) bool { return true }
	free := func(c *candidate) bool { return !c.bound }
	// Those who bind the newcomer to its own quota come first only where it has some
	// left and no other right: then others give back before its own have to go.
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
	return !t.mayBorrow() && !slices.ContainsFunc(t.candidates, func(c *candidate) bool { return c.rank() == 0 })
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

// conceivable says that it would be enough if all went, whether allowed or not.
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

// searchedSteps bounds a search to a few milliseconds. Among ten candidates it sees
// all there is.
const searchedSteps = 1 << 14

// search lets candidates go in one order after the other until it is done. It
// matters who goes first where one small victim brings a ClusterQueue back within
// its quota, and thereby protects a big one that would have been enough.
func (t *trial) search(candidates []*candidate, done func() bool) bool {
	steps := 0
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
			if steps++; steps > searchedSteps {
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

// spare puts back whom the newcomer can do without: the most important and most
// costly first, and those who go anyway last.
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
		// Without one of them, others may become dispensable: those who were there so
		// that it might go, or those who were there because the newcomer was bound.
		left := slices.DeleteFunc(chosen, t.dispensable)
		if len(left) == len(chosen) {
			return
		}
		chosen = left
	}
}

// dispensable puts one back if the others are enough and still allowed.
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

// supports says that others may be gone only because this one is: what is nearer
// to the newcomer counts in its share. Otherwise whoever stays only gives others
// of its own part of the tree more reason to go.
func (t *trial) supports(c *candidate) bool {
	return t.FairSharing != nil &&
		slices.ContainsFunc(t.gone, func(o *candidate) bool { return o.distance > c.distance })
}

// single lets one go in place of several, where less is lost by it and it has no
// better claim to stay than they.
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

// loss is what several take from others.
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

// covers says that the candidate is no worse a loss than those: another right to
// it, a higher priority or a higher cost would be. With fair sharing it is for the
// shares to say which ClusterQueue gives.
func (t *trial) covers(l loss, c *candidate) bool {
	return c.Cost <= l.cost && c.Priority <= l.priority && c.rank() <= l.rank &&
		(t.FairSharing == nil || slices.Contains(l.queues, c.queue))
}

// holder says that a candidate has all that is lacking now: what it gives the
// newcomer is no more than what it has.
func (t *trial) holder() func(*candidate) bool {
	lacking := map[quota.FlavorResource]int64{}
	for _, fr := range t.short {
		lacking[fr] = t.Needs[fr] - max(0, t.Queue.Available(fr))
	}
	return func(c *candidate) bool {
		return !slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return c.Usage[fr] < lacking[fr] })
	}
}
