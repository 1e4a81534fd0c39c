package preemption

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// source is a ClusterQueue that may have candidates.
type source struct {
	queue *quota.Node
	// below are the ClusterQueue and its ancestors that are not the preemptor's, the
	// topmost last. The preemptor's own ClusterQueue has none.
	below []*quota.Node
	// distance is how far up the preemptor's path the two meet: 0 is the own
	// ClusterQueue.
	distance int
	// entitled reports whether a part of the tree without this ClusterQueue has the
	// nominal quota for the preemptor. It is unset with fair sharing, where the shares
	// decide.
	entitled bool
}

// candidate is a Workload that may be preempted when its turn comes.
type candidate struct {
	*Workload
	*source
	// bound reports whether the preemptor may not borrow if it preempts this one.
	bound bool
}

// collect finds the candidates. Parts of the tree that are within their nominal quota
// are skipped.
func (t *trial) collect() {
	if PolicyOf(t.Policy.WithinClusterQueue) != kueue.PreemptionPolicyNever {
		t.sources = append(t.sources, &source{queue: t.Queue})
	}
	if PolicyOf(t.Policy.ReclaimWithinCohort) != kueue.PreemptionPolicyNever {
		entitled, rest := false, t.Needs
		for i, n := range t.path[:len(t.path)-1] {
			var within bool
			within, rest = taken(n, rest)
			entitled = entitled || within
			t.around(t.path[i+1], n, source{distance: i + 1, entitled: entitled && t.FairSharing == nil})
		}
	}
	for _, s := range t.sources {
		running := t.Running(s.queue)
		var room []candidate
		for i, w := range running {
			switch {
			case !t.suits(s, w):
			case w.Claimed:
				t.claimed = true
			default:
				if room == nil {
					// One allocation for a whole queue, which may have many.
					room = make([]candidate, 0, len(running)-i)
				}
				room = append(room, candidate{w, s, t.isBound(s, w)})
				t.candidates = append(t.candidates, &room[len(room)-1])
			}
		}
	}
}

// taken reports whether the node has the nominal quota for the needs, and returns the
// part of them that its parent would see.
func taken(n *quota.Node, needs quota.Amounts) (within bool, rest quota.Amounts) {
	within, rest = true, quota.Amounts{}
	for fr, v := range needs {
		within = within && !n.Borrows(fr, v)
		rest[fr] = max(0, v-n.Unused(fr))
	}
	return within, rest
}

// around adds the ClusterQueues below a cohort that borrow, except those below the
// child but.
func (t *trial) around(cohort, but *quota.Node, s source) {
	for _, child := range cohort.Children() {
		if child == but || !t.over(child) {
			continue
		}
		next := s
		next.below = append([]*quota.Node{child}, s.below...)
		if len(child.Children()) > 0 {
			t.around(child, nil, next)
			continue
		}
		next.queue = child
		t.sources = append(t.sources, &next)
	}
}

// suits reports whether the Workload uses a resource that is short and its priority
// does not protect it.
func (t *trial) suits(s *source, w *Workload) bool {
	uses := slices.ContainsFunc(t.short, func(fr quota.FlavorResource) bool { return w.Usage[fr] > 0 })
	if !uses || w.Evicted {
		return uses
	}
	policy := t.Policy.ReclaimWithinCohort
	if s.queue == t.Queue {
		policy = t.Policy.WithinClusterQueue
	}
	switch policy {
	case kueue.PreemptionPolicyAny:
		return true
	case kueue.PreemptionPolicyLowerOrNewerEqualPriority:
		return w.Priority < t.Priority || w.Priority == t.Priority && t.Queued.Before(w.Queued)
	}
	return w.Priority < t.Priority
}

// isBound reports whether the preemptor may preempt the Workload only if it does not
// borrow afterwards, as borrowWithinCohort does not allow it.
func (t *trial) isBound(s *source, w *Workload) bool {
	if t.FairSharing != nil || s.queue == t.Queue || s.entitled || w.Evicted {
		return false
	}
	b := t.Policy.BorrowWithinCohort
	return !MayBorrow(b) || w.Priority >= t.Priority ||
		b.MaxPriorityThreshold != nil && w.Priority > *b.MaxPriorityThreshold
}

// MayBorrow reports whether a ClusterQueue may preempt others for quota that it borrows.
func MayBorrow(b *kueue.BorrowWithinCohort) bool {
	return b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority
}

// PolicyOf returns the policy or its default.
func PolicyOf(p kueue.PreemptionPolicy) kueue.PreemptionPolicy {
	return cmp.Or(p, kueue.PreemptionPolicyNever)
}

// order compares candidates. First come evicted ones, then those of other ClusterQueues,
// starting with quota that the preemptor is entitled to. In the own ClusterQueue the
// LocalQueue that has used most comes first. Ties are broken by lower priority, by
// shorter distance, by later reservation, and by UID, which is unique.
func order(a, b *candidate) int {
	switch {
	case a.Evicted && !b.Evicted:
		return -1
	case b.Evicted && !a.Evicted:
		return 1
	case a.rank() != b.rank():
		return cmp.Compare(a.rank(), b.rank())
	case a.distance == 0 && a.LocalQueueUsage != b.LocalQueueUsage:
		return cmp.Compare(b.LocalQueueUsage, a.LocalQueueUsage)
	case a.Priority != b.Priority:
		return cmp.Compare(a.Priority, b.Priority)
	case a.distance != b.distance:
		return cmp.Compare(a.distance, b.distance)
	case !a.Reserved.Equal(b.Reserved):
		return b.Reserved.Compare(a.Reserved)
	}
	return strings.Compare(string(a.UID), string(b.UID))
}

// inOrder yields the candidates in order. It sorts no more of them than are consumed.
func inOrder(candidates []*candidate) iter.Seq[*candidate] {
	return func(yield func(*candidate) bool) {
		rest := pile(slices.Clone(candidates))
		for heap.Init(&rest); len(rest) > 0; {
			if !yield(heap.Pop(&rest).(*candidate)) {
				return
			}
		}
	}
}

// pile is a heap with the first candidate on top.
type pile []*candidate

func (p pile) Len() int           { return len(p) }
func (p pile) Less(i, j int) bool { return order(p[i], p[j]) < 0 }
func (p pile) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *pile) Push(c any)        { *p = append(*p, c.(*candidate)) }

func (p *pile) Pop() any {
	last := len(*p) - 1
	c := (*p)[last]
	*p = (*p)[:last]
	return c
}

// rank orders the claims that the preemptor can have to quota. The best is 0.
func (s *source) rank() int {
	switch {
	case s.distance == 0:
		return 2
	case s.entitled:
		return 0
	}
	return 1
}
