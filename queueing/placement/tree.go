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

// Tree is the topology of a flavor: its nodes by domain, and the usage of topology assignments. It is not safe for
// concurrent use.
type Tree struct {
	topology string
	levels   []string
	// hosts reports whether the lowest level is kubernetes.io/hostname. Otherwise nodes are below the lowest level:
	// capacity is counted by node, while requests and assignments name the levels of the Topology.
	hosts bool
	// keys are the node labels that Workloads may select on. Nodes with equal values share a signature.
	keys []string

	nodes  map[string]*node
	leaves map[string]*leaf
	// unlabelled maps each node that lacks a label of a level to the first such level. These nodes are not part of the
	// tree.
	unlabelled map[string]string
	// usage is the usage of topology assignments, by the ID of their domain, which may no longer exist.
	usage map[string]nodegroups.Resources
	// lowestDomains are the parents of the leaves, by ID. If no level is above the leaves, there is one domain without
	// values.
	lowestDomains map[string]*lowestDomain
	shape         *shape
	signatures    map[string]*signature
	classes       classes
}

// node is one of the nodes of a leaf.
type node struct {
	leaf *leaf
	free nodegroups.Resources
}

// leaf is a node, or several nodes with the same value of the lowest level kubernetes.io/hostname.
type leaf struct {
	name      string
	parent    *lowestDomain
	signature *signature
	labels    map[string]string
	nodes     int
	// free is the allocatable capacity of its nodes, less the requests of pods without a topology assignment.
	free nodegroups.Resources
	// classes of the leaf, with and without the usage of topology assignments.
	classes [2]*class
}

// Whether the usage of topology assignments counts.
const (
	withAssignments = iota
	withoutAssignments
)

// lowestDomain is a domain whose children are leaves.
type lowestDomain struct {
	id     string
	values []string
	// free is the sum over its leaves.
	free nodegroups.Resources
	// order is its index among all lowest domains, sorted by values.
	order  int
	groups [2]classGroups
}

// classGroups are the leaves of a domain, grouped by class. Snapshots share these slices, so a slice is never modified
// in place.
type classGroups []classGroup

type classGroup struct {
	*class
	// names of the leaves, sorted.
	names []string
}

// signature is what decides whether a podSet may use a node: the selectable labels and the taints.
type signature struct {
	id     int
	labels map[string]string
	taints []corev1.Taint
}

// class is an equivalence class of leaves: they have the same signature and the same free capacity.
type class struct {
	signature *signature
	free      nodegroups.Resources
}

// classes by a text of their signature and free capacity.
type classes map[string]*class

func (c classes) of(k *signature, room nodegroups.Resources) *class {
	text := make([]byte, 0, 64)
	text = strconv.AppendInt(text, int64(k.id), 10)
	for _, name := range room.Names() {
		text = append(append(append(text, ' '), name...), '=')
		text = strconv.AppendInt(text, room[name], 10)
	}
	known := c[string(text)]
	if known == nil {
		known = &class{signature: k, free: room}
		c[string(text)] = known
	}
	return known
}

// shape is the hierarchy of the domains above the leaves.
type shape struct {
	// levels from the highest to that of the lowest domains, each sorted by values.
	levels [][]*domain
	// lowest domains, sorted by values.
	lowest []*lowestDomain
}

type domain struct {
	values []string
	// order is its index among the domains of its level.
	order int
	// children are the domains of the next level; empty for a lowest domain.
	children []*domain
	lowest   *lowestDomain
}

// NewTree returns a tree without nodes. The keys are the node labels that Workloads may select on. A podSet that
// selects another label is checked against every node, so it costs more.
func NewTree(topology string, levels, keys []string) *Tree {
	return &Tree{
		topology: topology, levels: levels, hosts: levels[len(levels)-1] == corev1.LabelHostname, keys: slices.Sorted(slices.Values(keys)),
		nodes: map[string]*node{}, leaves: map[string]*leaf{}, unlabelled: map[string]string{}, usage: map[string]nodegroups.Resources{},
		lowestDomains: map[string]*lowestDomain{}, signatures: map[string]*signature{}, classes: classes{},
	}
}

