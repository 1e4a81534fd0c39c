package fit

import "slices"

// Kept is the pod where it is kept to nodes with these labels, beside what it asks
// itself, and where there are count of it.
func (p *Pod) Kept(count int, labels map[string]string) *Pod {
	out := *p
	out.Count = count
	out.nodeSelector = slices.Concat(p.nodeSelector, sortedLabels(labels))
	return &out
}
