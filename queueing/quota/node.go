package quota

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodegroups"
)

// Quota is the quota of one node for one flavor and resource.
type Quota struct {
	Nominal int64
	// Borrowing is how much more than its subtree quota the node may use, Lending how much of it other nodes may use.
	// Nil means no limit.
	Borrowing, Lending *int64
}

// Node is a cohort or a ClusterQueue.
type Node struct {
	Name string
	// Weight of the node among its siblings, in thousandths.
	Weight int64

	parent   *Node
	children []*Node
	// height is the number of edges down to the deepest leaf.
	height    int
	resources map[FlavorResource]*resourceNode
}

// resourceNode is the quota and usage of a node for one flavor and resource.
type resourceNode struct {
	quota Quota
	// subtree is the node's own quota and what its children lend.
	subtree int64
	// usage of a ClusterQueue is the usage of its Workloads. That of a cohort is what its children use beyond their
	// local quota.
	usage total
	// borrowers counts the children that borrow.
	borrowers int
	// unquoted: neither the node nor a child has quota. The entry exists only while there is usage.
	unquoted bool
}

// NewNode returns a node with these quotas and without a parent.
func NewNode(name string, weight int64, quotas map[FlavorResource]Quota) *Node {
	n := &Node{Name: name, Weight: weight, resources: make(map[FlavorResource]*resourceNode, len(quotas))}
	for fr, q := range quotas {
		n.resources[fr] = &resourceNode{quota: q, subtree: q.Nominal}
	}
	return n
}

// Join makes the node a child of the parent. Build a tree from the leaves up, and before any usage is added.
func (n *Node) Join(parent *Node) {
	n.parent = parent
	parent.height = max(parent.height, n.height+1)
	at, _ := slices.BinarySearchFunc(parent.children, n.Name, func(c *Node, name string) int {
		return strings.Compare(c.Name, name)
	})
	parent.children = slices.Insert(parent.children, at, n)
	for fr, c := range n.resources {
		p := parent.cell(fr)
		p.subtree, p.unquoted = nodegroups.Plus(p.subtree, c.lent()), false
	}
}

// Parent is nil for the root of a tree.
func (n *Node) Parent() *Node { return n.parent }

// Children are sorted by name.
func (n *Node) Children() []*Node { return n.children }

// Root is the root of the tree.
func (n *Node) Root() *Node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// Path is n and all its ancestors, the root last.
func (n *Node) Path() []*Node {
	var out []*Node
	for ; n != nil; n = n.parent {
		out = append(out, n)
	}
	return out
}

func (n *Node) cell(fr FlavorResource) *resourceNode {
	c := n.resources[fr]
	if c == nil {
		c = &resourceNode{unquoted: true}
		n.resources[fr] = c
	}
	return c
}

// lent is the part of the subtree quota that other nodes may use.
func (c *resourceNode) lent() int64 {
	if c.quota.Lending == nil {
		return c.subtree
	}
	return min(c.subtree, *c.quota.Lending)
}

// localQuota is the part of the subtree quota that the node does not lend.
func (c *resourceNode) localQuota() int64 {
	if lent := c.lent(); lent < c.subtree {
		return subtract(c.subtree, lent)
	}
	return 0
}

// drawn is the usage beyond the local quota.
func (c *resourceNode) drawn() int64 { return max(0, c.usage.amount()-c.localQuota()) }

// Keys returns the flavors and resources with quota or usage, sorted.
func (n *Node) Keys() []FlavorResource {
	return slices.SortedFunc(maps.Keys(n.resources), FlavorResource.Compare)
}

// Quota is the node's own quota.
func (n *Node) Quota(fr FlavorResource) Quota {
	if c := n.resources[fr]; c != nil {
		return c.quota
	}
	return Quota{}
}

// Subtree is the node's quota including what its children lend.
func (n *Node) Subtree(fr FlavorResource) int64 {
	if c := n.resources[fr]; c != nil {
		return c.subtree
	}
	return 0
}

// Usage is the usage of a ClusterQueue. That of a cohort is what its children use beyond their local quota.
func (n *Node) Usage(fr FlavorResource) int64 {
	if c := n.resources[fr]; c != nil {
		return c.usage.amount()
	}
	return 0
}

// Add adds usage to a ClusterQueue and to its cohorts.
func (n *Node) Add(usage Amounts) {
	for fr, v := range usage {
		n.change(fr, func(t *total) { t.add(v) })
	}
}

// Sub undoes Add.
func (n *Node) Sub(usage Amounts) {
	for fr, v := range usage {
		n.change(fr, func(t *total) { t.sub(v) })
	}
}