// SetNode adds or replaces a node. Free is its allocatable capacity, less the requests of pods without a topology
// assignment. A node that lacks the label of a level is left out.
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
		l = &leaf{name: name, parent: t.lowestDomain(values), signature: t.signatureOf(n), labels: n.Labels, free: nodegroups.Resources{}}
		t.leaves[name] = l
	}
	t.nodes[n.Name] = &node{leaf: l, free: free}
	l.nodes++
	l.free.Add(free, 1)
	l.parent.free.Add(free, 1)
	t.classify(l)
}

// noDomainsReason explains why a flavor with nodes has no domain: no node has the labels of all levels.
func (t *Tree) noDomainsReason() string {
	if len(t.unlabelled) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(t.unlabelled)))
	return fmt.Sprintf(": none of the flavor's %d nodes has the labels of all levels of Topology %q: node %s lacks %s; label the nodes, or "+
		"correct the levels", len(t.unlabelled), t.topology, first, t.unlabelled[first])
}

// valuesOf returns the node's values of all levels; nil if it lacks a label.
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

// Path returns the values of all levels of a lowest domain; nil if the domain does not exist.
func (t *Tree) Path(d Domain) []string {
	if !t.hosts {
		if t.lowestDomains[t.id(d.Values)] == nil {
			return nil
		}
		return d.Values
	}
	l := t.leaves[t.id(d.Values)]
	if l == nil {
		return nil
	}
	return slices.Concat(l.parent.values, []string{l.name})
}

// OccupancyDomain returns the domain of Occupancy that contains a lowest domain; nil if it does not exist.
func (t *Tree) OccupancyDomain(d Domain) []string { return t.occupancyDomain(t.Path(d)) }

func (t *Tree) occupancyDomain(values []string) []string {
	if t.hosts && len(values) > 1 {
		return values[:len(values)-1]
	}
	return values
}

// DeleteNode removes a node.
func (t *Tree) DeleteNode(name string) {
	delete(t.unlabelled, name)
	n := t.nodes[name]
	if n == nil {
		return
	}
	delete(t.nodes, name)
	n.leaf.free.Sub(n.free, 1)
	n.leaf.parent.free.Sub(n.free, 1)
	if n.leaf.nodes--; n.leaf.nodes > 0 {
		t.classify(n.leaf)
		return
	}
	delete(t.leaves, n.leaf.name)
	for i := range n.leaf.classes {
		n.leaf.parent.groups[i] = n.leaf.parent.groups[i].without(n.leaf.classes[i], n.leaf.name)
	}
	if len(n.leaf.parent.groups[withAssignments]) == 0 {
		delete(t.lowestDomains, n.leaf.parent.id)
		t.shape = nil
	}
}

// AddUsage adds the usage of these pods n times: 1 when a Workload is admitted, -1 when it no longer is.
func (t *Tree) AddUsage(domains []Domain, pod nodegroups.Resources, n int) {
	for _, d := range domains {
		id := t.id(d.Values)
		used := t.usage[id]
		if used == nil {
			used = nodegroups.Resources{}
			t.usage[id] = used
		}
		used.Add(withPod(pod), n*int(d.Count))
		maps.DeleteFunc(used, func(_ corev1.ResourceName, v int64) bool { return v == 0 })
		if len(used) == 0 {
			delete(t.usage, id)
		}
		if l := t.leaves[id]; l != nil && t.hosts {
			t.classify(l)
		}
	}
}

// withPod returns the request of a pod, including one of the resource pods.
func withPod(pod nodegroups.Resources) nodegroups.Resources {
	out := pod.Clone()
	if out == nil {
		out = nodegroups.Resources{}
	}
	out[corev1.ResourcePods]++
	return out
}

