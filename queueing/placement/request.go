package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Request is a podSet that is to be placed.
type Request struct {
	Count int32
	// Pod is what each of its pods requests.
	Pod nodegroups.Resources
	// Topology is what the podSet asks for; nil where it is only in a queue of flavors with a
	// topology, which is Implied.
	Topology *kueue.PodSetTopologyRequest
	Implied  bool
	// Leader is what the one pod of the podSet requests that is placed with this one; nil without.
	Leader nodegroups.Resources
	// Spec of its pods, with what flavors and checks add: nodes must suit its tolerations, node
	// selector and required node affinity.
	Spec *corev1.PodSpec
	// LeaderSpec is of the leader what Spec is of the pods.
	LeaderSpec *corev1.PodSpec
	// Balanced: where a level is preferred, pods are spread evenly over few of its domains.
	Balanced bool
	// Within are the values of a domain in which it must be; empty for any.
	Within []string
}

// levels are those that a request comes to.
type levels struct {
	// requested is the level at which domains are chosen, slice that within which each slice must
	// stay.
	requested, slice int
	sliceSize        int32
	// tail is the number of pods of the partial slice; 0 if slices divide the pods. Slices of several layers have no partial one.
	tail int32
	// inner is the size of the groups of pods that must stay together at a level below that of slices.
	inner map[int]int32
	// layers are all layers of slices, where there are several.
	layers                  []kueue.PodsetSliceRequiredTopologyConstraint
	required, unconstrained bool
}

// SliceSize is of how many pods the largest slices are; zero where there are none, or no size is given.
func SliceSize(r *kueue.PodSetTopologyRequest) int32 {
	if layers := layersOf(r); len(layers) > 0 {
		return layers[0].Size
	}
	return 0
}

// layersOf are the layers of slices, from the coarsest to the finest.
func layersOf(r *kueue.PodSetTopologyRequest) []kueue.PodsetSliceRequiredTopologyConstraint {
	switch {
	case r == nil:
		return nil
	case len(r.PodsetSliceRequiredTopologyConstraints) > 0:
		return r.PodsetSliceRequiredTopologyConstraints
	case r.PodSetSliceRequiredTopology != nil:
		return []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: *r.PodSetSliceRequiredTopology, Size: ptr.Deref(r.PodSetSliceSize, 0)}}
	}
	return nil
}

