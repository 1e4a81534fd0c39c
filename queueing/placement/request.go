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

// Request is a podSet to be placed.
type Request struct {
	Count int32
	// Pod is the request of each pod.
	Pod nodegroups.Resources
	// Topology is the topology request of the podSet. It is nil, and Implied is set, if only the ClusterQueue implies
	// one because all of its flavors have a Topology.
	Topology *kueue.PodSetTopologyRequest
	Implied  bool
	// Leader is the request of the leader pod that must be placed together with this podSet; nil without a leader.
	Leader nodegroups.Resources
	// Spec of the pods, including what flavors and checks add. Nodes must match its tolerations, node selector and
	// required node affinity.
	Spec *corev1.PodSpec
	// LeaderSpec is the pod spec of the leader.
	LeaderSpec *corev1.PodSpec
	// Balanced spreads the pods of a preferred level evenly over few of its domains.
	Balanced bool
	// Within are the values of the domain that must contain the pods; empty for any.
	Within []string
}

// levelRequest is a topology request resolved to the levels of a tree.
type levelRequest struct {
	// requested is the level at which domains are chosen; slice is the level at which each slice must stay in one
	// domain.
	requested, slice int
	sliceSize        int32
	// tail is the number of pods in the partial slice; 0 if the slice size divides the pods. Slices of several layers
	// have no partial slice.
	tail int32
	// inner maps a level below that of slices to the size of the groups of pods that must stay together there.
	inner map[int]int32
	// layers of slices, if there are several.
	layers                  []kueue.PodsetSliceRequiredTopologyConstraint
	required, unconstrained bool
}

// SliceSize returns the number of pods of a slice of the coarsest layer; zero if there are no slices or no size is
// given.
func SliceSize(r *kueue.PodSetTopologyRequest) int32 {
	if layers := layersOf(r); len(layers) > 0 {
		return layers[0].Size
	}
	return 0
}

// layersOf returns the layers of slices, from the coarsest to the finest.
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

// MissingLevels returns the levels that the request names and the Topology lacks.
func MissingLevels(levels []string, r *kueue.PodSetTopologyRequest) (lacking []string) {
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

// levelOf returns the level at which domains are chosen; ok is false if none is requested.
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

// resolve returns the levels of a request, or the reason, in Kueue's words, why the request is invalid.
func (t *Tree) resolve(r *Request) (out levelRequest, reason string) {
	layers := layersOf(r.Topology)
	out = levelRequest{sliceSize: 1, inner: map[int]int32{}}
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

// nodeMatcher checks whether nodes match a pod spec.
type nodeMatcher struct {
	tolerations []corev1.Toleration
	selector    map[string]string
	affinity    *nodeaffinity.NodeSelector
	// bySignature reports whether signatures alone decide, because the spec selects only labels that are part of them.
	bySignature bool
	// results are the results of checkSignature.
	results map[*signature]mismatch
}

// mismatch is the reason why a node does not match; its cause is none if it does.
type mismatch struct {
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

func (t *Tree) matcherFor(spec *corev1.PodSpec) (*nodeMatcher, string) {
	s := &nodeMatcher{bySignature: true, results: map[*signature]mismatch{}}
	if spec == nil {
		return s, ""
	}
	s.tolerations, s.selector = spec.Tolerations, spec.NodeSelector
	for key := range s.selector {
		s.bySignature = s.bySignature && slices.Contains(t.keys, key)
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
		s.bySignature = s.bySignature && len(required.NodeSelectorTerms[i].MatchFields) == 0
		for _, e := range required.NodeSelectorTerms[i].MatchExpressions {
			s.bySignature = s.bySignature && slices.Contains(t.keys, e.Key)
		}
	}
	return s, ""
}

// checkSignature checks all leaves of a signature at once.
func (s *nodeMatcher) checkSignature(k *signature) mismatch {
	m, ok := s.results[k]
	if !ok {
		m = s.check(k, k.labels, "")
		s.results[k] = m
	}
	return m
}

func (s *nodeMatcher) check(k *signature, labels map[string]string, name string) mismatch {
	if taint := fit.Untolerated(k.taints, s.tolerations); taint != nil {
		return mismatch{byTaint, taint.ToString()}
	}
	for key, value := range s.selector {
		if v, ok := labels[key]; !ok || v != value {
			return mismatch{cause: bySelector}
		}
	}
	if s.affinity != nil {
		n := &corev1.Node{}
		n.Name, n.Labels = name, labels
		if !s.affinity.Match(n) {
			return mismatch{cause: byAffinity}
		}
	}
	return mismatch{}
}