// separator of values in the ID of a domain; Kueue uses the same.
const separator = ","

// id returns the ID of an assignment's domain. If the lowest level is kubernetes.io/hostname, it is the last value.
func (t *Tree) id(values []string) string {
	if t.hosts {
		return values[len(values)-1]
	}
	return strings.Join(values, separator)
}

// leafLevel is the level of the leaves.
func (t *Tree) leafLevel() int {
	if t.hosts {
		return len(t.levels) - 1
	}
	return len(t.levels)
}

// freeCapacity returns the free capacity of a leaf. In a domain of several nodes, usage is charged to the domain
// instead; see Snapshot.freeInDomain.
func (t *Tree) freeCapacity(l *leaf, which int) nodegroups.Resources {
	room := l.free.Clone()
	if which == withAssignments && t.hosts {
		room.Sub(t.usage[l.name], 1)
	}
	return room
}

// classify moves a leaf to the class of its current free capacity.
func (t *Tree) classify(l *leaf) {
	for which := range l.classes {
		c := t.classes.of(l.signature, t.freeCapacity(l, which))
		if c == l.classes[which] {
			continue
		}
		l.parent.groups[which] = l.parent.groups[which].without(l.classes[which], l.name).with(c, l.name)
		l.classes[which] = c
	}
	t.collectClasses()
}

// collectClasses removes unused classes once there are many.
func (t *Tree) collectClasses() {
	if len(t.classes) <= 64+4*len(t.leaves) {
		return
	}
	kept := map[*class]bool{}
	for _, l := range t.leaves {
		kept[l.classes[withAssignments]], kept[l.classes[withoutAssignments]] = true, true
	}
	maps.DeleteFunc(t.classes, func(_ string, c *class) bool { return !kept[c] })
}

func (t *Tree) lowestDomain(values []string) *lowestDomain {
	id := strings.Join(values, separator)
	b := t.lowestDomains[id]
	if b == nil {
		b = &lowestDomain{id: id, values: values, free: nodegroups.Resources{}}
		t.lowestDomains[id] = b
		t.shape = nil
	}
	return b
}

// signatureOf returns the signature of a node.
func (t *Tree) signatureOf(n *corev1.Node) *signature {
	var text strings.Builder
	k := &signature{id: len(t.signatures), labels: map[string]string{}}
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
	if known := t.signatures[text.String()]; known != nil {
		return known
	}
	t.signatures[text.String()] = k
	return k
}

// domains returns the hierarchy of domains above the leaves.
func (t *Tree) domains() *shape {
	if t.shape != nil {
		return t.shape
	}
	byValues := func(a, b *lowestDomain) int { return slices.Compare(a.values, b.values) }
	s := &shape{lowest: slices.SortedFunc(maps.Values(t.lowestDomains), byValues)}
	s.levels = make([][]*domain, max(1, t.leafLevel()))
	for i, b := range s.lowest {
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
		parent.lowest = b
	}
	t.shape = s
	return s
}

func (c classGroups) find(of *class) int {
	return slices.IndexFunc(c, func(o classGroup) bool { return o.class == of })
}

// with returns a copy with the leaf added to the class.
func (c classGroups) with(of *class, name string) classGroups {
	out := slices.Clone(c)
	i := out.find(of)
	if i < 0 {
		return append(out, classGroup{of, []string{name}})
	}
	names := out[i].names
	at := sort.SearchStrings(names, name)
	out[i].names = slices.Concat(names[:at], []string{name}, names[at:])
	return out
}

// without returns a copy with the leaf removed from the class.
func (c classGroups) without(of *class, name string) classGroups {
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

// Domain is a number of pods in one domain. Values are those of all levels, or only the name of the node if the lowest
// level is kubernetes.io/hostname.
type Domain struct {
	Values []string
	Count  int32
}
