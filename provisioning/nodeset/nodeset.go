// Package nodeset indexes the nodes of plans by what distinguishes them for gangs.
package nodeset

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// Set is a set of nodes in the order of their names. It keeps like nodes
// together in classes, so that a plan costs by the number of classes and not of
// nodes, and a change costs by what changed. Clone is cheap: copies share what
// neither changes. What reads a set only may do so from many goroutines.
type Set struct {
	byName *btree.BTreeG[*filed]
	// owned indexes nodes by their owners.
	owned *btree.BTreeG[ownership]
	// room has the nodes as they are; best as they would be on the best of days:
	// free and open.
	room, best *classes
	// keys are the labels that distinguish nodes, in order. Others, above all the host name, differ from node to node, and few pods
	// select on them.
	keys []string
	dims *dims
	// kinds by their text. Only changes use it.
	kinds map[string]*Kind
	// changes is the number of changes.
	changes int
}

// filed is a node with its place in the index; a class is nil if it is in none.
type filed struct {
	node       *state.Node
	room, best *Class
}

// ownership says that a node concerns an owner: see the functions that return owners.
type ownership struct {
	owner string
	node  *state.Node
}

// Awaiting owns the nodes that are booked for pods that have not all come.
const Awaiting = "Awaiting"

// Taken owns the nodes that Muster has cordoned and that run pods without a booking.
const Taken = "taken"

// repelling owns the nodes with pods that may keep away others of the namespace; empty is of any.
func repelling(namespace string) string { return "repelling/" + namespace }

func bookedBy(uid types.UID) string { return "booked/" + string(uid) }

// KeyedBy owns the nodes with the booking label of the key.
func KeyedBy(key string) string { return "key/" + key }

func launchedBy(token string) string { return "launch/" + token }

func launchedFor(uid types.UID) string { return "launched-for/" + string(uid) }

// HostNamed owns the nodes of that name or host name.
func HostNamed(name string) string { return "host/" + name }

func owners(n *state.Node) (out []string) {
	for i := range n.Labelled {
		b := &n.Labelled[i]
		if b.UID != "" {
			out = append(out, bookedBy(b.UID))
		}
		out = append(out, KeyedBy(b.Key))
	}
	if n.Launch != "" {
		out = append(out, launchedBy(state.AttemptToken(n.Launch)), launchedFor(state.TokenUID(n.Launch)))
	}
	if len(n.Bookings) > 0 {
		out = append(out, Awaiting)
	}
	if len(n.UnbookedPods) > 0 {
		out = append(out, Taken)
	}
	for _, r := range n.Running {
		if namespace, repels := r.Repels(); repels && !slices.Contains(out, repelling(namespace)) {
			out = append(out, repelling(namespace))
		}
	}
	out = append(out, HostNamed(n.Name))
	if host := n.Labels[corev1.LabelHostname]; host != "" && host != n.Name {
		out = append(out, HostNamed(host))
	}
	return out
}

// dims numbers the resources. It is never changed, only replaced by a longer one.
type dims struct {
	names []corev1.ResourceName
	index map[corev1.ResourceName]int
}

// Kind is what the constraints of a pod depend on: the labels that pods select on, the taints, and the end of the machine.
type Kind struct {
	// text is equal for equal kinds only.
	text   string
	Group  string
	Labels map[string]string
	Taints []corev1.Taint
	// EndsAt is when the cloud ends the machines by itself; zero for never.
	EndsAt time.Time
}

// Class is a set of nodes that are equal for every plan that does not refer to one of them by name.
type Class struct {
	*Kind
	// room is the free amount of resources by their Index; missing ones at the end are 0.
	room []int64
	// Devices are all that are free on a node. They, cpu and memory are the first things that classes
	// are ordered by, rest is everything else.
	Devices, cpu, memory int64
	rest                 string
	// Claimable contains the devices that pods can claim on a node; nil for none.
	Claimable fit.Devices
}

// order is a total order of classes, independent of their creation.
func (c *Class) order(o *Class) int {
	if c == o {
		return 0
	}
	return cmp.Or(
		cmp.Compare(c.Devices, o.Devices),
		cmp.Compare(c.cpu, o.cpu),
		cmp.Compare(c.memory, o.memory),
		cmp.Compare(c.rest, o.rest),
		cmp.Compare(c.text, o.text),
	)
}

