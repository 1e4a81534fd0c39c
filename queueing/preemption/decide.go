package preemption

import (
	"slices"

	"github.com/muster-dev/muster/queueing/quota"
)

// Decide says who has to go so that the newcomer fits.
func Decide(q Question) Answer {
	t := newTrial(&q)
	if len(t.short) == 0 {
		return t.answer()
	}
	if why := t.beyond(); why != "" {
		return Answer{Distance: t.distance(), Why: why}
	}
	t.collect()
	if why := t.lacking(); why != "" {
		return Answer{Distance: t.distance(), Why: why, Claimed: t.claimed}
	}
	found := t.ask() ||
		t.conceivable() && t.search(slices.SortedFunc(slices.Values(t.candidates), order), t.enough)
	if !found {
		return Answer{Distance: t.distance(), Why: t.protected(), Claimed: t.claimed}
	}
	t.spare()
	t.single()
	return t.answer()
}

// trial is a question while it is tried out on the tree.
type trial struct {
	*Question
	// path is the ClusterQueue of the newcomer and all above it.
	path []*quota.Node
	// short is what of the needs does not fit before anybody goes.
	short []quota.FlavorResource
	// sources are the ClusterQueues in which there may be somebody to go, the own
	// one first if it is among them, and those that are nearer before others.
	sources []*source
	// candidates are in no order.
	candidates []*candidate
	// claimed: there would be more, had others not claimed them.
	claimed bool
	// gone are those that are taken out of the tree now; bound is how many of them
	// forbid the newcomer to borrow.
	gone  []*candidate
	bound int
	// shares are those of the nodes now, with the newcomer in its place.
	shares map[*quota.Node]quota.Share
}

func newTrial(q *Question) *trial {
	t := &trial{Question: q, path: q.Queue.Path(), shares: map[*quota.Node]quota.Share{}}
	for _, fr := range q.Needs.Keys() {
		if q.Needs[fr] > max(0, q.Queue.Available(fr)) {
			t.short = append(t.short, fr)
		}
	}
	return t
}

// answer tells of those who are gone, and puts them back.
func (t *trial) answer() Answer {
	a := Answer{Distance: t.distance()}
	chosen := slices.Clone(t.gone)
	t.restore()
	for _, c := range chosen {
		a.Targets = append(a.Targets, Target{c.Workload, t.reason(c)})
		t.remove(c)
	}
	t.restore()
	return a
}

// distance is from how far the newcomer would borrow now.
func (t *trial) distance() int {
	d := 0
	for fr, v := range t.Needs {
		d = max(d, t.Queue.Distance(fr, v))
	}
	return d
}

func (t *trial) remove(c *candidate) {
	c.Queue.Sub(c.Usage)
	t.gone = append(t.gone, c)
	t.count(c, 1)
}

// putBack undoes the removal of one.
func (t *trial) putBack(c *candidate) {
	i := slices.Index(t.gone, c)
	t.gone = slices.Delete(t.gone, i, i+1)
	c.Queue.Add(c.Usage)
	t.count(c, -1)
}

// count notes that n such candidates more are gone.
func (t *trial) count(c *candidate, n int) {
	if c.bound {
		t.bound += n
	}
	for at := c.Queue; at != nil; at = at.Parent() {
		delete(t.shares, at)
	}
}

func (t *trial) removeAll(list []*candidate) {
	for _, c := range list {
		t.remove(c)
	}
}

// restore puts all back.
func (t *trial) restore() {
	for _, c := range t.gone {
		c.Queue.Add(c.Usage)
		t.count(c, -1)
	}
	t.gone = t.gone[:0]
}

// enough says that the newcomer fits now, by means that it may use.
func (t *trial) enough() bool {
	return t.Queue.Fits(t.Needs) && (t.bound == 0 || !t.borrows())
}

// borrows says that the newcomer would borrow now.
func (t *trial) borrows() bool {
	for fr, v := range t.Needs {
		if t.Queue.Borrows(fr, v) {
			return true
		}
	}
	return false
}

// over says that the node uses more than its own of something that is short.
func (t *trial) over(n *quota.Node) bool {
	return slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return n.Borrows(fr, 0) })
}
