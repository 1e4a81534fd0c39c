package preemption

import (
	"slices"

	"github.com/muster-dev/muster/queueing/quota"
)

// Decide chooses the Workloads to preempt so that the preemptor fits.
func Decide(q Preemptor) Result {
	t := newSimulation(&q)
	if len(t.short) == 0 {
		return t.result()
	}
	if why := t.beyond(); why != "" {
		return Result{BorrowingLevel: t.borrowingLevel(), Why: why}
	}
	t.collect()
	if why := t.lacking(); why != "" {
		return Result{BorrowingLevel: t.borrowingLevel(), Why: why, CandidatesTargeted: t.candidatesTargeted}
	}
	found := t.removeUntilFits() ||
		t.fitsWithoutAll() && t.search(slices.SortedFunc(slices.Values(t.candidates), order), t.fits)
	if !found {
		return Result{BorrowingLevel: t.borrowingLevel(), Why: t.protected(), CandidatesTargeted: t.candidatesTargeted}
	}
	t.fillBack()
	t.replaceWithSingle()
	return t.result()
}

// simulation removes candidates from the quota tree and restores it.
type simulation struct {
	*Preemptor
	// path is the ClusterQueue of the preemptor and all its ancestors.
	path []*quota.Node
	// short are the resources that do not fit without preemption.
	short []quota.FlavorResource
	// sources are the ClusterQueues that may have candidates: the preemptor's own first if it may, then nearer ones
	// before farther ones.
	sources []*candidateQueue
	// candidates are unordered.
	candidates []*candidate
	// candidatesTargeted reports whether Workloads were left out only because they are already preempted for others.
	candidatesTargeted bool
	// removed are the candidates that are currently removed from the tree. forbidBorrowing counts those of them that
	// forbid the preemptor to borrow.
	removed         []*candidate
	forbidBorrowing int
	// shares caches the shares of the nodes, including the preemptor.
	shares map[*quota.Node]quota.Share
}

func newSimulation(q *Preemptor) *simulation {
	t := &simulation{Preemptor: q, path: q.Queue.Path(), shares: map[*quota.Node]quota.Share{}}
	if q.Topology != nil && !q.Topology.Fits() {
		// The nodes are short, of whatever the preemptor needs.
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

// result returns the removed candidates as targets, and restores the tree.
func (t *simulation) result() Result {
	a := Result{BorrowingLevel: t.borrowingLevel()}
	chosen := slices.Clone(t.removed)
	t.restore()
	for _, c := range chosen {
		a.Targets = append(a.Targets, Target{c.Workload, t.reason(c)})
		t.remove(c)
	}
	t.restore()
	return a
}

// borrowingLevel returns the level at which the preemptor would borrow now.
func (t *simulation) borrowingLevel() int {
	d := 0
	for fr, v := range t.Needs {
		d = max(d, t.Queue.BorrowingLevel(fr, v))
	}
	return d
}

func (t *simulation) remove(c *candidate) {
	c.Queue.Sub(c.Usage)
	t.removed = append(t.removed, c)
	t.count(c, 1)
	if t.Topology != nil {
		t.Topology.SimulateRemoval(c.UID)
	}
}

// restoreOne undoes the removal of a candidate.
func (t *simulation) restoreOne(c *candidate) {
	i := slices.Index(t.removed, c)
	t.removed = slices.Delete(t.removed, i, i+1)
	t.addBack(c)
}

// addBack adds the usage of a removed candidate.
func (t *simulation) addBack(c *candidate) {
	c.Queue.Add(c.Usage)
	t.count(c, -1)
	if t.Topology != nil {
		t.Topology.RevertRemoval(c.UID)
	}
}

// count updates what depends on the removed candidates: n is 1 if c was removed and -1 if it was restored.
func (t *simulation) count(c *candidate, n int) {
	if c.forbidsBorrowing {
		t.forbidBorrowing += n
	}
	for at := c.Queue; at != nil; at = at.Parent() {
		delete(t.shares, at)
	}
}

func (t *simulation) removeAll(list []*candidate) {
	for _, c := range list {
		t.remove(c)
	}
}

// restore undoes the removal of all candidates.
func (t *simulation) restore() {
	for _, c := range t.removed {
		t.addBack(c)
	}
	t.removed = t.removed[:0]
}

// fits reports whether the preemptor fits now without borrowing more than it may.
func (t *simulation) fits() bool {
	return t.Queue.Fits(t.Needs) && (t.forbidBorrowing == 0 || !t.borrows()) && (t.Topology == nil || t.Topology.Fits())
}

// borrows reports whether the preemptor would borrow now.
func (t *simulation) borrows() bool {
	for fr, v := range t.Needs {
		if t.Queue.Borrows(fr, v) {
			return true
		}
	}
	return false
}

// isBorrowing reports whether the node borrows a resource that is short.
func (t *simulation) isBorrowing(n *quota.Node) bool {
	return slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return n.Borrows(fr, 0) })
}