// change changes the usage of a node and of its ancestors. What an ancestor sees depends only on the usage of the
// child, so changes undo each other exactly.
func (n *Node) change(fr FlavorResource, by func(*total)) {
	for {
		c := n.cell(fr)
		before, borrowed := c.drawn(), c.borrows(0)
		by(&c.usage)
		after := c.drawn()
		if n.parent != nil {
			switch borrows := c.borrows(0); {
			case borrows && !borrowed:
				n.parent.cell(fr).borrowers++
			case borrowed && !borrows:
				n.parent.cell(fr).borrowers--
			}
		}
		if c.unquoted && c.usage == (total{}) {
			delete(n.resources, fr)
		}
		if n.parent == nil || before == after {
			return
		}
		n, by = n.parent, func(t *total) {
			t.add(after)
			t.sub(before)
		}
	}
}

// Unused is the unused part of the local quota. The parent does not see it.
func (n *Node) Unused(fr FlavorResource) int64 {
	c := n.resources[fr]
	if c == nil {
		return 0
	}
	return max(0, subtract(c.localQuota(), c.usage.amount()))
}

// Available is how much more the node could use now. It is negative if more is used than allowed, for example after an
// administrator lowered the quota.
func (n *Node) Available(fr FlavorResource) int64 {
	c := n.resources[fr]
	if c == nil {
		c = &resourceNode{}
	}
	if n.parent == nil {
		return subtract(c.subtree, c.usage.amount())
	}
	unused, common := n.Unused(fr), n.parent.Available(fr)
	if c.quota.Borrowing != nil {
		common = min(common, subtract(c.borrowable(), c.drawn()))
	}
	if unused > 0 && common < 0 {
		return unused
	}
	return nodegroups.Plus(unused, common)
}

// Potential returns how much the node could use if all other nodes were unused.
func (n *Node) Potential(fr FlavorResource) int64 {
	c := n.resources[fr]
	if c == nil {
		c = &resourceNode{}
	}
	if n.parent == nil {
		return c.subtree
	}
	common := n.parent.Potential(fr)
	if c.quota.Borrowing != nil {
		common = min(common, c.borrowable())
	}
	return nodegroups.Plus(c.localQuota(), common)
}

// Borrowable is the part of the potential that the node would borrow.
func (n *Node) Borrowable(fr FlavorResource) int64 {
	return max(0, subtract(n.Potential(fr), n.Subtree(fr)))
}

// borrowable is how much the node may use of the quota it shares with its siblings: what it lent plus its borrowing
// limit.
func (c *resourceNode) borrowable() int64 { return nodegroups.Plus(c.lent(), *c.quota.Borrowing) }

// Fits reports whether the node could use this much more.
func (n *Node) Fits(usage Amounts) bool {
	for fr, v := range usage {
		if v > max(0, n.Available(fr)) {
			return false
		}
	}
	return true
}

// Free returns the part of the amounts that the node could use now.
func (n *Node) Free(amounts Amounts) Amounts {
	out := Amounts{}
	for fr, v := range amounts {
		if free := min(v, n.Available(fr)); free > 0 {
			out[fr] = free
		}
	}
	return out
}

// Borrows reports whether the node would exceed its subtree quota if it used v more.
func (n *Node) Borrows(fr FlavorResource, v int64) bool {
	c := n.resources[fr]
	return c != nil && c.borrows(v) || c == nil && v > 0
}

func (c *resourceNode) borrows(v int64) bool { return nodegroups.Plus(c.usage.amount(), v) > c.subtree }

// OthersBorrow reports whether a node that is not on the path from n to the root borrows, while its parent is on it.
func (n *Node) OthersBorrow(fr FlavorResource) bool {
	for ; n.parent != nil; n = n.parent {
		others := 0
		if c := n.parent.resources[fr]; c != nil {
			others = c.borrowers
		}
		if n.Borrows(fr, 0) {
			others--
		}
		if others > 0 {
			return true
		}
	}
	return false
}

// BorrowingLevel returns how high in the tree v more would be borrowed: 0 within the node's own quota, otherwise the
// height of the smallest subtree that has the quota for it beyond the local quotas in it, or that of the whole tree if
// none has.
func (n *Node) BorrowingLevel(fr FlavorResource, v int64) int {
	if !n.Borrows(fr, v) || n.parent == nil {
		return 0
	}
	at := n
	for at.parent != nil {
		v = max(0, v-at.Unused(fr))
		at = at.parent
		if !at.Borrows(fr, v) {
			break
		}
	}
	return at.height
}

// WithinReclaimable reports whether v more is within the quota of the node, or of a cohort around it that can reclaim
// from other cohorts.
func (n *Node) WithinReclaimable(fr FlavorResource, v int64) bool {
	return n.BorrowingLevel(fr, v) < n.Root().height
}
