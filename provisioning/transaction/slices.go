package transaction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// LostPods are pods of one podSet that ran on a node that was lost.
type LostPods struct {
	Node   string `json:"node"`
	PodSet string `json:"podSet"`
	Count  int    `json:"count"`
	// Labels of the node that its replacement must share.
	Labels map[string]string `json:"labels,omitempty"`
	// Elsewhere is the level of slices that are lost as a whole, with these pods among them. The replacements need not share the label of
	// this level or of finer ones. Empty for pods of slices that still run in part.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// domainOf names the domain of a layer that a node with the labels is in: two racks of one name may be in two blocks.
func domainOf(labels map[string]string, layers []fit.Layer) (path string) {
	for _, l := range layers {
		path += labels[l.Level] + "\x00"
	}
	return path
}

// divide assigns the lost pods of a podSet to the domains of running pods. From the finest layer to the coarsest, a slice that still runs
// in part gets the pods that it lacks in its domain. So do pods that fill no slice: others of the slice may be lost, too, and not reported
// yet. Slices that are lost as a whole are not bound to a domain of their layer, so that they may use another one.
func divide(lost, running []LostPods, layers []fit.Layer) (out []LostPods) {
	for k := len(layers) - 1; k >= 0; k-- {
		belong := belonging(lost, slices.Concat(running, out), layers[:k+1])
		var left []LostPods
		for _, l := range lost {
			domain := domainOf(l.Labels, layers[:k+1])
			if n := min(l.Count, belong[domain]); n > 0 {
				belong[domain] -= n
				l.Count -= n
				beside := l
				beside.Count = n
				out = append(out, beside)
			}
			if l.Elsewhere = layers[k].Level; l.Count > 0 {
				left = append(left, l)
			}
		}
		lost = left
	}
	return append(out, lost...)
}

// belonging returns how many of the lost pods belong to each domain of the last layer, beside those that are there.
func belonging(lost, there []LostPods, layers []fit.Layer) map[string]int {
	count := func(list []LostPods) map[string]int {
		in := map[string]int{}
		for _, l := range list {
			in[domainOf(l.Labels, layers)] += l.Count
		}
		return in
	}
	size, out, stay := layers[len(layers)-1].Size, count(lost), count(there)
	for domain, gone := range out {
		lacks := min(gone, (size-stay[domain]%size)%size)
		out[domain] -= (gone - lacks) / size * size
	}
	return out
}

// sliceLayers returns the layers in which the podSet has several domains.
func sliceLayers(ps *state.PodSet) (layers []fit.Layer) {
	domains, _ := fit.DomainsOf(ps.Template, ps.Count)
	for _, l := range domains.Layers {
		if l.Size < ps.Count && l.Level != corev1.LabelHostname {
			layers = append(layers, l)
		}
	}
	return layers
}

// divided returns the lost pods of the gang, each podSet divided; running are its pods that still run.
func divided(g *state.Gang, lost, running []LostPods) (out []LostPods) {
	of := func(list []LostPods, name string) (own []LostPods) {
		for _, l := range list {
			if l.PodSet == name {
				l.Elsewhere = ""
				own = append(own, l)
			}
		}
		return own
	}
	for i := range g.PodSets {
		ps := &g.PodSets[i]
		out = append(out, divide(of(lost, ps.Name), of(running, ps.Name), sliceLayers(ps))...)
	}
	return out
}
