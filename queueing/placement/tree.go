package placement

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// Tree has the nodes of a flavor by the domains of a Topology, and what Workloads with an assignment
// use of them. It is for one goroutine at a time.
type Tree struct {
	topology string
	levels   []string
	// hosts reports whether the lowest level is the node. Otherwise the nodes are below the lowest level: capacity is counted by node, while
	// requests and assignments name the levels of the Topology.
	hosts bool
	// keys are the labels by which nodes are told apart.
	keys []string

	nodes  map[string]*node
	leaves map[string]*leaf
	// unlabelled are nodes that are left out, with the first label of a level that each lacks.
	unlabelled map[string]string
	// used is what Workloads use, by the ID of the domain that their assignments name, which may not exist now.
	used map[string]nodegroups.Resources
	// bottoms are the domains above the leaves, by ID; one without values where there is no level above.
	bottoms map[string]*bottom
	shape   *shape
	kinds   map[string]*kind
	classes classes
}

// node is one of the nodes of a leaf.
type node struct {
	leaf *leaf
	free nodegroups.Resources
}

// leaf is a node, or several that share a value of the lowest level kubernetes.io/hostname.
type leaf struct {
	name   string
	bottom *bottom
	kind   *kind
	labels map[string]string
	nodes  int
	// free is what its nodes have, less what pods take that have no assignment.
	free nodegroups.Resources
	// class it is of, by whether Workloads with an assignment count.
	class [2]*class
}

// Whether what Workloads with an assignment use counts.
const (
	asItIs = iota
	empty
)

// bottom is a domain with leaves.
type bottom struct {
	id     string
	values []string
	// free is the sum of its leaves.
	free nodegroups.Resources
	// order among all, by values.
	order int
	cells [2]cells
}

// cells are the leaves of a bottom by class. A list that others may have is never changed, but
// replaced.
type cells []cell

type cell struct {
	*class
	// names in their order.
	names []string
}

// kind is what the taints and selected labels of nodes come to.
type kind struct {
	id     int
	labels map[string]string
	taints []corev1.Taint
}

// class is a number of leaves that are the same to every podSet.
type class struct {
	kind *kind
	room nodegroups.Resources
}

// classes by the text of their kind and room.
type classes map[string]*class

func (c classes) of(k *kind, room nodegroups.Resources) *class {
	text := make([]byte, 0, 64)
	text = strconv.AppendInt(text, int64(k.id), 10)
	for _, name := range room.Names() {
		text = append(append(append(text, ' '), name...), '=')
		text = strconv.AppendInt(text, room[name], 10)
	}
	known := c[string(text)]
	if known == nil {
		known = &class{kind: k, room: room}
		c[string(text)] = known
	}
	return known
}

// shape is the domains above the leaves.
type shape struct {
	// levels from the highest to that of the bottoms, each in the order of the domains' values.
	levels [][]*domain
	// bottoms in that order.
	bottoms []*bottom
}

type domain struct {
	values []string
	// order among those of its level.
	order int
	// children are domains of the next level; none where bottom has the leaves.
	children []*domain
	bottom   *bottom
}

// NewTree returns a tree without nodes. Nodes are told apart by their taints and these labels;
// podSets that select others cost by the number of nodes.
func NewTree(topology string, levels, keys []string) *Tree {
	return &Tree{
		topology: topology, levels: levels, hosts: levels[len(levels)-1] == corev1.LabelHostname, keys: slices.Sorted(slices.Values(keys)),
		nodes: map[string]*node{}, leaves: map[string]*leaf{}, unlabelled: map[string]string{}, used: map[string]nodegroups.Resources{},
		bottoms: map[string]*bottom{}, kinds: map[string]*kind{}, classes: classes{},
	}
}

// SetNode puts a node in, in place of the one of its name: free is what it has, less what pods take
// that have no assignment. A node that lacks the label of a level is left out.
func (t *Tree) SetNode(n *corev1.Node, free nodegroups.Resources) {
	t.DeleteNode(n.Name)
	values := t.valuesOf(n)
	if values == nil {
		t.unlabelled[n.Name] = t.levels[slices.IndexFunc(t.levels, func(level string) bool { _, has := n.Labels[level]; return !has })]
		return
	}
	name := n.Name
	if t.hosts {
		name, values = values[len(values)-1], values[:len(values)-1]
	}
	l := t.leaves[name]
	if l == nil {
		l = &leaf{name: name, bottom: t.bottom(values), kind: t.kindOf(n), labels: n.Labels, free: nodegroups.Resources{}}
		t.leaves[name] = l
	}
	t.nodes[n.Name] = &node{leaf: l, free: free}
	l.nodes++
	l.free.Add(free, 1)
	l.bottom.free.Add(free, 1)
	t.file(l)
}

