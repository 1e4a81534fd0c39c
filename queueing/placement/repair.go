package placement

import (
	"slices"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Repair finds new places for the pods that were on lost nodes, near those that stay: within the domain of the level that
// is required, and those of a slice within the slice's. It returns all domains as they are then. Beside are
// domains of the podSets that must be in the same one.
func (t *Tree) Repair(r *Request, domains, beside []Domain, lost map[string]bool) (repaired []Domain, reason string) {
	view := t.View()
	kept, missing := split(domains, lost)
	layers := layersOf(r.Topology)
	if len(layers) > 1 {
		return nil, "slices of several layers are placed as a whole only"
	}
	place := func(count int32, topology *kueue.PodSetTopologyRequest, within []string) string {
		if count == 0 {
			return ""
		}
		next := *r
		next.Count, next.Leader, next.Topology, next.Within = count, nil, topology, within
		found := view.Place(&next)
		if found.Reason != "" {
			return found.Reason
		}
		view.Use(found.Pods, r.Pod, 1)
		kept = append(kept, found.Pods...)
		missing -= count
		return ""
	}
	if len(layers) == 1 {
		// A slice of which pods are left is completed where it is.
		size, at := layers[0].Size, slices.Index(t.levels, layers[0].Topology)
		for _, part := range t.parts(kept, at) {
			lacks := min(missing, (size-part.Count%size)%size)
			if reason := place(lacks, &kueue.PodSetTopologyRequest{Required: &layers[0].Topology}, part.Values); reason != "" {
				return nil, reason
			}
		}
	}
	topology, within := r.Topology, []string(nil)
	switch {
	case topology != nil && topology.Required != nil:
		if anchor := t.parts(slices.Concat(kept, beside), slices.Index(t.levels, *topology.Required)); len(anchor) > 0 {
			within = anchor[0].Values
		}
	case topology == nil || topology.Preferred == nil && len(layers) == 0:
		topology = &kueue.PodSetTopologyRequest{Unconstrained: ptr.To(true)}
	}
	if reason := place(missing, topology, within); reason != "" {
		return nil, reason
	}
	return t.merged(kept), ""
}

// split divides domains into those that stay and how many pods were on the others.
func split(domains []Domain, lost map[string]bool) (kept []Domain, missing int32) {
	for _, d := range domains {
		if lost[d.Values[len(d.Values)-1]] {
			missing += d.Count
		} else {
			kept = append(kept, d)
		}
	}
	return kept, missing
}

// path has the values of all levels of a leaf.
func (t *Tree) path(d Domain) []string {
	l := t.leaves[t.id(d.Values)]
	if l == nil {
		return d.Values
	}
	return append(slices.Clone(l.bottom.values), l.name)
}

// parts are how many pods there are in each domain of a level.
func (t *Tree) parts(domains []Domain, level int) (out []Domain) {
	for _, d := range domains {
		values := t.path(d)
		values = values[:min(level+1, len(values))]
		if i := slices.IndexFunc(out, func(o Domain) bool { return slices.Equal(o.Values, values) }); i >= 0 {
			out[i].Count += d.Count
		} else {
			out = append(out, Domain{values, d.Count})
		}
	}
	return out
}

// merged has each domain once, in the order of the tree.
func (t *Tree) merged(domains []Domain) (out []Domain) {
	slices.SortStableFunc(domains, func(a, b Domain) int { return slices.Compare(t.path(a), t.path(b)) })
	for _, d := range domains {
		if n := len(out); n > 0 && slices.Equal(out[n-1].Values, d.Values) {
			out[n-1].Count += d.Count
		} else {
			out = append(out, d)
		}
	}
	return out
}
