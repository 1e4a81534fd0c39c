package preemption

import (
	"slices"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// fairOrdering finds, from the root down, the node with the largest share among its siblings that still has candidates.
type fairOrdering struct {
	*simulation
	// candidatesByQueue are the remaining candidates of each ClusterQueue. They are sorted if sorted is set.
	candidatesByQueue map[*quota.Node][]*candidate
	sorted            map[*quota.Node]bool
	// remaining is the number of candidates below each node.
	remaining map[*quota.Node]int
}

func (t *simulation) newFairOrdering(candidates []*candidate) *fairOrdering {
	c := &fairOrdering{t, map[*quota.Node][]*candidate{}, map[*quota.Node]bool{}, map[*quota.Node]int{}}
	for _, one := range candidates {
		c.candidatesByQueue[one.queue] = append(c.candidatesByQueue[one.queue], one)
		c.note(one.queue, 1)
	}
	return c
}

func (c *fairOrdering) note(n *quota.Node, by int) {
	for ; n != nil; n = n.Parent() {
		c.remaining[n] += by
	}
}

// list returns the candidates of a ClusterQueue, in order.
func (c *fairOrdering) list(queue *quota.Node) []*candidate {
	if !c.sorted[queue] {
		slices.SortFunc(c.candidatesByQueue[queue], order)
		c.sorted[queue] = true
	}
	return c.candidatesByQueue[queue]
}

// take removes the first candidate of a ClusterQueue that the strategy allows, together with the protected ones before
// it, and returns them.
func (c *fairOrdering) take(queue *quota.Node, strategy kueueconfig.PreemptionStrategy) (chosen *candidate, protected []*candidate) {
	list := c.list(queue)
	i := slices.IndexFunc(list, func(one *candidate) bool { return c.allowedBy(one, strategy) })
	if i < 0 {
		i = len(list)
	} else {
		chosen = list[i]
	}
	c.candidatesByQueue[queue] = list[min(i+1, len(list)):]
	c.note(queue, len(c.candidatesByQueue[queue])-len(list))
	return chosen, list[:i]
}

// removeByShare removes candidates until the preemptor fits: evicted ones, then those of the largest share. Candidates
// that the first strategy protects are considered again by the next.
func (t *simulation) removeByShare() bool {
	running := func(c *candidate) bool { return !c.Evicted }
	for c := range inOrder(slices.DeleteFunc(slices.Clone(t.candidates), running)) {
		t.remove(c)
		if t.fits() {
			return true
		}
	}
	rest := slices.DeleteFunc(slices.Clone(t.candidates), func(c *candidate) bool { return !running(c) })
	root := t.path[len(t.path)-1]
	for _, strategy := range t.strategies() {
		// Removing Workloads of the own ClusterQueue lowers the share of the preemptor, so candidates that were
		// protected before may be allowed.
		for again := true; again; {
			contest := t.newFairOrdering(rest)
			rest, again = nil, false
			for queue := contest.largest(root); queue != nil; queue = contest.largest(root) {
				chosen, protected := contest.take(queue, strategy)
				rest = append(rest, protected...)
				if chosen == nil {
					continue
				}
				t.remove(chosen)
				if t.fits() {
					return true
				}
				again = again || chosen.distance == 0
			}
		}
	}
	t.restore()
	return false
}

// allowedBy reports whether this strategy alone allows the candidate now.
func (t *simulation) allowedBy(c *candidate, strategy kueueconfig.PreemptionStrategy) bool {
	return c.distance == 0 || t.within() || t.fair(strategy, c)
}

// largest returns the ClusterQueue to take from next, or nil if there are no candidates. Among equal shares a cohort
// comes first, then the ClusterQueue whose first candidate comes first.
func (c *fairOrdering) largest(n *quota.Node) *quota.Node {
	if len(n.Children()) == 0 {
		if c.remaining[n] == 0 {
			return nil
		}
		return n
	}
	var largest *quota.Node
	for _, child := range n.Children() {
		if c.remaining[child] > 0 && (slices.Contains(c.path, child) || c.isBorrowing(child)) && (largest == nil || c.before(child, largest)) {
			largest = child
		}
	}
	if largest == nil {
		return nil
	}
	if queue := c.largest(largest); queue != nil {
		return queue
	}
	// Everything below is within its nominal quota, and stays so.
	c.note(largest, -c.remaining[largest])
	return c.largest(n)
}

func (c *fairOrdering) before(a, b *quota.Node) bool {
	if by := c.share(a).Compare(c.share(b)); by != 0 {
		return by > 0
	}
	if cohort := len(a.Children()) > 0; cohort || len(b.Children()) > 0 {
		return cohort && len(b.Children()) == 0
	}
	return order(c.list(a)[0], c.list(b)[0]) < 0
}
