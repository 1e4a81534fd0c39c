package placement

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Repair replaces the assignments of pods to lost nodes and returns all domains of the podSet afterwards. The new nodes
// are in the same domain of the required level, and a slice stays in its domain. Beside are the domains of the podSets
// that must share the domain of the required level. For a single lost node the result is Kueue's, if Kueue finds one.
func (t *Tree) Repair(r *Request, domains, beside []Domain, lost map[string]bool) (repaired []Domain, reason string) {
	p := &repair{Request: r, view: t.Snapshot()}
	p.kept, p.missing, p.single = splitLost(domains, lost)
	layers := layersOf(r.Topology)
	if len(layers) == 1 {
		for _, d := range domains {
			p.tail = (p.tail + d.Count) % layers[0].Size
		}
	}
	if reason = p.completeSlices(); reason == "" {
		reason = p.place(p.missing, p.missingRequest(), p.requiredDomain(beside))
	}
	if reason != "" {
		return nil, reason
	}
	repaired = t.mergeDomains(p.kept)
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

// repair is the replacement of lost nodes of one podSet.
type repair struct {
	*Request
	view *Snapshot
	// kept are the domains of the pods that have a node.
	kept []Domain
	// missing is the number of pods without a node.
	missing int32
	// single reports whether one node was lost.
	single bool
	// tail is the number of pods in the partial slice, which is in the last domain.
	tail int32
}

// place assigns count missing pods to nodes within a domain.
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
	p.view.AddUsage(found.Pods, p.Pod, 1)
	p.kept = append(p.kept, found.Pods...)
	p.missing -= count
	return ""
}

// completeSlices replaces the missing pods of slices that still have pods, within the domains of these, from the
// smallest slices to the largest.
func (p *repair) completeSlices() (reason string) {
	layers := layersOf(p.Topology)
	for i, layer := range slices.Backward(layers) {
		parts := p.view.tree.podsPerDomain(p.kept, slices.Index(p.view.tree.levels, layer.Topology))
		for j, part := range parts {
			lacks := -part.Count % layer.Size
			if j == len(parts)-1 {
				lacks += p.tail
			}
			lacks = min(p.missing, (lacks+layer.Size)%layer.Size)
			if lacks > 0 && p.single && p.place(p.missing, p.missingTogether(layer, layers[i+1:]), part.Values) == "" {
				return "" // all pods stay in one domain rather than whole slices moving elsewhere
			}
			finer := &kueue.PodSetTopologyRequest{Required: &layer.Topology, PodsetSliceRequiredTopologyConstraints: layers[i+1:]}
			if reason := p.place(lacks, finer, part.Values); reason != "" && part.Count%layer.Size != 0 {
				return reason // a partial slice that is lost as a whole may move elsewhere
			}
		}
	}
	return ""
}

// missingTogether returns the topology request for all missing pods: the original request, with the finest layer of
// slices that divides them.
func (p *repair) missingTogether(broken kueue.PodsetSliceRequiredTopologyConstraint,
	finer []kueue.PodsetSliceRequiredTopologyConstraint) *kueue.PodSetTopologyRequest {
	out := p.Topology.DeepCopy()
	out.PodSetSliceRequiredTopology, out.PodSetSliceSize, out.PodsetSliceRequiredTopologyConstraints = nil, nil, nil
	for _, layer := range slices.Backward(finer) {
		if p.missing%layer.Size == 0 {
			out.PodSetSliceRequiredTopology, out.PodSetSliceSize = &layer.Topology, &layer.Size
			break
		}
	}
	if !RequestsTopology(out) {
		out.Required = &broken.Topology // Kueue finds no place if slices are all that is requested
	}
	return out
}

// missingRequest returns the topology request for pods that complete no slice.
func (p *repair) missingRequest() *kueue.PodSetTopologyRequest {
	if t := p.Topology; t != nil && (t.Required != nil || t.Preferred != nil || len(layersOf(t)) > 0) {
		return t
	}
	return &kueue.PodSetTopologyRequest{Unconstrained: new(true)}
}

// requiredDomain returns the domain of the required level that contains the other pods; empty if there is none.
func (p *repair) requiredDomain(beside []Domain) []string {
	if p.Topology == nil || p.Topology.Required == nil {
		return nil
	}
	tree := p.view.tree
	for _, part := range tree.podsPerDomain(slices.Concat(p.kept, beside), slices.Index(tree.levels, *p.Topology.Required)) {
		return part.Values
	}
	return nil
}

// splitLost separates the domains that remain from the pods of lost ones. Single reports whether exactly one domain was
// lost.
func splitLost(domains []Domain, lost map[string]bool) (kept []Domain, missing int32, single bool) {
	for _, d := range domains {
		if lost[d.Values[len(d.Values)-1]] {
			missing += d.Count
		} else {
			kept = append(kept, d)
		}
	}
	return kept, missing, len(kept) == len(domains)-1
}

// path returns the values of all levels of a leaf.
func (t *Tree) path(d Domain) []string {
	l := t.leaves[t.id(d.Values)]
	if l == nil {
		return d.Values
	}
	return append(slices.Clone(l.parent.values), l.name)
}

// podsPerDomain returns the number of pods in each domain of a level.
func (t *Tree) podsPerDomain(domains []Domain, level int) (out []Domain) {
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

// mergeDomains returns each domain once, in the order of the tree.
func (t *Tree) mergeDomains(domains []Domain) (out []Domain) {
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