// classes are the nodes by class.
type classes struct {
	counts  *btree.BTreeG[counted]
	members *btree.BTreeG[member]
}

type counted struct {
	*Class
	count int
}

type member struct {
	*Class
	node *state.Node
}

// degree of the trees: nodes of 2*degree entries are copied when they change.
const degree = 16

// DefaultKeys are labels that pods often select on. Nodes of one group have them
// in common.
var DefaultKeys = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable,
	v1alpha1.NodeGroupLabel, v1alpha1.CapacityTypeLabel,
}

// New returns an empty set whose nodes are distinguished by the given labels and the default ones.
func New(keys ...string) *Set {
	keys = slices.Concat(DefaultKeys, keys)
	slices.Sort(keys)
	return &Set{
		byName: btree.NewG(degree, func(a, b *filed) bool { return a.node.Name < b.node.Name }),
		owned: btree.NewG(degree, func(a, b ownership) bool {
			return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.node.Name, b.node.Name)) < 0
		}),
		room:  newClasses(),
		best:  newClasses(),
		keys:  slices.Compact(keys),
		dims:  &dims{index: map[corev1.ResourceName]int{}},
		kinds: map[string]*Kind{},
	}
}

func newClasses() *classes {
	return &classes{
		counts: btree.NewG(degree, func(a, b counted) bool { return a.order(b.Class) < 0 }),
		members: btree.NewG(degree, func(a, b member) bool {
			return cmp.Or(a.order(b.Class), cmp.Compare(a.node.Name, b.node.Name)) < 0
		}),
	}
}

// Of is a set of these nodes.
func Of(nodes ...state.Node) *Set {
	out := New()
	for i := range nodes {
		out.Set(&nodes[i])
	}
	return out
}

// Clone returns a copy: changes of one are not seen in the other. It counts as a
// change of the set itself.
func (s *Set) Clone() *Set {
	out := *s
	out.byName, out.owned = s.byName.Clone(), s.owned.Clone()
	out.room, out.best = s.room.clone(), s.best.clone()
	out.kinds = nil
	return &out
}

func (c *classes) clone() *classes {
	return &classes{counts: c.counts.Clone(), members: c.members.Clone()}
}

// WithKeys returns the set with nodes distinguished by more labels. It takes time in proportion to the number of nodes.
func (s *Set) WithKeys(keys []string) *Set {
	out := New(slices.Concat(s.keys, keys)...)
	for n := range s.All() {
		out.Set(n)
	}
	return out
}

// Keys returns the labels that distinguish nodes, in order.
func (s *Set) Keys() []string { return slices.Clone(s.keys) }

// scattered is the maximum number of kinds that a label may add, beside doubling them.
const scattered = 128

// Scatters reports whether the label would leave few nodes equal, like a serial number: each plan would take time in proportion to the
// number of nodes. Nodes of a kind have the same group and default keys.
func (s *Set) Scatters(key string) bool {
	if s.Len() <= scattered {
		return false
	}
	type kind struct{ of, value string }
	kinds, split := map[string]bool{}, map[kind]bool{}
	for n := range s.All() {
		of := n.Group
		for _, k := range DefaultKeys {
			of += "\n" + n.Labels[k]
		}
		kinds[of], split[kind{of, n.Labels[key]}] = true, true
	}
	return len(split) > 2*len(kinds)+scattered
}

// Lacks returns the labels that do not distinguish nodes.
func (s *Set) Lacks(keys []string) (out []string) {
	for _, k := range keys {
		if _, ok := slices.BinarySearch(s.keys, k); !ok {
			out = append(out, k)
		}
	}
	return out
}

// Changes is the number of changes: a result that was derived from the set before the last change is outdated.
func (s *Set) Changes() int { return s.changes }

// Len is the number of nodes.
func (s *Set) Len() int { return s.byName.Len() }

// All nodes in the order of their names.
func (s *Set) All() iter.Seq[*state.Node] {
	return func(yield func(*state.Node) bool) {
		s.byName.Ascend(func(f *filed) bool { return yield(f.node) })
	}
}

