package preemption

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// removeUntilFits removes candidates in order until the preemptor fits.
func (t *simulation) removeUntilFits() bool {
	if t.FairSharing != nil {
		return t.removeByShare()
	}
	all := func(*candidate) bool { return true }
	free := func(c *candidate) bool { return !c.forbidsBorrowing }
	// Candidates that forbid borrowing come first only if the preemptor has nominal quota left and no hierarchical
	// advantage. Other ClusterQueues then release quota before Workloads of its own ClusterQueue are preempted.
	if t.forbiddingFirst() {
		return t.removeMatching(all) || t.removeMatching(free)
	}
	return t.removeMatching(free) || t.removeMatching(all)
}

func (t *simulation) forbiddingFirst() bool {
	for _, fr := range t.short {
		if t.Queue.Usage(fr) >= t.Queue.Quota(fr).Nominal {
			return false
		}
	}
	return !MayBorrow(t.Policy.BorrowWithinCohort) && !slices.ContainsFunc(t.candidates, func(c *candidate) bool { return c.rank() == 0 })
}

func (t *simulation) removeMatching(which func(*candidate) bool) bool {
	for c := range inOrder(t.candidates) {
		if which(c) && t.allowed(c) {
			t.remove(c)
			if t.fits() {
				return true
			}
		}
	}
	t.restore()
	return false
}

// fitsWithoutAll reports whether the preemptor would fit without all candidates, whether or not their preemption is
// allowed.
func (t *simulation) fitsWithoutAll() bool {
	defer t.restore()
	for _, bound := range []bool{false, true} {
		for _, c := range t.candidates {
			if c.forbidsBorrowing == bound {
				t.remove(c)
			}
		}
		if t.fits() {
			return true
		}
	}
	return false
}

// searchedSteps bounds a search to a few milliseconds. A search among ten candidates is exhaustive. Topology
// assignments cost more than quota.
const (
	searchedSteps           = 1 << 14
	searchedStepsOnTopology = 1 << 8
)

// search removes candidates in one order after the other until done returns true. The order matters if a small victim
// brings a ClusterQueue back within its nominal quota, and thereby protects a large candidate that would have sufficed.
func (t *simulation) search(candidates []*candidate, done func() bool) bool {
	steps, most := 0, searchedSteps
	if t.Topology != nil {
		most = searchedStepsOnTopology
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
			t.restoreOne(c)
			left[i] = 1
		}
		return false
	}
	return from()
}

// fillBack restores the victims that the preemptor does not need: those of the highest priority and cost first, and
// evicted ones last.
func (t *simulation) fillBack() {
	chosen := slices.Clone(t.removed)
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
		// Restoring a victim may make others unneeded: they were removed so that it was allowed, or because it
		// forbade borrowing.
		left := slices.DeleteFunc(chosen, t.fillBackOne)
		if len(left) == len(chosen) {
			return
		}
		chosen = left
	}
}

// fillBackOne restores a victim if the others suffice and are still allowed, and reports whether it did.
func (t *simulation) fillBackOne(c *candidate) bool {
	before := slices.Clone(t.removed)
	t.restoreOne(c)
	if !t.fits() {
		t.remove(c)
		copy(t.removed, before)
		return false
	}
	if others := slices.Clone(t.removed); t.supports(c) {
		t.restore()
		if !t.search(others, func() bool { return len(t.removed) == len(others) }) {
			t.removeAll(before)
			return false
		}
	}
	return true
}

// supports reports whether other victims may be allowed only because this one is
// removed, since usage nearer to the preemptor counts in its share. In all other cases
// a Workload that stays only gives its own part of the tree a larger share.
func (t *simulation) supports(c *candidate) bool {
	return t.FairSharing != nil &&
		slices.ContainsFunc(t.removed, func(o *candidate) bool { return o.distance > c.distance })
}

// replaceWithSingle replaces several victims by one candidate, if that costs less and the candidate ranks no higher
// than they do.
func (t *simulation) replaceWithSingle() {
	several := slices.Clone(t.removed)
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
	holds := t.usesAllLacking()
	var best *candidate
	for _, c := range t.candidates {
		better := best == nil || c.Cost < best.Cost || c.Cost == best.Cost && order(c, best) < 0
		if c.Evicted || !better || !t.covers(worst, c) || !holds(c) || !t.allowed(c) {
			continue
		}
		t.remove(c)
		if t.fits() {
			best = c
		}
		t.restoreOne(c)
	}
	if best == nil {
		t.restore()
		t.removeAll(several)
		return
	}
	t.remove(best)
	t.fillBack()
}

// loss is the cost of preempting several victims.
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

// covers reports whether preempting the candidate is no worse than the loss: it has no higher rank, priority or cost.
// With fair sharing the shares decide which ClusterQueue releases quota, so the candidate must be in one of theirs.
func (t *simulation) covers(l loss, c *candidate) bool {
	return c.Cost <= l.cost && c.Priority <= l.priority && c.rank() <= l.rank &&
		(t.FairSharing == nil || slices.Contains(l.queues, c.queue))
}

// usesAllLacking returns a function that reports whether a candidate uses at least the quota that is still lacking. A
// candidate releases no more than it uses, so one that uses less is not enough alone.
func (t *simulation) usesAllLacking() func(*candidate) bool {
	lacking := map[quota.FlavorResource]int64{}
	for _, fr := range t.short {
		lacking[fr] = t.Needs[fr] - max(0, t.Queue.Available(fr))
	}
	return func(c *candidate) bool {
		return !slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return c.Usage[fr] < lacking[fr] })
	}
}
