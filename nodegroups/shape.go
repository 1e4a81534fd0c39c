package nodegroups

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// SeenNode is a node of a group that is Ready.
type SeenNode struct {
	Name        string
	Registered  time.Time
	Labels      map[string]string
	Taints      []corev1.Taint
	Allocatable Resources
	// Devices is what drivers publish for the node; nil if nothing or not everything is published. Inventory is equal for equal
	// devices.
	Devices   []v1alpha1.DevicePool
	Inventory string
}

// unseenFor is how long a shape is kept after the last node is gone.
const unseenFor = 24 * time.Hour

// LearnShape returns the group's shape after these nodes were seen; nil while nothing is known. The old shape is not changed.
func LearnShape(old *v1alpha1.LearnedShape, t v1alpha1.NodeTemplate, nodes []SeenNode, now time.Time) *v1alpha1.LearnedShape {
	next := &v1alpha1.LearnedShape{TemplateHash: templateHash(t)}
	switch {
	case old == nil:
	case old.TemplateHash == next.TemplateHash:
		next = old.DeepCopy()
	default:
		next.Since = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	made := madeFrom(next, nodes)
	reviewTaints(next, made, now)
	next.Devices = published(next.Devices, made, now)
	switch least := offered(t, next, made, now); {
	case least != nil:
		next.Allocatable, next.UnseenSince = least.List(), nil
	case len(next.Allocatable) == 0:
		if old == nil {
			return nil
		}
	case next.UnseenSince == nil:
		next.UnseenSince = &metav1.Time{Time: now.Truncate(time.Second)}
	case !now.Before(next.UnseenSince.Add(unseenFor)):
		next.Allocatable, next.UnseenSince = nil, nil
	}
	return next
}

// published returns the devices of most nodes, or the known ones while no node reports any. Known devices are never dropped: without them
// a gang that claims devices could not be launched from zero.
func published(known []v1alpha1.DevicePool, nodes []SeenNode, now time.Time) []v1alpha1.DevicePool {
	best, votes := known, map[string]int{}
	most := 0
	for i := range nodes {
		n := &nodes[i]
		if len(n.Devices) == 0 || now.Before(n.Registered.Add(devicesSettle)) && hashOf(n.Devices) != hashOf(known) {
			continue
		}
		if votes[n.Inventory]++; votes[n.Inventory] > most {
			best, most = n.Devices, votes[n.Inventory]
		}
	}
	return best
}

// ForgottenAt is when the shape will be dropped if no node is seen; zero for never.
func ForgottenAt(s *v1alpha1.LearnedShape) (at time.Time) {
	if s == nil {
		return at
	}
	if s.UnseenSince != nil {
		at = s.UnseenSince.Add(unseenFor)
	}
	if s.TaintsSeen != nil {
		if t := s.TaintsSeen.Add(unseenFor); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// madeFrom returns the nodes that were made from the shape's template.
func madeFrom(s *v1alpha1.LearnedShape, nodes []SeenNode) []SeenNode {
	if s == nil || s.Since == nil {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n SeenNode) bool { return n.Registered.Before(s.Since.Time) })
}

// devicesSettle is how long the devices of a node may change: they may be partitioned or shared only after the device plugin has reported
// whole ones.
const devicesSettle = 5 * time.Minute

// LearnsAt is when the devices of a young node that differ from those in plans count; zero if there is no such node.
func LearnsAt(ng *v1alpha1.NodeGroup, nodes []SeenNode, now time.Time) (at time.Time) {
	promised := ResourcesFrom(Allocatable(ng.Spec.Template))
	known := devicesOf(shown(promised, ng.Status.Shape, ng.Spec.Template), promised)
	var published []v1alpha1.DevicePool
	if s := ng.Status.Shape; s != nil {
		published = s.Devices
	}
	for i := range nodes {
		t := nodes[i].Registered.Add(devicesSettle)
		if t.After(now) && (at.IsZero() || t.Before(at)) && (len(nodes[i].Devices) > 0 &&
			hashOf(nodes[i].Devices) != hashOf(published) || !maps.Equal(devicesOf(nodes[i].Allocatable, promised), known)) {
			at = t
		}
	}
	return at
}

// offered returns the least that nodes offer of each resource in the template, and of other devices of the same vendors, or nil without
// evidence. A node counts when it offers some of each resource: a starting node has no devices yet. Of the nodes with the template's
// devices, those with the most devices count: a node with fewer has lost some, and the next machine will have all. Nodes with other
// devices, or more, count only if there are no such nodes.
func offered(t v1alpha1.NodeTemplate, old *v1alpha1.LearnedShape, nodes []SeenNode, now time.Time) Resources {
	promised := ResourcesFrom(Allocatable(t))
	maps.DeleteFunc(promised, func(_ corev1.ResourceName, v int64) bool { return v == 0 })
	var known Resources
	if old != nil {
		known = devicesOf(ResourcesFrom(old.Allocatable), promised)
	}
	var usual, other []SeenNode
	for i := range nodes {
		n := nodes[i]
		n.Allocatable = maps.Clone(n.Allocatable)
		devices := devicesOf(n.Allocatable, promised)
		maps.DeleteFunc(n.Allocatable, func(name corev1.ResourceName, v int64) bool { return promised[name] == 0 && devices[name] == 0 })
		settled := !now.Before(n.Registered.Add(devicesSettle))
		switch asPromised, before := within(devices, promised), known == nil || within(known, promised); {
		case slices.ContainsFunc(promised.Names(), func(name corev1.ResourceName) bool {
			return n.Allocatable[name] <= 0 && (asPromised || !Extended(name))
		}):
		case asPromised && (before || settled):
			usual = append(usual, n)
		case !asPromised && (settled || maps.Equal(devices, known)):
			other = append(other, n)
		}
	}
	if none := len(devicesOf(promised, promised)) == 0; len(usual) == 0 || none && len(other) > 0 {
		return leastOf(promised, latest(other, promised))
	}
	return leastOf(promised, most(usual, promised))
}

// accelerators are the vendors of devices that nodes may offer even if the template promises none.
var accelerators = []string{"nvidia.com/", "amd.com/"}

// devicesOf returns the offered devices of the vendors in the template.
func devicesOf(offer, promised Resources) Resources {
	makers := slices.Clone(accelerators)
	for name := range promised {
		if maker, _, ok := strings.Cut(string(name), "/"); ok && Extended(name) {
			makers = append(makers, maker+"/")
		}
	}
	out := Resources{}
	for name, v := range offer {
		if v > 0 && Extended(name) && slices.ContainsFunc(makers, func(m string) bool { return strings.HasPrefix(string(name), m) }) {
			out[name] = v
		}
	}
	return out
}

// within reports whether the template promises all of the devices.
func within(devices, promised Resources) bool {
	_, _, short := promised.Short(devices)
	return !short
}

// most returns the nodes with the largest number of devices of each name.
func most(nodes []SeenNode, promised Resources) []SeenNode {
	top := Resources{}
	for i := range nodes {
		for name, v := range nodes[i].Allocatable {
			top[name] = max(top[name], v)
		}
	}
	return slices.DeleteFunc(nodes, func(n SeenNode) bool {
		return slices.ContainsFunc(promised.Names(), func(name corev1.ResourceName) bool {
			return Extended(name) && n.Allocatable[name] < top[name]
		})
	})
}

// latest returns the nodes with the same devices as the node that registered last, which the next node will have.
func latest(nodes []SeenNode, promised Resources) []SeenNode {
	if len(nodes) == 0 {
		return nil
	}
	last := slices.MaxFunc(nodes, func(a, b SeenNode) int {
		return cmp.Or(a.Registered.Compare(b.Registered), strings.Compare(a.Name, b.Name))
	})
	devices := devicesOf(last.Allocatable, promised)
	return slices.DeleteFunc(nodes, func(n SeenNode) bool { return !maps.Equal(devicesOf(n.Allocatable, promised), devices) })
}

// leastOf returns the least that the nodes offer of each resource that one of them or the template has; nil for no nodes.
func leastOf(promised Resources, nodes []SeenNode) (least Resources) {
	for i := range nodes {
		offer := nodes[i].Allocatable
		if least == nil {
			least = maps.Clone(offer)
		}
		for name := range promised {
			least[name] = min(least[name], offer[name])
		}
	}
	return least
}

// shown returns what plans use: the devices that nodes offer, and of other resources the smaller of the template's promise and the nodes'
// offer.
func shown(promised Resources, s *v1alpha1.LearnedShape, t v1alpha1.NodeTemplate) Resources {
	if s == nil {
		return promised
	}
	out := promised.Clone()
	for name, v := range ResourcesFrom(s.Allocatable) {
		if p, ok := promised[name]; Extended(name) {
			out[name] = v
		} else if ok {
			out[name] = min(p, v)
		}
	}
	// Hashing costs more than all the rest: it is left for groups that need it.
	if maps.Equal(out, promised) || s.TemplateHash != templateHash(t) {
		return promised
	}
	return out
}

// IsShapeOf reports whether the shape was learned from nodes of the template.
func IsShapeOf(s *v1alpha1.LearnedShape, t v1alpha1.NodeTemplate) bool {
	return s.TemplateHash == templateHash(t)
}

// templateHash identifies a template, whatever the version of the cloud's template.
func templateHash(t v1alpha1.NodeTemplate) string {
	t.Source = ""
	return hashOf(t)
}

// Difference is a difference between nodes and their NodeGroup.
type Difference struct {
	Kind DifferenceKind
	// Message says what differs, by how much, and what to change.
	Message string
}

// DifferenceKind is what differs.
type DifferenceKind string

const (
	// LessThanPromised: nodes offer less of some resource.
	LessThanPromised DifferenceKind = "LessThanPromised"
	// OtherDevices: nodes offer devices that the template does not promise, or more of them, such as partitioned or shared GPUs.
	OtherDevices DifferenceKind = "OtherDevices"
	// LabelsMissing: a node lacks a label, or has another value of it.
	LabelsMissing DifferenceKind = "LabelsMissing"
	// TaintsUndeclared: nodes keep taints that the template does not declare.
	TaintsUndeclared DifferenceKind = "TaintsUndeclared"
	// TaintsMissing: a node lacks a taint.
	TaintsMissing DifferenceKind = "TaintsMissing"
)

// Differences returns the differences between the NodeGroup and its nodes, ordered by kind and name; each once, for the first of the nodes
// by name. Devices and the labels of agents arrive while a node starts, so only nodes older than the group's joinTimeout count. judged is
// false if there is none.
func Differences(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape, nodes []SeenNode, now time.Time) (out []Difference, judged bool) {
	nodes = slices.DeleteFunc(slices.Clone(madeFrom(s, nodes)), func(n SeenNode) bool {
		return now.Before(SettledAt(ng, n.Registered))
	})
	slices.SortFunc(nodes, func(a, b SeenNode) int { return strings.Compare(a.Name, b.Name) })
	out = slices.Concat(lessThanPromised(ng, s, nodes), otherDevices(ng, s), otherPublished(ng, s), taintsUndeclared(ng, s),
		labelsMissing(ng, nodes), taintsMissing(ng, nodes))
	return out, len(nodes) > 0
}

// SettledAt is when a node of the group must have all that its template promises.
func SettledAt(ng *v1alpha1.NodeGroup, registered time.Time) time.Time {
	return registered.Add(JoinTimeout(ng))
}

func lessThanPromised(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape, nodes []SeenNode) (out []Difference) {
	promised := ResourcesFrom(Allocatable(ng.Spec.Template))
	learned := shown(promised, s, ng.Spec.Template)
	for _, name := range promised.Names() {
		has, want := learned[name], promised[name]
		if has < want {
			out = append(out, Difference{LessThanPromised, fmt.Sprintf(
				"nodes offer %s %s, %s less than the %s that spec.template promises, and plans count with that: correct the machines, or set "+
					"spec.template.allocatable[%s] to it",
				Quantity(name, has), name, Quantity(name, want-has), Quantity(name, want), name)})
		}
		if has == 0 {
			continue // reported already, and for all nodes
		}
		if i := slices.IndexFunc(nodes, func(n SeenNode) bool { return n.Allocatable[name] <= 0 }); i >= 0 {
			out = append(out, Difference{LessThanPromised, fmt.Sprintf(
				"node %s offers no %s, where spec.template promises %s: see whether what provides it, such as a device plugin, runs there, or "+
					"correct spec.template",
				nodes[i].Name, name, Quantity(name, want))})
		}
	}
	return out
}

func otherDevices(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape) (out []Difference) {
	promised := ResourcesFrom(Allocatable(ng.Spec.Template))
	learned := shown(promised, s, ng.Spec.Template)
	for _, name := range learned.Names() {
		if has, want := learned[name], promised[name]; has > want {
			out = append(out, Difference{OtherDevices, fmt.Sprintf(
				"nodes offer %s %s, of which spec.template promises %s, and plans count with that while there are such nodes: set "+
					"spec.template.allocatable[%s] to it",
				Quantity(name, has), name, Quantity(name, want), name)})
		}
	}
	return out
}

// otherPublished compares the published devices with the ones that the template declares.
func otherPublished(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape) (out []Difference) {
	if s == nil || len(s.Devices) == 0 || len(ng.Spec.Template.Devices) == 0 {
		return nil
	}
	declared, has := devicesByDriver(ng.Spec.Template.Devices), devicesByDriver(s.Devices)
	for _, driver := range slices.Sorted(maps.Keys(union(declared, has))) {
		if declared[driver] != has[driver] {
			out = append(out, Difference{OtherDevices,
				fmt.Sprintf("driver %s publishes %d devices of a node, of which spec.template.devices "+
					"declares %d, and plans count with those that it publishes: correct the machines, or the devices of this driver there",
					driver, has[driver], declared[driver])})
		}
	}
	return out
}

func union(a, b map[string]int32) map[string]int32 {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func devicesByDriver(pools []v1alpha1.DevicePool) map[string]int32 {
	out := map[string]int32{}
	for i := range pools {
		for k := range pools[i].Devices {
			out[pools[i].Driver] += max(1, pools[i].Devices[k].Count)
		}
	}
	return out
}

func labelsMissing(ng *v1alpha1.NodeGroup, nodes []SeenNode) (out []Difference) {
	promised := Labels(ng)
	for _, key := range slices.Sorted(maps.Keys(promised)) {
		want := promised[key]
		i := slices.IndexFunc(nodes, func(n SeenNode) bool {
			has, ok := n.Labels[key]
			return !ok || has != want
		})
		if i < 0 {
			continue
		}
		what := fmt.Sprintf("lacks the label %s=%s", key, want)
		if has, ok := nodes[i].Labels[key]; ok {
			what = fmt.Sprintf("has the label %s=%s instead of %s", key, has, want)
		}
		out = append(out, Difference{LabelsMissing, fmt.Sprintf(
			"node %s %s: pods that select it find no room there; let the machines set it, or correct %s",
			nodes[i].Name, what, fieldOfLabel(ng, key))})
	}
	return out
}

// fieldOfLabel returns the field of a NodeGroup that promises the label.
func fieldOfLabel(ng *v1alpha1.NodeGroup, key string) string {
	switch {
	case key == v1alpha1.CapacityTypeLabel:
		return "spec.capacityType"
	case key == corev1.LabelTopologyZone && ng.Spec.Zone != "":
		return "spec.zone"
	default:
		return "spec.template.labels"
	}
}

func taintsMissing(ng *v1alpha1.NodeGroup, nodes []SeenNode) (out []Difference) {
	for _, want := range ng.Spec.Template.Taints {
		i := slices.IndexFunc(nodes, func(n SeenNode) bool {
			return !slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
				return t.Key == want.Key && t.Value == want.Value && t.Effect == want.Effect
			})
		})
		if i >= 0 {
			out = append(out, Difference{TaintsMissing, fmt.Sprintf(
				"node %s lacks the taint %s: pods that do not tolerate it may run there; let the machines set it, or correct spec.template.taints",
				nodes[i].Name, want.ToString())})
		}
	}
	return out
}
