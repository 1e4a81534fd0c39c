package preemption

import (
	"slices"

	"github.com/muster-dev/muster/queueing/quota"
)

// Decide chooses the Workloads to preempt so that the preemptor fits.
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
	// path is the ClusterQueue of the preemptor and all above it.
	path []*quota.Node
	// short are the needs that do not fit without preemption.
	short []quota.FlavorResource
	// sources are the ClusterQueues that may have candidates: the preemptor's own one
	// first if it is among them, then nearer ones before farther ones.
	sources []*source
	// candidates are in no order.
	candidates []*candidate
	// claimed reports whether there would be more candidates if other Workloads had
	// not claimed them.
	claimed bool
	// gone are the candidates that are removed from the tree now. bound is how many of
	// them forbid the preemptor to borrow.
	gone  []*candidate
	bound int
	// shares are the current shares of the nodes, with the preemptor counted in.
	shares map[*quota.Node]quota.Share
}

func newTrial(q *Question) *trial {
	t := &trial{Question: q, path: q.Queue.Path(), shares: map[*quota.Node]quota.Share{}}
	if q.Room != nil && !q.Room.Fits() {
		// The nodes are short, of whatever it needs.
		t.short = q.Needs.Keys()
		return t
	}
	for _, fr := range q.Needs.Keys() {
		if q.Needs[fr] > max(0, q.Queue.Available(fr)) {
			t.short = append(t.short, fr)
		}
	}
	return t
}

// answer returns the removed candidates as targets, and restores the tree.
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

// distance returns from how far the preemptor would borrow now.
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
	if t.Room != nil {
		t.Room.Remove(c.UID)
	}
}

// putBack undoes the removal of a candidate.
func (t *trial) putBack(c *candidate) {
	i := slices.Index(t.gone, c)
	t.gone = slices.Delete(t.gone, i, i+1)
	t.stays(c)
}

// stays adds a removed candidate to the tree again.
func (t *trial) stays(c *candidate) {
	c.Queue.Add(c.Usage)
	t.count(c, -1)
	if t.Room != nil {
		t.Room.PutBack(c.UID)
	}
}

// count updates what depends on the removed candidates: n is 1 if c was removed and -1
// if it was put back.
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

// restore puts all candidates back.
func (t *trial) restore() {
	for _, c := range t.gone {
		t.stays(c)
	}
	t.gone = t.gone[:0]
}

// enough reports whether the preemptor fits now without borrowing more than it may.
func (t *trial) enough() bool {
	return t.Queue.Fits(t.Needs) && (t.bound == 0 || !t.borrows()) && (t.Room == nil || t.Room.Fits())
}

// borrows reports whether the preemptor would borrow now.
func (t *trial) borrows() bool {
	for fr, v := range t.Needs {
		if t.Queue.Borrows(fr, v) {
			return true
		}
	}
	return false
}

// over reports whether the node borrows a resource that is short.
func (t *trial) over(n *quota.Node) bool {
	return slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return n.Borrows(fr, 0) })
}