// LevelsLacking are those that the request names and a topology of these levels has not.
func LevelsLacking(levels []string, r *kueue.PodSetTopologyRequest) (lacking []string) {
	asked, _ := levelOf(levels, r, false)
	named := []string{asked}
	for _, l := range layersOf(r) {
		named = append(named, l.Topology)
	}
	for _, name := range named {
		if name != "" && !slices.Contains(levels, name) && !slices.Contains(lacking, name) {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// levelOf is the level at which domains are chosen; ok is false where none is asked for.
func levelOf(levels []string, r *kueue.PodSetTopologyRequest, implied bool) (level string, ok bool) {
	switch {
	case r != nil && r.Required != nil:
		return *r.Required, true
	case r != nil && r.Preferred != nil:
		return *r.Preferred, true
	case len(layersOf(r)) > 0:
		return levels[0], true
	case r != nil && ptr.Deref(r.Unconstrained, false), implied:
		return levels[len(levels)-1], true
	}
	return "", false
}

// read is what the request comes to; the reason says why it is not known, in Kueue's words.
func (t *Tree) read(r *Request) (out levels, reason string) {
	layers := layersOf(r.Topology)
	out = levels{sliceSize: 1, inner: map[int]int32{}}
	if len(layers) > 0 {
		if out.sliceSize = layers[0].Size; out.sliceSize <= 0 {
			return out, "slice topology requested, but slice size not provided"
		}
	}
	alone := len(layers) > 0 && r.Topology.Required == nil && r.Topology.Preferred == nil
	out.required = r.Topology != nil && r.Topology.Required != nil
	out.unconstrained = r.Topology != nil && ptr.Deref(r.Topology.Unconstrained, false) || r.Implied || alone

	key, ok := levelOf(t.levels, r.Topology, r.Implied)
	if !ok {
		return out, "topology level not specified"
	}
	if out.requested = slices.Index(t.levels, key); out.requested < 0 {
		return out, fmt.Sprintf("no requested topology level: %s", key)
	}
	out.slice = len(t.levels) - 1
	if len(layers) > 0 {
		if out.slice = slices.Index(t.levels, layers[0].Topology); out.slice < 0 {
			return out, fmt.Sprintf("no requested topology level for slices: %s", layers[0].Topology)
		}
	}
	if out.requested > out.slice {
		return out, fmt.Sprintf("podset slice topology %s is above the podset topology %s", t.levels[out.slice], key)
	}
	if len(layers) == 1 {
		out.tail = r.Count % out.sliceSize
	}
	if len(layers) < 2 {
		return out, ""
	}
	out.layers = layers
	above, size := out.slice, out.sliceSize
	for _, layer := range layers[1:] {
		level := slices.Index(t.levels, layer.Topology)
		switch {
		case level < 0:
			return out, fmt.Sprintf("no requested topology level for additional slice layer: %s", layer.Topology)
		case level <= above:
			return out, fmt.Sprintf("additional slice layer topology %s must be at a lower level than %s", layer.Topology, t.levels[above])
		case layer.Size <= 0 || size%layer.Size != 0:
			return out, fmt.Sprintf("additional slice layer size %d must evenly divide parent layer size %d", layer.Size, size)
		}
		for l := above + 1; l <= level; l++ {
			out.inner[l] = layer.Size
		}
		above, size = level, layer.Size
	}
	return out, ""
}

// suits reports whether nodes of that kind, or with those labels, take the pods; else it is counted
// why not.
type suits struct {
	tolerations []corev1.Toleration
	selector    map[string]string
	affinity    *nodeaffinity.NodeSelector
	// known reports whether all that is selected are labels by which nodes are told apart.
	known bool
	// judged are the kinds that were looked at.
	judged map[*kind]misfit
}

// misfit says why a node does not take the pods.
type misfit struct {
	cause exclusion
	taint string
}

type exclusion int

const (
	none exclusion = iota
	byTaint
	bySelector
	byAffinity
)

func (t *Tree) suits(spec *corev1.PodSpec) (*suits, string) {
	s := &suits{known: true, judged: map[*kind]misfit{}}
	if spec == nil {
		return s, ""
	}
	s.tolerations, s.selector = spec.Tolerations, spec.NodeSelector
	for key := range s.selector {
		s.known = s.known && slices.Contains(t.keys, key)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return s, ""
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	affinity, err := nodeaffinity.NewNodeSelector(required)
	if err != nil {
		return nil, fmt.Sprintf("invalid affinity node selectors: %s, reason: %s", required, err)
	}
	s.affinity = affinity
	for i := range required.NodeSelectorTerms {
		s.known = s.known && len(required.NodeSelectorTerms[i].MatchFields) == 0
		for _, e := range required.NodeSelectorTerms[i].MatchExpressions {
			s.known = s.known && slices.Contains(t.keys, e.Key)
		}
	}
	return s, ""
}

// ofKind judges all leaves of a kind at once.
func (s *suits) ofKind(k *kind) misfit {
	m, ok := s.judged[k]
	if !ok {
		m = s.judge(k, k.labels, "")
		s.judged[k] = m
	}
	return m
}

func (s *suits) judge(k *kind, labels map[string]string, name string) misfit {
	if taint := fit.Untolerated(k.taints, s.tolerations); taint != nil {
		return misfit{byTaint, taint.ToString()}
	}
	for key, value := range s.selector {
		if v, ok := labels[key]; !ok || v != value {
			return misfit{cause: bySelector}
		}
	}
	if s.affinity != nil {
		n := &corev1.Node{}
		n.Name, n.Labels = name, labels
		if !s.affinity.Match(n) {
			return misfit{cause: byAffinity}
		}
	}
	return misfit{}
}
