package placement

import (
	"maps"

	"github.com/muster-dev/muster/nodegroups"
)

// View is a tree with some Workloads added or taken away. It changes nothing of the tree, and is
// valid until that changes. Copies are made of what a trial touches only.
type View struct {
	tree *Tree
	// which tells whether it is of the tree as it is, or without Workloads.
	which int
	// used is the usage on top of the tree's, by the ID of the domain. taken is the usage of single nodes, by name, where domains have
	// several nodes.
	used, taken map[string]nodegroups.Resources
	// filed are the classes of those leaves, and cells those of their bottoms.
	filed   map[*leaf]*class
	cells   map[*bottom]cells
	classes classes
}

// View of the tree as it is.
func (t *Tree) View() *View {
	return &View{tree: t, used: map[string]nodegroups.Resources{}, taken: map[string]nodegroups.Resources{}, filed: map[*leaf]*class{},
		cells: map[*bottom]cells{}, classes: classes{}}
}

// Empty is the tree as if no Workload with an assignment were there.
func (t *Tree) Empty() *View {
	v := t.View()
	v.which = empty
	return v
}

// Clone returns a copy: changes of one are not seen in the other.
func (v *View) Clone() *View {
	out := *v
	out.used, out.taken = cloned(v.used), cloned(v.taken)
	out.filed, out.cells, out.classes = maps.Clone(v.filed), maps.Clone(v.cells), maps.Clone(v.classes)
	return &out
}

func cloned(amounts map[string]nodegroups.Resources) map[string]nodegroups.Resources {
	out := make(map[string]nodegroups.Resources, len(amounts))
	for id, v := range amounts {
		out[id] = v.Clone()
	}
	return out
}

// Use adds n times what these pods use, as Tree.Use does.
func (v *View) Use(domains []Domain, pod nodegroups.Resources, n int) {
	ids := v.add(v.used, domains, pod, n)
	if v.tree.hosts {
		v.file(ids)
	}
}

// UseNodes charges pods to the nodes that Placement.On names, so that later podSets of the same Workload do not get the same room. It does
// not charge their domains.
func (v *View) UseNodes(nodes []Domain, pod nodegroups.Resources) {
	v.file(v.add(v.taken, nodes, pod, 1))
}

func (v *View) add(to map[string]nodegroups.Resources, domains []Domain, pod nodegroups.Resources, n int) (ids []string) {
	requests := withPod(pod)
	for _, d := range domains {
		id := v.tree.id(d.Values)
		used := to[id]
		if used == nil {
			used = nodegroups.Resources{}
			to[id] = used
		}
		used.Add(requests, n*int(d.Count))
		ids = append(ids, id)
	}
	return ids
}

// file puts these leaves into the classes of the room that they have now.
func (v *View) file(ids []string) {
	for _, id := range ids {
		l := v.tree.leaves[id]
		if l == nil {
			continue
		}
		before, c := v.classOf(l), v.classes.of(l.kind, v.room(l))
		if c == before {
			continue
		}
		v.cells[l.bottom] = v.cellsOf(l.bottom).without(before, l.name).with(c, l.name)
		v.filed[l] = c
	}
}

// Fits reports whether the pods have room in exactly these domains.
func (v *View) Fits(domains []Domain, pod nodegroups.Resources) bool {
	requests := withPod(pod)
	for _, d := range domains {
		if v.timesIn(v.tree.id(d.Values), requests) < int64(d.Count) {
			return false
		}
	}
	return true
}

// timesIn returns how many pods fit into a domain of an assignment.
func (v *View) timesIn(id string, requests nodegroups.Resources) (fit int64) {
	if v.tree.hosts {
		l := v.tree.leaves[id]
		if l == nil {
			return 0
		}
		n, _ := times(v.room(l), requests)
		return int64(n)
	}
	b := v.tree.bottoms[id]
	if b == nil {
		return 0
	}
	for _, c := range v.cellsOf(b) {
		n, _ := times(c.room, requests)
		fit += int64(n) * int64(len(c.names))
	}
	n, _ := times(v.left(b), requests)
	return min(fit, int64(n))
}

func (v *View) room(l *leaf) nodegroups.Resources {
	room := v.tree.room(l, v.which)
	if v.tree.hosts {
		room.Sub(v.used[l.name], 1)
	} else {
		room.Sub(v.taken[l.name], 1)
	}
	return room
}

// left returns what the usage of assignments leaves of a domain with several nodes. kube-scheduler chooses the nodes of these pods within
// the domain, so the usage cannot be charged to a node. Kueue does the same.
func (v *View) left(b *bottom) nodegroups.Resources {
	left := b.free.Clone()
	if v.which == asItIs {
		left.Sub(v.tree.used[b.id], 1)
	}
	left.Sub(v.used[b.id], 1)
	return left
}

func (v *View) classOf(l *leaf) *class {
	if c := v.filed[l]; c != nil {
		return c
	}
	return l.class[v.which]
}

func (v *View) cellsOf(b *bottom) cells {
	if c, ok := v.cells[b]; ok {
		return c
	}
	return b.cells[v.which]
}
