package placement

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Repair finds new places for the pods that were on lost nodes, near those that stay: within the domain of the level that
// is required, and those of a slice within the slice's. It returns all domains as they are then. Beside are
// domains of the podSets that must be in the same one. For a single lost node it is Kueue's answer, where Kueue has one.
func (t *Tree) Repair(r *Request, domains, beside []Domain, lost map[string]bool) (repaired []Domain, reason string) {
	p := &repair{Request: r, view: t.View()}
	p.kept, p.missing, p.single = split(domains, lost)
	layers := layersOf(r.Topology)
	if len(layers) == 1 {
		for _, d := range domains {
			p.tail = (p.tail + d.Count) % layers[0].Size
		}
	}
	if reason = p.complete(); reason == "" {
		reason = p.place(p.missing, p.anywhere(), p.anchor(beside))
	}
	if reason != "" {
		return nil, reason
	}
	repaired = t.merged(p.kept)
	if level := slices.Index(t.levels, sliceLevel(layers)); p.tail > 0 && level >= 0 {
		repaired = t.tailLast(repaired, level, layers[0].Size)
	}
	return repaired, ""
}

func sliceLevel(layers []kueue.PodsetSliceRequiredTopologyConstraint) string {
	if len(layers) == 0 {
		return ""
	}
	return layers[0].Topology
}

// repair is of the pods of a request that have lost their nodes.
type repair struct {
	*Request
	view *View
	// kept are the domains of the pods that have a place.
	kept []Domain
	// missing pods have none yet.
	missing int32
	// single: they were on one node.
	single bool
	// tail is how many pods are in the partial slice, which the last domain has.
	tail int32
}

// place puts so many of the missing pods within a domain.
func (p *repair) place(count int32, topology *kueue.PodSetTopologyRequest, within []string) (reason string) {
	if count == 0 {
		return ""
	}
	next := *p.Request
	next.Count, next.Leader, next.Topology, next.Within = count, nil, topology, within
	found := p.view.Place(&next)
	if found.Reason != "" {
		return found.Reason
	}
	p.view.Use(found.Pods, p.Pod, 1)
	p.kept = append(p.kept, found.Pods...)
	p.missing -= count
	return ""
}

// complete puts as many pods as slices lack that have some left where these are, from the smallest slices to the largest.
func (p *repair) complete() (reason string) {
	layers := layersOf(p.Topology)
	for i, layer := range slices.Backward(layers) {
		parts := p.view.tree.parts(p.kept, slices.Index(p.view.tree.levels, layer.Topology))
		for j, part := range parts {
			lacks := -part.Count % layer.Size
			if j == len(parts)-1 {
				lacks += p.tail
			}
			lacks = min(p.missing, (lacks+layer.Size)%layer.Size)
			if lacks > 0 && p.single && p.place(p.missing, p.together(layer, layers[i+1:]), part.Values) == "" {
				return "" // all pods of the node are where they were, rather than whole slices elsewhere
			}
			finer := &kueue.PodSetTopologyRequest{Required: &layer.Topology, PodsetSliceRequiredTopologyConstraints: layers[i+1:]}
			if reason := p.place(lacks, finer, part.Values); reason != "" && part.Count%layer.Size != 0 {
				return reason // a partial slice that is lost as a whole may be elsewhere
			}
		}
	}
	return ""
}

// together asks for the missing pods as what is asked for, in slices of the finest layer that they fill.
func (p *repair) together(broken kueue.PodsetSliceRequiredTopologyConstraint,
	finer []kueue.PodsetSliceRequiredTopologyConstraint) *kueue.PodSetTopologyRequest {
	out := p.Topology.DeepCopy()
	out.PodSetSliceRequiredTopology, out.PodSetSliceSize, out.PodsetSliceRequiredTopologyConstraints = nil, nil, nil
	for _, layer := range slices.Backward(finer) {
		if p.missing%layer.Size == 0 {
			out.PodSetSliceRequiredTopology, out.PodSetSliceSize = &layer.Topology, &layer.Size
			break
		}
	}
	if !Asks(out) {
		out.Required = &broken.Topology // Kueue finds no place where slices are all that is asked for
	}
	return out
}

// anywhere asks for pods that complete no slice.
func (p *repair) anywhere() *kueue.PodSetTopologyRequest {
	if t := p.Topology; t != nil && (t.Required != nil || t.Preferred != nil || len(layersOf(t)) > 0) {
		return t
	}
	return &kueue.PodSetTopologyRequest{Unconstrained: new(true)}
}

// anchor is the domain of the level that is required in which the others are; empty where none is.
func (p *repair) anchor(beside []Domain) []string {
	if p.Topology == nil || p.Topology.Required == nil {
		return nil
	}
	tree := p.view.tree
	for _, part := range tree.parts(slices.Concat(p.kept, beside), slices.Index(tree.levels, *p.Topology.Required)) {
		return part.Values
	}
	return nil
}

// split divides domains into those that stay and how many pods were on the others; single is true for one other.
func split(domains []Domain, lost map[string]bool) (kept []Domain, missing int32, single bool) {
	for _, d := range domains {
		if lost[d.Values[len(d.Values)-1]] {
			missing += d.Count
		} else {
			kept = append(kept, d)
		}
	}
	return kept, missing, len(kept) == len(domains)-1
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