// whyBare says why nodes of the flavor are in no domain, where there are such nodes and no domain.
func (t *Tree) whyBare() string {
	if len(t.unlabelled) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(t.unlabelled)))
	return fmt.Sprintf(": none of the flavor's %d nodes has the labels of all levels of Topology %q: node %s lacks %s; label the nodes, or "+
		"correct the levels", len(t.unlabelled), t.topology, first, t.unlabelled[first])
}

// valuesOf a node are those of all levels; nil where it lacks one.
func (t *Tree) valuesOf(n *corev1.Node) []string {
	values := make([]string, len(t.levels))
	for i, level := range t.levels {
		v, ok := n.Labels[level]
		if !ok {
			return nil
		}
		values[i] = v
	}
	return values
}

// Path of a domain of the lowest level has the values of all levels; nil where it is not there.
func (t *Tree) Path(d Domain) []string {
	if !t.hosts {
		if t.bottoms[t.id(d.Values)] == nil {
			return nil
		}
		return d.Values
	}
	l := t.leaves[t.id(d.Values)]
	if l == nil {
		return nil
	}
	return slices.Concat(l.bottom.values, []string{l.name})
}

// Rack of a domain of the lowest level is the domain of Occupancy that it is in; nil where it is not there.
func (t *Tree) Rack(d Domain) []string { return t.rack(t.Path(d)) }

func (t *Tree) rack(values []string) []string {
	if t.hosts && len(values) > 1 {
		return values[:len(values)-1]
	}
	return values
}

// DeleteNode takes a node out.
func (t *Tree) DeleteNode(name string) {
	delete(t.unlabelled, name)
	n := t.nodes[name]
	if n == nil {
		return
	}
	delete(t.nodes, name)
	n.leaf.free.Sub(n.free, 1)
	n.leaf.bottom.free.Sub(n.free, 1)
	if n.leaf.nodes--; n.leaf.nodes > 0 {
		t.file(n.leaf)
		return
	}
	delete(t.leaves, n.leaf.name)
	for i := range n.leaf.class {
		n.leaf.bottom.cells[i] = n.leaf.bottom.cells[i].without(n.leaf.class[i], n.leaf.name)
	}
	if len(n.leaf.bottom.cells[asItIs]) == 0 {
		delete(t.bottoms, n.leaf.bottom.id)
		t.shape = nil
	}
}

// Use adds n times what these pods use: 1 for a Workload that is admitted, -1 for one that is not
// any more.
func (t *Tree) Use(domains []Domain, pod nodegroups.Resources, n int) {
	for _, d := range domains {
		id := t.id(d.Values)
		used := t.used[id]
		if used == nil {
			used = nodegroups.Resources{}
			t.used[id] = used
		}
		used.Add(withPod(pod), n*int(d.Count))
		maps.DeleteFunc(used, func(_ corev1.ResourceName, v int64) bool { return v == 0 })
		if len(used) == 0 {
			delete(t.used, id)
		}
		if l := t.leaves[id]; l != nil && t.hosts {
			t.file(l)
		}
	}
}

// withPod is what a pod requests, itself included.
func withPod(pod nodegroups.Resources) nodegroups.Resources {
	out := pod.Clone()
	if out == nil {
		out = nodegroups.Resources{}
	}
	out[corev1.ResourcePods]++
	return out
}

// separator of values in IDs, as Kueue has it.
const separator = ","

// id of the domain of an assignment with these values. Where the domain is a node it is the last value alone.
func (t *Tree) id(values []string) string {
	if t.hosts {
		return values[len(values)-1]
	}
	return strings.Join(values, separator)
}

// lowest is the level of the leaves.
func (t *Tree) lowest() int {
	if t.hosts {
		return len(t.levels) - 1
	}
	return len(t.levels)
}

