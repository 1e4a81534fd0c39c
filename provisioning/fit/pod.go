package fit

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	ndftypes "k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/muster-dev/muster/nodegroups"
)

// Pod is what one pod of a podSet requests. It is read-only, and shares maps and
// slices with the template that it was read from.
type Pod struct {
	// Name of the podSet, and how many pods it has.
	Name  string
	Count int
	// Requests of one pod, itself as one of its node's pods included.
	Requests nodegroups.Resources
	// Running is what other pods will see of it.
	Running
	Domains

	nodeSelector []label
	// affinity is the required node affinity; without terms where there is none.
	affinity *selector
	// volumes say where the claims of the pod can be used.
	volumes     []selector
	tolerations []corev1.Toleration

	// Claims contains the device claims of each pod; nil for none.
	Claims *Claims

	attracts []podTerm
	spreads  []spread
	// shared claims of volumes.
	shared []sharedClaim
}

// NewPod reads the template of a podSet of count pods in the namespace. The Pod is nil
// where it is refused.
func NewPod(namespace, name string, count int, t *corev1.PodTemplateSpec, objects Objects) (*Pod, Refusal) {
	p := &Pod{Name: name, Count: count}
	if r := p.read(namespace, t, &objects); r.Refused() {
		r.Message = fmt.Sprintf("podSet %s %s", name, r.Message)
		return nil, r
	}
	return p, Refusal{}
}

func (p *Pod) read(namespace string, t *corev1.PodTemplateSpec, objects *Objects) Refusal {
	spec := &t.Spec
	if r := unjudged(spec); r.Refused() {
		return r
	}
	domains, r := DomainsOf(t, p.Count)
	if r.Refused() {
		return r
	}
	p.Requests, p.Domains = TemplateRequests(spec), domains
	p.Running = Running{Namespace: namespace, Labels: t.Labels, Ports: hostPorts(spec)}
	p.nodeSelector = sortedLabels(spec.NodeSelector)
	p.tolerations = spec.Tolerations
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		s := newSelector("", a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, matchFields)
		p.affinity = &s
	}
	for _, step := range []func(*corev1.PodSpec, *Objects) Refusal{
		p.readRuntimeClass, p.readDevices, p.readVolumes, p.readPodAffinity, p.readSpreads,
	} {
		if r := step(spec, objects); r.Refused() {
			return r
		}
	}
	return Refusal{}
}

// unjudged refuses the first feature of the pod that depends on what Muster does not
// look at.
func unjudged(spec *corev1.PodSpec) Refusal {
	switch {
	case spec.NodeName != "":
		return unsupported("spec.nodeName", "the pods bypass the scheduler", "remove it, or select the node by its labels")
	case spec.SchedulingGroup != nil:
		return unsupported("spec.schedulingGroup", "the scheduler's own gang scheduling", "remove it: Muster holds the pods until all fit")
	}
	features, err := ndf.DefaultFramework.InferForPodScheduling(&ndftypes.PodInfo{Spec: spec}, schedulerVersion)
	if err == nil && features.IsEmpty() {
		return Refusal{}
	}
	names, _ := ndf.DefaultFramework.Unmap(features)
	return unsupported("a feature that nodes must declare", strings.Join(names, ", "), "remove it, or run these pods without a request")
}

// schedulerVersion is that of the scheduler whose judgement is followed.
var schedulerVersion = version.MustParse("1.37")

