package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// exclusions counts the nodes that were left out, by reason.
type exclusions struct {
	total, selector, affinity, domain int
	taints                            map[string]int
	resources                         map[corev1.ResourceName]int
}

func (e *exclusions) add(m mismatch, n int) {
	switch m.cause {
	case byTaint:
		if e.taints == nil {
			e.taints = map[string]int{}
		}
		e.taints[m.taint] += n
	case bySelector:
		e.selector += n
	case byAffinity:
		e.affinity += n
	case none:
	}
}

// addResource counts nodes whose free capacity does not fit a single pod.
func (e *exclusions) addResource(of corev1.ResourceName, n int) {
	if e.resources == nil {
		e.resources = map[corev1.ResourceName]int{}
	}
	e.resources[of] += n
}

// String is empty if no node was left out.
func (e *exclusions) String() string {
	var parts []string
	say := func(n int, format string, args ...any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, args...)+fmt.Sprintf(": %d", n))
		}
	}
	say(e.selector, "nodeSelector")
	say(e.affinity, "affinity")
	say(e.domain, "topologyDomain")
	for taint, n := range e.taints {
		say(n, "taint %q", taint)
	}
	for name, n := range e.resources {
		say(n, "resource %q", name)
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return fmt.Sprintf(". Total nodes: %d; excluded: %s", e.total, strings.Join(parts, ", "))
}

// notFitMessage says how many of the slices or pods fit.
func (s *search) notFitMessage(level int, fits, needed int32) string {
	if len(s.layers) > 0 {
		return s.layersNotFitMessage(level)
	}
	unit := "slice"
	if s.sliceSize == 1 {
		unit = "pod"
	}
	if fits == 0 {
		return fmt.Sprintf("topology %q doesn't allow to fit any of %d %s(s)%s", s.tree.topology, needed, unit, &s.excluded)
	}
	return fmt.Sprintf("topology %q allows to fit only %d out of %d %s(s)%s", s.tree.topology, fits, needed, unit, &s.excluded)
}

// layersNotFitMessage says for each layer of slices how many fit in the domain that fits the most.
func (s *search) layersNotFitMessage(level int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "topology %q doesn't allow to fit", s.tree.topology)
	best := s.domainWithMost(level, func(c *counts) int32 { return c.slices })
	for _, layer := range s.layers {
		at := slices.Index(s.tree.levels, layer.Topology)
		fmt.Fprintf(&out, "; %d/%d slice(s) fit on level %s", s.slicesIn(best, level, at, layer.Size), s.Count/layer.Size, layer.Topology)
	}
	out.WriteString(s.excluded.String())
	return out.String()
}

// domainWithMost returns the domain of the level with the highest value, the first by ID among equals; nil if no leaf
// matches the pods.
func (s *search) domainWithMost(level int, of func(*counts) int32) *run {
	var best *run
	for _, r := range s.domainsAt(level) {
		if best == nil || of(&r.counts) > of(&best.counts) || of(&r.counts) == of(&best.counts) && s.idOf(r) < s.idOf(best) {
			best = r
		}
	}
	return best
}

// idOf returns the ID of the first domain of the run.
func (s *search) idOf(r *run) string {
	if r.domain != nil {
		return strings.Join(r.domain.values, separator)
	}
	var ids []string
	for _, at := range r.leafSets {
		for _, names := range at.names {
			ids = append(ids, s.tree.id(slices.Concat(at.parent.values, names[:1])))
		}
	}
	return slices.Min(ids)
}

func (s *search) slicesIn(r *run, level, at int, size int32) (n int32) {
	switch {
	case r == nil:
		return 0
	case level == at:
		return r.pods / size
	}
	for _, child := range s.children(level, r) {
		n += s.slicesIn(child, level+1, at, size) * int32(child.n)
	}
	return n
}

// bestDomain returns the domain of the requested level that fits the most pods.
func (s *search) bestDomain() Domain {
	r := s.domainWithMost(s.requested, func(c *counts) int32 { return c.pods })
	switch {
	case r == nil:
		return Domain{}
	case r.domain != nil:
		return Domain{r.domain.values, r.pods}
	}
	l := r.leaves()[0]
	return Domain{slices.Concat(l.parent.values, []string{l.name}), r.pods}
}
