package fit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// SelectedKeys are the node labels, the host name apart, that pods of the spec
// select by node selector or required node affinity.
func SelectedKeys(spec *corev1.PodSpec) []string {
	keys := slices.Collect(maps.Keys(spec.NodeSelector))
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range t.MatchExpressions {
				keys = append(keys, e.Key)
			}
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == corev1.LabelHostname })
}

// Spreads reports whether the pod has a hard spread constraint over the topology.
func (p *Pod) Spreads(topology string) bool {
	for i := range p.spreads {
		if p.spreads[i].topology == topology {
			return true
		}
	}
	return false
}

// Gathers are the topologies whose domains the pod must share with other pods.
func (p *Pod) Gathers() (topologies []string) {
	for i := range p.attracts {
		topologies = append(topologies, p.attracts[i].topology)
	}
	return topologies
}