// Find returns the node of that name, or nil.
func (s *Set) Find(name string) *state.Node {
	if f := s.find(name); f != nil {
		return f.node
	}
	return nil
}

func (s *Set) find(name string) *filed {
	f, _ := s.byName.Get(&filed{node: &state.Node{Name: name}})
	return f
}

// BookedBy returns the nodes with a booking of the request, by name.
func (s *Set) BookedBy(uid types.UID) iter.Seq[*state.Node] { return s.OwnedBy(bookedBy(uid)) }

// HasBookings reports whether a node has a booking of the request.
func (s *Set) HasBookings(uid types.UID) bool {
	for range s.BookedBy(uid) {
		return true
	}
	return false
}

// LaunchedBy returns the nodes of the attempt with that token, by name.
func (s *Set) LaunchedBy(token string) iter.Seq[*state.Node] { return s.OwnedBy(launchedBy(token)) }

// LaunchedFor returns the nodes of any launch for the request, by name.
func (s *Set) LaunchedFor(uid types.UID) iter.Seq[*state.Node] { return s.OwnedBy(launchedFor(uid)) }

// Repelling returns the nodes with pods whose anti-affinity may match those of the namespace: by name, some of them twice.
func (s *Set) Repelling(namespace string) iter.Seq[*state.Node] {
	return func(yield func(*state.Node) bool) {
		for _, of := range []string{"", namespace} {
			for n := range s.OwnedBy(repelling(of)) {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// OwnedBy returns the nodes that concern the owner, by name.
func (s *Set) OwnedBy(owner string) iter.Seq[*state.Node] {
	return func(yield func(*state.Node) bool) {
		s.owned.AscendGreaterOrEqual(ownership{owner, &state.Node{}}, func(o ownership) bool {
			return o.owner == owner && yield(o.node)
		})
	}
}

// classes of the nodes as they are, or on the best of days.
func (s *Set) classes(ideal bool) *classes {
	if ideal {
		return s.best
	}
	return s.room
}

// ClassOf returns the class of the node with that name, in its current or its ideal state; nil for none.
func (s *Set) ClassOf(name string, ideal bool) *Class {
	f := s.find(name)
	switch {
	case f == nil:
		return nil
	case ideal:
		return f.best
	default:
		return f.room
	}
}

// Classes returns the classes of the nodes in their current or their ideal state, in order, and the number of nodes in each.
func (s *Set) Classes(ideal bool) iter.Seq2[*Class, int] {
	return func(yield func(*Class, int) bool) {
		s.classes(ideal).counts.Ascend(func(c counted) bool { return yield(c.Class, c.count) })
	}
}

// Members returns the nodes of the class, by name.
func (s *Set) Members(c *Class, ideal bool) iter.Seq[*state.Node] {
	return func(yield func(*state.Node) bool) {
		s.classes(ideal).members.AscendGreaterOrEqual(member{c, &state.Node{}}, func(m member) bool {
			return m.order(c) == 0 && yield(m.node)
		})
	}
}

// Index returns the index of the resource in the room of classes; ok is false if no node ever had it.
func (s *Set) Index(name corev1.ResourceName) (k int, ok bool) {
	k, ok = s.dims.index[name]
	return k, ok
}

// Room returns the free amount of the resource with that Index on a node of the class.
func (c *Class) Room(k int) int64 {
	if k >= len(c.room) {
		return 0
	}
	return c.room[k]
}

// Set puts the node in, in place of the one of its name. The caller does not
// change the node any more.
func (s *Set) Set(n *state.Node) {
	s.Delete(n.Name)
	s.changes++
	f := &filed{node: n}
	s.byName.ReplaceOrInsert(f)
	for _, owner := range owners(n) {
		s.owned.ReplaceOrInsert(ownership{owner, n})
	}
	if n.OpenToAll() && len(n.Bookings) == 0 {
		f.room = s.file(s.room, n, n.Free, n.Claimable)
	}
	f.best = s.file(s.best, n, n.Allocatable, n.Published)
}

// Delete takes a node out.
func (s *Set) Delete(name string) {
	f, ok := s.byName.Delete(&filed{node: &state.Node{Name: name}})
	if !ok {
		return
	}
	s.changes++
	for _, owner := range owners(f.node) {
		s.owned.Delete(ownership{owner, f.node})
	}
	s.unfile(s.room, f.room, f.node)
	s.unfile(s.best, f.best, f.node)
}

// file puts the node in its class, if it has any room.
func (s *Set) file(into *classes, n *state.Node, room nodegroups.Resources, claimable fit.Devices) *Class {
	if room[corev1.ResourcePods] <= 0 {
		return nil
	}
	c := &Class{Kind: s.kindOf(n), room: s.vector(room), Claimable: claimable,
		cpu: max(0, room[corev1.ResourceCPU]), memory: max(0, room[corev1.ResourceMemory])}
	var rest strings.Builder
	for _, name := range room.Names() {
		v := max(0, room[name])
		if nodegroups.Extended(name) {
			c.Devices = nodegroups.Plus(c.Devices, v)
		}
		if v > 0 && name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			rest.WriteString(string(name))
			rest.WriteByte('=')
			rest.WriteString(strconv.FormatInt(v, 10))
			rest.WriteByte(' ')
		}
	}
	if claimable != nil {
		rest.WriteString(claimable.Key())
	}
	c.rest = rest.String()
	now, ok := into.counts.Get(counted{Class: c})
	if ok {
		c = now.Class
	}
	into.counts.ReplaceOrInsert(counted{c, now.count + 1})
	into.members.ReplaceOrInsert(member{c, n})
	return c
}

func (s *Set) unfile(from *classes, c *Class, n *state.Node) {
	if c == nil {
		return
	}
	from.members.Delete(member{c, n})
	if now, _ := from.counts.Get(counted{Class: c}); now.count > 1 {
		from.counts.ReplaceOrInsert(counted{c, now.count - 1})
	} else {
		from.counts.Delete(now)
	}
}

// vector returns the room as numbers in the order of dims.
func (s *Set) vector(room nodegroups.Resources) []int64 {
	for name := range room {
		if _, ok := s.dims.index[name]; !ok {
			s.dims = s.dims.with(room.Names())
			break
		}
	}
	out := make([]int64, len(s.dims.names))
	for name, v := range room {
		out[s.dims.index[name]] = max(0, v)
	}
	return out
}

func (d *dims) with(names []corev1.ResourceName) *dims {
	out := &dims{names: slices.Clone(d.names), index: maps.Clone(d.index)}
	for _, name := range names {
		if _, ok := out.index[name]; !ok {
			out.index[name] = len(out.names)
			out.names = append(out.names, name)
		}
	}
	return out
}

func (s *Set) kindOf(n *state.Node) *Kind {
	var text strings.Builder
	text.WriteString(n.Group)
	for _, key := range s.keys {
		text.WriteByte('\n')
		if v, ok := n.Labels[key]; ok {
			text.WriteByte('=')
			text.WriteString(v)
		}
	}
	for i := range n.Taints {
		t := &n.Taints[i]
		text.WriteByte('\t')
		text.WriteString(t.Key + "=" + t.Value + ":" + string(t.Effect))
	}
	if at := n.EndsAt(); !at.IsZero() {
		text.WriteString("\tends " + at.UTC().Format(time.RFC3339))
	}
	s.collectKinds()
	k := s.kinds[text.String()]
	if k == nil {
		k = &Kind{text: text.String(), Group: n.Group, Labels: map[string]string{}, Taints: n.Taints, EndsAt: n.EndsAt()}
		for _, key := range s.keys {
			if v, ok := n.Labels[key]; ok {
				k.Labels[key] = v
			}
		}
		s.kinds[k.text] = k
	}
	return k
}

// collectKinds forgets kinds that no node is of any more, now and then.
func (s *Set) collectKinds() {
	if s.kinds != nil && len(s.kinds) <= 64+2*(s.room.counts.Len()+s.best.counts.Len()) {
		return
	}
	s.kinds = map[string]*Kind{}
	for _, all := range []*classes{s.room, s.best} {
		all.counts.Ascend(func(c counted) bool {
			s.kinds[c.text] = c.Kind
			return true
		})
	}
}
