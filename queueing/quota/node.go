package quota

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodegroups"
)

// Quota is what one node is given of one flavor and resource.
type Quota struct {
	Nominal int64
	// Borrowing is how much more than its subtree quota the node may use, Lending
	// how much of it others may use. Nil is no limit.
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
	height int
	cells  map[FlavorResource]*cell
}

// cell is what a node has of one flavor and resource.
type cell struct {
	quota Quota
	// subtree is the node's own quota and what its children lend.
	subtree int64
	// usage of a ClusterQueue is what its Workloads use, of a cohort what its
	// children use of what they have in common.
	usage total
	// unquoted says that neither the node nor a child was given any quota: the cell
	// is there only as long as something is used.
	unquoted bool
}

// NewNode returns a node without a parent that is given these quotas.
func NewNode(name string, weight int64, quotas map[FlavorResource]Quota) *Node {
	n := &Node{Name: name, Weight: weight, cells: make(map[FlavorResource]*cell, len(quotas))}
	for fr, q := range quotas {
		n.cells[fr] = &cell{quota: q, subtree: q.Nominal}
	}
	return n
}

// Join makes the node a child of the parent. All joins of a tree come before any
// usage in it, and those further down come first.
func (n *Node) Join(parent *Node) {
	n.parent = parent
	parent.height = max(parent.height, n.height+1)
	at, _ := slices.BinarySearchFunc(parent.children, n.Name, func(c *Node, name string) int {
		return strings.Compare(c.Name, name)
	})
	parent.children = slices.Insert(parent.children, at, n)
	for fr, c := range n.cells {
		p := parent.cell(fr)
		p.subtree, p.unquoted = nodegroups.Plus(p.subtree, c.lent()), false
	}
}

// Parent is nil for the root of a tree.
func (n *Node) Parent() *Node { return n.parent }

// Children are in the order of their names.
func (n *Node) Children() []*Node { return n.children }

// Root is the topmost node above n, or n.
func (n *Node) Root() *Node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// Path is n and all above it, the root last.
func (n *Node) Path() []*Node {
	var out []*Node
	for ; n != nil; n = n.parent {
		out = append(out, n)
	}
	return out
}

func (n *Node) cell(fr FlavorResource) *cell {
	c := n.cells[fr]
	if c == nil {
		c = &cell{unquoted: true}
		n.cells[fr] = c
	}
	return c
}

// lent is what others may use of the node's subtree quota.
func (c *cell) lent() int64 {
	if c.quota.Lending == nil {
		return c.subtree
	}
	return min(c.subtree, *c.quota.Lending)
}

// kept is what the node does not lend.
func (c *cell) kept() int64 {
	if lent := c.lent(); lent < c.subtree {
		return less(c.subtree, lent)
	}
	return 0
}

// drawn is what the node uses of what is common to its siblings.
func (c *cell) drawn() int64 { return max(0, c.usage.amount()-c.kept()) }

// Keys are what the node has a quota for or uses, in their order.
func (n *Node) Keys() []FlavorResource {
	return slices.SortedFunc(maps.Keys(n.cells), FlavorResource.Compare)
}

// Quota is what the node itself is given.
func (n *Node) Quota(fr FlavorResource) Quota {
	if c := n.cells[fr]; c != nil {
		return c.quota
	}
	return Quota{}
}

// Subtree is the node's quota with what its children lend.
func (n *Node) Subtree(fr FlavorResource) int64 {
	if c := n.cells[fr]; c != nil {
		return c.subtree
	}
	return 0
}

// Usage is what counts as used in the node: all of a ClusterQueue's, and of a
// cohort's what its children draw from the common pot.
func (n *Node) Usage(fr FlavorResource) int64 {
	if c := n.cells[fr]; c != nil {
		return c.usage.amount()
	}
	return 0
}

// Add counts usage in a ClusterQueue and in the cohorts that it draws on.
func (n *Node) Add(usage Amounts) {
	for fr, v := range usage {
		n.change(fr, func(t *total) { t.add(v) })
	}
}

// Sub takes back what Add counted.
func (n *Node) Sub(usage Amounts) {
	for fr, v := range usage {
		n.change(fr, func(t *total) { t.sub(v) })
	}
}

// change alters the usage of one node, and what its parents see of it: that is a
// function of the child's usage alone, so that changes undo each other exactly.
func (n *Node) change(fr FlavorResource, by func(*total)) {
	for {
		c := n.cell(fr)
		before := c.drawn()
		by(&c.usage)
		after := c.drawn()
		if c.unquoted && c.usage == (total{}) {
			delete(n.cells, fr)
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

// Unused is how much of what the node does not lend it does not use either. The
// parent does not see it.
func (n *Node) Unused(fr FlavorResource) int64 {
	c := n.cells[fr]
	if c == nil {
		return 0
	}
	return max(0, less(c.kept(), c.usage.amount()))
}

// Available is how much more the node could use now: negative where more is used
// than may be, such as after an admin has lowered a quota. What the node does not
// lend is there for it whatever others have run up.
func (n *Node) Available(fr FlavorResource) int64 {
	c := n.cells[fr]
	if c == nil {
		c = &cell{}
	}
	if n.parent == nil {
		return less(c.subtree, c.usage.amount())
	}
	unused, common := n.Unused(fr), n.parent.Available(fr)
	if c.quota.Borrowing != nil {
		common = min(common, less(c.borrowable(), c.drawn()))
	}
	if unused > 0 && common < 0 {
		return unused
	}
	return nodegroups.Plus(unused, common)
}

// Potential returns how much the node could use if all other nodes were unused.
func (n *Node) Potential(fr FlavorResource) int64 {
	c := n.cells[fr]
	if c == nil {
		c = &cell{}
	}
	if n.parent == nil {
		return c.subtree
	}
	common := n.parent.Potential(fr)
	if c.quota.Borrowing != nil {
		common = min(common, c.borrowable())
	}
	return nodegroups.Plus(c.kept(), common)
}

// Borrowable is the part of the potential that is not the node's own.
func (n *Node) Borrowable(fr FlavorResource) int64 {
	return max(0, less(n.Potential(fr), n.Subtree(fr)))
}

// borrowable is how much the node may draw from the common pot: what it put in,
// and its borrowing limit.
func (c *cell) borrowable() int64 { return nodegroups.Plus(c.lent(), *c.quota.Borrowing) }

// Fits says that the node could use this much more.
func (n *Node) Fits(usage Amounts) bool {
	for fr, v := range usage {
		if v > max(0, n.Available(fr)) {
			return false
		}
	}
	return true
}

// Free is the part of the amounts that the node could use now.
func (n *Node) Free(amounts Amounts) Amounts {
	out := Amounts{}
	for fr, v := range amounts {
		if free := min(v, n.Available(fr)); free > 0 {
			out[fr] = free
		}
	}
	return out
}

// Borrows says that the node would use more than its subtree quota if it used v
// more.
func (n *Node) Borrows(fr FlavorResource, v int64) bool {
	return nodegroups.Plus(n.Usage(fr), v) > n.Subtree(fr)
}

// Distance says from how far v more would have to be borrowed: 0 within the
// node's own quota, else the height of the smallest subtree around it whose quota
// has room for what those below it do not keep for themselves; that of the whole
// tree where none has.
func (n *Node) Distance(fr FlavorResource, v int64) int {
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

// Within reports whether v more is within the quota of the node or of a cohort around it that has others to reclaim it from.
func (n *Node) Within(fr FlavorResource, v int64) bool { return n.Distance(fr, v) < n.Root().height }
