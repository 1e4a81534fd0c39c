package nodegroups

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
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
}

// unseenFor is how long a shape is remembered after the last node has gone.
const unseenFor = 24 * time.Hour

// LearnShape returns what is known of the group's shape now that these nodes are
// seen; nil while nothing is. The old shape stays as it is.
func LearnShape(old *v1alpha1.LearnedShape, t v1alpha1.NodeTemplate, nodes []SeenNode, now time.Time) *v1alpha1.LearnedShape {
	next := &v1alpha1.LearnedShape{TemplateHash: templateHash(t)}
	switch {
	case old == nil:
	case old.TemplateHash == next.TemplateHash:
		next = old.DeepCopy()
	default:
		next.Since = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	switch least := offered(t, madeFrom(next, nodes)); {
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

// ForgottenAt is when the shape will be forgotten if no node is seen; zero if it
// will not.
func ForgottenAt(s *v1alpha1.LearnedShape) time.Time {
	if s == nil || s.UnseenSince == nil {
		return time.Time{}
	}
	return s.UnseenSince.Add(unseenFor)
}

// madeFrom are the nodes that were made from the shape's template.
func madeFrom(s *v1alpha1.LearnedShape, nodes []SeenNode) []SeenNode {
	if s == nil || s.Since == nil {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n SeenNode) bool { return n.Registered.Before(s.Since.Time) })
}

// offered is the least that nodes offer of each resource that the template
// promises, or nil where no node tells. A node tells once it offers some of each:
// one that is still starting has no devices yet. It must have as many devices as
// any other of the group: one of fewer has lost some, and the next machine will not.
func offered(t v1alpha1.NodeTemplate, nodes []SeenNode) Resources {
	promised := ResourcesFrom(Allocatable(t))
	most := Resources{}
	for i := range nodes {
		for name := range promised {
			most[name] = max(most[name], nodes[i].Allocatable[name])
		}
	}
	var least Resources
	for i := range nodes {
		offer := Resources{}
		for name := range promised {
			if v := nodes[i].Allocatable[name]; v > 0 && (!Extended(name) || v == most[name]) {
				offer[name] = v
			}
		}
		if len(offer) < len(promised) {
			continue
		}
		if least == nil {
			least = offer
		}
		for name, v := range offer {
			least[name] = min(least[name], v)
		}
	}
	return least
}

// lesser is what the template promises, or nodes made from it offer where that is
// less.
func lesser(promised Resources, s *v1alpha1.LearnedShape, t v1alpha1.NodeTemplate) Resources {
	if s == nil {
		return promised
	}
	out := promised.Clone()
	for name, v := range ResourcesFrom(s.Allocatable) {
		if p, ok := promised[name]; ok {
			out[name] = min(p, v)
		}
	}
	// Hashing costs more than all the rest: it is left for groups that need it.
	if maps.Equal(out, promised) || s.TemplateHash != templateHash(t) {
		return promised
	}
	return out
}

// templateHash tells one template from another.
func templateHash(t v1alpha1.NodeTemplate) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a NodeTemplate cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	h := fnv.New64a()
	h.Write(text)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Difference is something in which nodes are not what their NodeGroup says.
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
	// LabelsMissing: a node lacks a label, or has another value of it.
	LabelsMissing DifferenceKind = "LabelsMissing"
	// TaintsMissing: a node lacks a taint.
	TaintsMissing DifferenceKind = "TaintsMissing"
)

// Differences are those between the NodeGroup and its nodes, in the order of their
// kinds and then of names; each once, for the first of the nodes by name. What
// comes while a node starts, such as devices and the labels of agents, is missed
// only once the node is older than the group's joinTimeout; told is false where no
// node is old enough to tell.
func Differences(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape, nodes []SeenNode, now time.Time) (out []Difference, told bool) {
	nodes = slices.DeleteFunc(slices.Clone(madeFrom(s, nodes)), func(n SeenNode) bool {
		return now.Before(SettledAt(ng, n.Registered))
	})
	slices.SortFunc(nodes, func(a, b SeenNode) int { return strings.Compare(a.Name, b.Name) })
	return slices.Concat(lessThanPromised(ng, s, nodes), labelsMissing(ng, nodes), taintsMissing(ng, nodes)), len(nodes) > 0
}

// SettledAt is when a node of the group must have all that its template promises.
func SettledAt(ng *v1alpha1.NodeGroup, registered time.Time) time.Time {
	return registered.Add(orDefault(ng.Spec.JoinTimeout, DefaultJoinTimeout))
}

func lessThanPromised(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape, nodes []SeenNode) (out []Difference) {
	promised := ResourcesFrom(Allocatable(ng.Spec.Template))
	learned := lesser(promised, s, ng.Spec.Template)
	for _, name := range promised.Names() {
		has, want := learned[name], promised[name]
		if has < want {
			out = append(out, Difference{LessThanPromised, fmt.Sprintf(
				"nodes offer %s %s, %s less than the %s that spec.template promises, and plans count with that: correct the machines, or set "+
					"spec.template.allocatable[%s] to it",
				Quantity(name, has), name, Quantity(name, want-has), Quantity(name, want), name)})
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

// fieldOfLabel is the field of a NodeGroup that promises the label.
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
