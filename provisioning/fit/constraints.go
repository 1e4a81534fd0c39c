package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// readPodAffinity reads the required terms between pods, as the API server will have
// completed them: matchLabelKeys and mismatchLabelKeys become part of the selectors.
func (p *Pod) readPodAffinity(spec *corev1.PodSpec, _ *Objects) Refusal {
	for i := range podAffinity(spec) {
		field := fmt.Sprintf("spec.affinity.podAffinity, required term %d", i+1)
		t, r := p.newTerm(field, &podAffinity(spec)[i])
		if r.Refused() {
			return r
		}
		if s := podAffinity(spec)[i].NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
			return unsupported(field, "its namespaceSelector", "list the namespaces, or select all with {}")
		}
		p.attracts = append(p.attracts, t)
	}
	for i := range antiAffinity(spec) {
		t, r := p.newTerm(fmt.Sprintf("spec.affinity.podAntiAffinity, required term %d", i+1), &antiAffinity(spec)[i])
		if r.Refused() {
			return r
		}
		p.repels = append(p.repels, t)
	}
	return Refusal{}
}

func (p *Pod) newTerm(field string, t *corev1.PodAffinityTerm) (podTerm, Refusal) {
	out, err := newPodTerm(p.Namespace, t)
	if err != nil {
		return podTerm{}, impossible(field, "its selector cannot be read: "+err.Error())
	}
	var r Refusal
	if out.selector, r = p.addKeys(field, out.selector, t.MatchLabelKeys, selection.In); r.Refused() {
		return podTerm{}, r
	}
	out.selector, r = p.addKeys(field, out.selector, t.MismatchLabelKeys, selection.NotIn)
	return out, r
}

// addKeys narrows a selector to pods that have, or have not, the pod's own values of the labels. A label that the template does not have
// is refused: if a controller sets it, the pods are not alike to the scheduler.
func (p *Pod) addKeys(field string, s labels.Selector, keys []string, op selection.Operator) (labels.Selector, Refusal) {
	for _, key := range keys {
		value, ok := p.Labels[key]
		if !ok {
			return nil, unsupported(field, "it matches by the label "+key+" that the template does not have",
				"leave the key out, or set the label in the template")
		}
		r, err := labels.NewRequirement(key, op, []string{value})
		if err != nil {
			return nil, impossible(field, "its label keys cannot be read: "+err.Error())
		}
		s = s.Add(*r)
	}
	return s, Refusal{}
}

// spread keeps the numbers of certain pods in the domains of a topology within
// maxSkew of each other.
type spread struct {
	topology   string
	maxSkew    int32
	minDomains int32
	selector   labels.Selector
	// self is what the pod itself adds to its domain: 1 or 0.
	self int32
	// Nodes that node selector and affinity rule out, or whose taints the pod does
	// not tolerate, are no part of any domain where these are honored.
	honorAffinity, honorTaints bool
}

func (p *Pod) readSpreads(spec *corev1.PodSpec, _ *Objects) Refusal {
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		field := fmt.Sprintf("spec.topologySpreadConstraints[%d]", i)
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return impossible(field, "its selector cannot be read: "+err.Error())
		}
		selector, r := p.addKeys(field, selector, c.MatchLabelKeys, selection.In)
		if r.Refused() {
			return r
		}
		s := spread{topology: c.TopologyKey, maxSkew: c.MaxSkew, minDomains: 1, selector: selector, honorAffinity: true}
		if c.MinDomains != nil {
			s.minDomains = *c.MinDomains
		}
		if c.NodeAffinityPolicy != nil {
			s.honorAffinity = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
		}
		if c.NodeTaintsPolicy != nil {
			s.honorTaints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		}
		if selector.Matches(labels.Set(p.Labels)) {
			s.self = 1
		}
		p.spreads = append(p.spreads, s)
	}
	return Refusal{}
}

// counts reports whether the constraint of a pod in the namespace counts r. A selector
// of everything counts, to the scheduler, no pod.
func (s *spread) counts(namespace string, r *Running) bool {
	return !r.Terminating && r.Namespace == namespace && !s.selector.Empty() && s.selector.Matches(labels.Set(r.Labels))
}

// includes reports whether the node is part of its domain.
func (s *spread) includes(p *Pod, n *Node) bool {
	if s.honorAffinity && (n.Elsewhere || !p.selects(n.Name, n.Labels)) {
		return false
	}
	return !s.honorTaints || Untolerated(n.Taints, p.tolerations) == nil
}

// Between reports whether the pod's own constraints are about other pods, so that it
// takes an InterPodState to judge it.
func (p *Pod) Between() bool {
	return len(p.attracts)+len(p.repels)+len(p.spreads)+len(p.Ports)+len(p.shared) > 0
}

// Topologies returns the node labels whose values are the domains of the pod's own constraints on other pods, in order.
func (p *Pod) Topologies() []string {
	var keys []string
	for i := range p.attracts {
		keys = append(keys, p.attracts[i].topology)
	}
	for i := range p.repels {
		keys = append(keys, p.repels[i].topology)
	}
	for i := range p.spreads {
		keys = append(keys, p.spreads[i].topology)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
