package queueing

import (
	"cmp"
	"slices"
	"strings"
)

// sortQueue puts the pending Workloads of a ClusterQueue in their order: higher
// priority, then longer in the queue, then the UID, which is unique.
func sortQueue(pending []*Workload) {
	slices.SortFunc(pending, func(a, b *Workload) int {
		return cmp.Or(
			cmp.Compare(priority(b.Object), priority(a.Object)),
			queuedSince(a.Object).Compare(queuedSince(b.Object)),
			strings.Compare(string(a.Object.UID), string(b.Object.UID)),
		)
	})
}