// room of the leaf, by whether Workloads count. Where domains have several nodes, usage is charged to the domain: see View.left.
func (t *Tree) room(l *leaf, which int) nodegroups.Resources {
	room := l.free.Clone()
	if which == asItIs && t.hosts {
		room.Sub(t.used[l.name], 1)
	}
	return room
}

// file puts the leaf into its classes.
func (t *Tree) file(l *leaf) {
	for which := range l.class {
		c := t.classes.of(l.kind, t.room(l, which))
		if c == l.class[which] {
			continue
		}
		l.bottom.cells[which] = l.bottom.cells[which].without(l.class[which], l.name).with(c, l.name)
		l.class[which] = c
	}
	t.collectClasses()
}

// collectClasses forgets classes that no leaf is of any more, now and then.
func (t *Tree) collectClasses() {
	if len(t.classes) <= 64+4*len(t.leaves) {
		return
	}
	kept := map[*class]bool{}
	for _, l := range t.leaves {
		kept[l.class[asItIs]], kept[l.class[empty]] = true, true
	}
	maps.DeleteFunc(t.classes, func(_ string, c *class) bool { return !kept[c] })
}

func (t *Tree) bottom(values []string) *bottom {
	id := strings.Join(values, separator)
	b := t.bottoms[id]
	if b == nil {
		b = &bottom{id: id, values: values, free: nodegroups.Resources{}}
		t.bottoms[id] = b
		t.shape = nil
	}
	return b
}

// kindOf returns the kind of a node.
func (t *Tree) kindOf(n *corev1.Node) *kind {
	var text strings.Builder
	k := &kind{id: len(t.kinds), labels: map[string]string{}}
	for _, key := range t.keys {
		if v, ok := n.Labels[key]; ok {
			k.labels[key] = v
			text.WriteString(key + "=" + v + "\n")
		}
	}
	for i := range n.Spec.Taints {
		taint := n.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		taint.TimeAdded = nil
		k.taints = append(k.taints, taint)
		text.WriteString(taint.Key + "=" + taint.Value + ":" + string(taint.Effect) + "\n")
	}
	if known := t.kinds[text.String()]; known != nil {
		return known
	}
	t.kinds[text.String()] = k
	return k
}

// domains are those above the leaves.
func (t *Tree) domains() *shape {
	if t.shape != nil {
		return t.shape
	}
	s := &shape{bottoms: slices.SortedFunc(maps.Values(t.bottoms), func(a, b *bottom) int { return slices.Compare(a.values, b.values) })}
	s.levels = make([][]*domain, max(1, t.lowest()))
	for i, b := range s.bottoms {
		b.order = i
		var parent *domain
		for level := range s.levels {
			values := b.values[:min(level+1, len(b.values))]
			list := s.levels[level]
			if n := len(list); n == 0 || !slices.Equal(list[n-1].values, values) {
				d := &domain{values: values, order: n}
				s.levels[level] = append(list, d)
				if parent != nil {
					parent.children = append(parent.children, d)
				}
			}
			parent = s.levels[level][len(s.levels[level])-1]
		}
		parent.bottom = b
	}
	t.shape = s
	return s
}

func (c cells) find(of *class) int {
	return slices.IndexFunc(c, func(o cell) bool { return o.class == of })
}

// with is the cells with one more name in the class.
func (c cells) with(of *class, name string) cells {
	out := slices.Clone(c)
	i := out.find(of)
	if i < 0 {
		return append(out, cell{of, []string{name}})
	}
	names := out[i].names
	at := sort.SearchStrings(names, name)
	out[i].names = slices.Concat(names[:at], []string{name}, names[at:])
	return out
}

// without is the cells without that name in the class.
func (c cells) without(of *class, name string) cells {
	i := c.find(of)
	if i < 0 {
		return c
	}
	out := slices.Clone(c)
	names := out[i].names
	at := sort.SearchStrings(names, name)
	if len(names) == 1 {
		return slices.Delete(out, i, i+1)
	}
	out[i].names = slices.Concat(names[:at], names[at+1:])
	return out
}

// Domain is a number of pods in one domain, by its values: those of all levels, or the node's name
// alone where that is the lowest.
type Domain struct {
	Values []string
	Count  int32
}