// readRuntimeClass adds what the API server will take from the RuntimeClass when it
// creates the pods.
func (p *Pod) readRuntimeClass(spec *corev1.PodSpec, objects *Objects) Refusal {
	const field = "spec.runtimeClassName"
	if spec.RuntimeClassName == nil || *spec.RuntimeClassName == "" {
		return Refusal{}
	}
	name := *spec.RuntimeClassName
	if objects.RuntimeClass == nil {
		return unsupported(field, name, "remove it, or run these pods without a request")
	}
	class := objects.RuntimeClass(name)
	if class == nil {
		return unready(field, fmt.Sprintf("RuntimeClass %s, which does not exist", name))
	}
	if class.Overhead != nil && spec.Overhead == nil {
		p.Requests.Add(nodegroups.ResourcesFrom(class.Overhead.PodFixed), 1)
	}
	if class.Scheduling == nil {
		return Refusal{}
	}
	selector := maps.Clone(spec.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	for _, l := range sortedLabels(class.Scheduling.NodeSelector) {
		if v, ok := selector[l.key]; ok && v != l.value {
			return impossible(field, fmt.Sprintf("RuntimeClass %s selects nodes with %s=%s, spec.nodeSelector those with %s=%s", name, l.key,
				l.value, l.key, v))
		}
		selector[l.key] = l.value
	}
	p.nodeSelector = sortedLabels(selector)
	p.tolerations = slices.Concat(p.tolerations, class.Scheduling.Tolerations)
	return Refusal{}
}

// Matches reports whether the pod may run on a node of this name, labels and taints, as
// far as these go. The name is empty for a machine that does not exist yet. A cordon
// does not count. It allocates nothing.
func (p *Pod) Matches(name string, nodeLabels map[string]string, taints []corev1.Taint) bool {
	return p.selects(name, nodeLabels) && p.reaches(name, nodeLabels) == nil && Untolerated(taints, p.tolerations) == nil
}

// selects reports whether node selector and node affinity hold.
func (p *Pod) selects(name string, nodeLabels map[string]string) bool {
	for i := range p.nodeSelector {
		if v, ok := nodeLabels[p.nodeSelector[i].key]; !ok || v != p.nodeSelector[i].value {
			return false
		}
	}
	return p.affinity == nil || p.affinity.holds(name, nodeLabels)
}

// reaches returns a volume that cannot be used on the node, or nil.
func (p *Pod) reaches(name string, nodeLabels map[string]string) *selector {
	for i := range p.volumes {
		if !p.volumes[i].holds(name, nodeLabels) {
			return &p.volumes[i]
		}
	}
	return nil
}

// Mismatch says why Matches is false, or is empty.
func (p *Pod) Mismatch(name string, nodeLabels map[string]string, taints []corev1.Taint) string {
	for _, l := range p.nodeSelector {
		switch v, ok := nodeLabels[l.key]; {
		case !ok:
			return fmt.Sprintf("podSet %s selects %s=%s (spec.nodeSelector), a label that the nodes lack", p.Name, l.key, l.value)
		case v != l.value:
			return fmt.Sprintf("podSet %s selects %s=%s (spec.nodeSelector), the nodes have %s", p.Name, l.key, l.value, v)
		}
	}
	if p.affinity != nil && !p.affinity.holds(name, nodeLabels) {
		return fmt.Sprintf("podSet %s has a required node affinity (spec.affinity.nodeAffinity) that these labels do not match", p.Name)
	}
	if v := p.reaches(name, nodeLabels); v != nil {
		return fmt.Sprintf("podSet %s needs %s", p.Name, v.what)
	}
	if t := Untolerated(taints, p.tolerations); t != nil {
		return fmt.Sprintf("podSet %s does not tolerate its taint %s", p.Name, t.ToString())
	}
	return ""
}

// Keys are the node labels that Matches looks at, and those of the domains, in order. The host
// name is among them only where Names cannot list the nodes that it is about.
func (p *Pod) Keys() []string {
	keys := p.Levels()
	for _, l := range p.nodeSelector {
		if l.key != corev1.LabelHostname {
			keys = append(keys, l.key)
		}
	}
	for s := range p.selectors() {
		keys = append(keys, s.keys()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Names are the nodes that the pod asks about one by one, by name or by the label
// kubernetes.io/hostname, in order. With only it can run on no others; without, it
// treats all others alike as far as their names go.
func (p *Pod) Names() (names []string, only bool) {
	for _, l := range p.nodeSelector {
		if l.key == corev1.LabelHostname {
			names, only = append(names, l.value), true
		}
	}
	for s := range p.selectors() {
		more, limited := s.names()
		names, only = append(names, more...), only || limited
	}
	slices.Sort(names)
	return slices.Compact(names), only
}

// selectors are the pod's node affinity and volumes.
func (p *Pod) selectors() iter.Seq[*selector] {
	return func(yield func(*selector) bool) {
		if p.affinity != nil && !yield(p.affinity) {
			return
		}
		for i := range p.volumes {
			if !yield(&p.volumes[i]) {
				return
			}
		}
	}
}
