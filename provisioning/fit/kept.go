package fit

import "slices"

// Kept is the pod where it is kept to nodes with these labels, beside what it asks
// itself, and where there are count of it left. Where the others run, the labels identify the domain,
// and which of them are of a slice is not known.
func (p *Pod) Kept(count int, labels map[string]string) *Pod {
	out := *p
	if count < p.Count {
		out.Domains = Domains{PerNode: 1}
	}
	out.Count = count
	out.nodeSelector = slices.Concat(p.nodeSelector, sortedLabels(labels))
	return &out
}

// Again is the pod where count of those that ran are made again on nodes with these labels: those that shared a node still do.
func (p *Pod) Again(count int, labels map[string]string) *Pod {
	out := p.Kept(count, labels)
	out.PerNode = min(p.PerNode, count)
	return out
}

// Slices is the pod where count of them are left, which are whole slices: each is within a domain as before.
func (p *Pod) Slices(count int, labels map[string]string) *Pod {
	out := p.Kept(count, labels)
	out.PerNode = min(p.PerNode, count)
	for _, l := range p.Layers {
		if l.Size <= count {
			out.Layers = append(out.Layers, l)
		}
	}
	return out
}

// IsBound reports whether annotations say within which domains the pods must be.
func (p *Pod) IsBound() bool { return len(p.Layers) > 0 || p.PerNode > 1 }

// Unbound is the pod as if it might be in any domains.
func (p *Pod) Unbound() *Pod {
	out := *p
	out.Domains = Domains{PerNode: 1}
	return &out
}
