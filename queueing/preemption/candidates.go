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

// candidateQueue is a ClusterQueue that may have candidates.
type candidateQueue struct {
	queue *quota.Node
	// path is the ClusterQueue and its ancestors below the one that it has in common with the preemptor, the topmost
	// last. It is empty for the preemptor's own ClusterQueue.
	path []*quota.Node
	// distance is how far up the preemptor's path the common ancestor is: 0 is the own ClusterQueue.
	distance int
	// hierarchicalAdvantage reports whether a subtree without this ClusterQueue has the nominal quota for the
	// preemptor. It is unset with fair sharing, where the shares decide.
	hierarchicalAdvantage bool
}

// candidate is a Workload that may be preempted when its turn comes.
type candidate struct {
	*Workload
	*candidateQueue
	// forbidsBorrowing reports whether the preemptor may not borrow if it preempts this one.
	forbidsBorrowing bool
}

// collect finds the candidates. It skips subtrees within their nominal quota.
func (t *simulation) collect() {
	if PolicyOf(t.Policy.WithinClusterQueue) != kueue.PreemptionPolicyNever {
		t.sources = append(t.sources, &candidateQueue{queue: t.Queue})
	}
	if PolicyOf(t.Policy.ReclaimWithinCohort) != kueue.PreemptionPolicyNever {
		entitled, rest := false, t.Needs
		for i, n := range t.path[:len(t.path)-1] {
			var within bool
			within, rest = nominalRest(n, rest)
			entitled = entitled || within
			t.collectAround(t.path[i+1], n, candidateQueue{distance: i + 1, hierarchicalAdvantage: entitled && t.FairSharing == nil})
		}
	}
	for _, s := range t.sources {
		running := t.Running(s.queue)
		var room []candidate
		for i, w := range running {
			switch {
			case !t.suits(s, w):
			case w.Targeted:
				t.candidatesTargeted = true
			default:
				if room == nil {
					// One allocation for a whole queue, which may have many candidates.
					room = make([]candidate, 0, len(running)-i)
				}
				room = append(room, candidate{w, s, t.forbidsBorrowing(s, w)})
				t.candidates = append(t.candidates, &room[len(room)-1])
			}
		}
	}
}

// nominalRest reports whether the node has the nominal quota for the needs, and returns the rest that its parent would
// see.
func nominalRest(n *quota.Node, needs quota.Amounts) (within bool, rest quota.Amounts) {
	within, rest = true, quota.Amounts{}
	for fr, v := range needs {
		within = within && !n.Borrows(fr, v)
		rest[fr] = max(0, v-n.Unused(fr))
	}
	return within, rest
}

// collectAround adds the ClusterQueues below a cohort that borrow, except those below the child but.
func (t *simulation) collectAround(cohort, but *quota.Node, s candidateQueue) {
	for _, child := range cohort.Children() {
		if child == but || !t.isBorrowing(child) {
			continue
		}
		next := s
		next.path = append([]*quota.Node{child}, s.path...)
		if len(child.Children()) > 0 {
			t.collectAround(child, nil, next)
			continue
		}
		next.queue = child
		t.sources = append(t.sources, &next)
	}
}

// suits reports whether the Workload uses a resource that is short and its priority
// does not protect it.
func (t *simulation) suits(s *candidateQueue, w *Workload) bool {
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

// forbidsBorrowing reports whether the preemptor may preempt the Workload only if it does not borrow afterwards,
// because borrowWithinCohort does not allow it.
func (t *simulation) forbidsBorrowing(s *candidateQueue, w *Workload) bool {
	if t.FairSharing != nil || s.queue == t.Queue || s.hierarchicalAdvantage || w.Evicted {
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
		rest := candidateHeap(slices.Clone(candidates))
		for heap.Init(&rest); len(rest) > 0; {
			if !yield(heap.Pop(&rest).(*candidate)) {
				return
			}
		}
	}
}

// candidateHeap is a heap with the first candidate on top.
type candidateHeap []*candidate

func (p candidateHeap) Len() int           { return len(p) }
func (p candidateHeap) Less(i, j int) bool { return order(p[i], p[j]) < 0 }
func (p candidateHeap) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *candidateHeap) Push(c any)        { *p = append(*p, c.(*candidate)) }

func (p *candidateHeap) Pop() any {
	last := len(*p) - 1
	c := (*p)[last]
	*p = (*p)[:last]
	return c
}

// rank orders candidates by the preemptor's right to their quota. The best is 0.
func (s *candidateQueue) rank() int {
	switch {
	case s.distance == 0:
		return 2
	case s.hierarchicalAdvantage:
		return 0
	}
	return 1
}
