package preemption

import (
	"slices"

	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// contest finds, from the root down, the node that has the largest share among
// its siblings and still has candidates.
type contest struct {
	*trial
	// open are the candidates that are left, by ClusterQueue. They are in their order
	// if sorted is set.
	open   map[*quota.Node][]*candidate
	sorted map[*quota.Node]bool
	// left is how many candidates there are below each node.
	left map[*quota.Node]int
}

func (t *trial) newContest(candidates []*candidate) *contest {
	c := &contest{t, map[*quota.Node][]*candidate{}, map[*quota.Node]bool{}, map[*quota.Node]int{}}
	for _, one := range candidates {
		c.open[one.queue] = append(c.open[one.queue], one)
		c.note(one.queue, 1)
	}
	return c
}

func (c *contest) note(n *quota.Node, by int) {
	for ; n != nil; n = n.Parent() {
		c.left[n] += by
	}
}

// list returns the candidates of a ClusterQueue, in order.
func (c *contest) list(queue *quota.Node) []*candidate {
	if !c.sorted[queue] {
		slices.SortFunc(c.open[queue], order)
		c.sorted[queue] = true
	}
	return c.open[queue]
}

// take returns the first candidate of a ClusterQueue that the strategy allows, if there
// is one. It leaves the contest, and so do the protected ones before it.
func (c *contest) take(queue *quota.Node, strategy kueueconfig.PreemptionStrategy) (chosen *candidate, protected []*candidate) {
	list := c.list(queue)
	i := slices.IndexFunc(list, func(one *candidate) bool { return c.allowedBy(one, strategy) })
	if i < 0 {
		i = len(list)
	} else {
		chosen = list[i]
	}
	c.open[queue] = list[min(i+1, len(list)):]
	c.note(queue, len(c.open[queue])-len(list))
	return chosen, list[:i]
}

// askFair removes candidates until the preemptor fits: evicted ones, then those of the
// largest share. Candidates that the first strategy protects are considered again by
// the next.
func (t *trial) askFair() bool {
	running := func(c *candidate) bool { return !c.Evicted }
	for c := range inOrder(slices.DeleteFunc(slices.Clone(t.candidates), running)) {
		t.remove(c)
		if t.enough() {
			return true
		}
	}
	rest := slices.DeleteFunc(slices.Clone(t.candidates), func(c *candidate) bool { return !running(c) })
	root := t.path[len(t.path)-1]
	for _, strategy := range t.strategies() {
		// What its own ClusterQueue gives lowers the share of the preemptor's, so those that were protected before may go.
		for again := true; again; {
			contest := t.newContest(rest)
			rest, again = nil, false
			for queue := contest.largest(root); queue != nil; queue = contest.largest(root) {
				chosen, protected := contest.take(queue, strategy)
				rest = append(rest, protected...)
				if chosen == nil {
					continue
				}
				t.remove(chosen)
				if t.enough() {
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
func (t *trial) allowedBy(c *candidate, strategy kueueconfig.PreemptionStrategy) bool {
	return c.distance == 0 || t.within() || t.fair(strategy, c)
}

// largest returns the ClusterQueue to take from next, or nil if no candidate is left.
// Among equal shares a cohort comes first, then the ClusterQueue whose first candidate
// comes first.
func (c *contest) largest(n *quota.Node) *quota.Node {
	if len(n.Children()) == 0 {
		if c.left[n] == 0 {
			return nil
		}
		return n
	}
	var largest *quota.Node
	for _, child := range n.Children() {
		if c.left[child] > 0 && (slices.Contains(c.path, child) || c.over(child)) && (largest == nil || c.before(child, largest)) {
			largest = child
		}
	}
	if largest == nil {
		return nil
	}
	if queue := c.largest(largest); queue != nil {
		return queue
	}
	// All below is within its nominal quota, and stays so.
	c.note(largest, -c.left[largest])
	return c.largest(n)
}

func (c *contest) before(a, b *quota.Node) bool {
	if by := c.share(a).Compare(c.share(b)); by != 0 {
		return by > 0
	}
	if cohort := len(a.Children()) > 0; cohort || len(b.Children()) > 0 {
		return cohort && len(b.Children()) == 0
	}
	return order(c.list(a)[0], c.list(b)[0]) < 0
}
