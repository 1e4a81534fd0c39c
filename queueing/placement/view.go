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
	// used is what is used beside the tree's, by the ID of the leaf.
	used map[string]nodegroups.Resources
	// filed are the classes of those leaves, and cells those of their bottoms.
	filed   map[*leaf]*class
	cells   map[*bottom]cells
	classes classes
}

// View of the tree as it is.
func (t *Tree) View() *View {
	return &View{tree: t, used: map[string]nodegroups.Resources{}, filed: map[*leaf]*class{}, cells: map[*bottom]cells{}, classes: classes{}}
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
	out.used = make(map[string]nodegroups.Resources, len(v.used))
	for id, used := range v.used {
		out.used[id] = used.Clone()
	}
	out.filed, out.cells, out.classes = maps.Clone(v.filed), maps.Clone(v.cells), maps.Clone(v.classes)
	return &out
}

// Use adds n times what these pods use, as Tree.Use does.
func (v *View) Use(domains []Domain, pod nodegroups.Resources, n int) {
	requests := withPod(pod)
	for _, d := range domains {
		id := v.tree.id(d.Values)
		used := v.used[id]
		if used == nil {
			used = nodegroups.Resources{}
			v.used[id] = used
		}
		used.Add(requests, n*int(d.Count))
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
		l := v.tree.leaves[v.tree.id(d.Values)]
		if l == nil {
			return false
		}
		if n, _ := times(v.room(l), requests); n < d.Count {
			return false
		}
	}
	return true
}

func (v *View) room(l *leaf) nodegroups.Resources {
	room := v.tree.room(l, v.which)
	room.Sub(v.used[l.id], 1)
	return room
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
