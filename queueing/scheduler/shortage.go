package scheduler

import (
	"math"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// Most Workloads wait for quota, and the quota that one Workload releases helps few of them. A result that only quota
// can change therefore has the amounts that are short. It is compared with what is free after a release, in place of an
// evaluation of its Workloads.

// evaluatesAll reports whether all Workloads of a tree are evaluated again after a release: if few wait, since then it costs little and
// all messages are up to date, or if quota is reserved.
func (s *Cycle) evaluatesAll(t *cache.Tree) bool {
	pending := 0
	for _, q := range t.Queues {
		pending += q.Pending.Len()
	}
	return t.HasReservations || s.budget == 0 || pending <= s.budget/EffortOfPlan
}

// unexpandedQueue returns the iterator over a queue of a tree in which quota was released.
func (d *treeIterator) unexpandedQueue(q *cache.ClusterQueue) *queueIterator {
	head, _ := q.Pending.Min()
	return &queueIterator{queue: q, unexpanded: true, pending: []*cache.Workload{head}, borrowingLevel: d.s.lowestBorrowingLevel(q)}
}

// lowestBorrowingLevel returns a level that no assignment of a Workload of the queue is below.
func (s *Cycle) lowestBorrowingLevel(q *cache.ClusterQueue) int {
	shortages, priority, quotaOnly := q.LeastShortages()
	if !quotaOnly || len(q.Unevaluated) > 0 || len(shortages) == 0 {
		return 0
	}
	lowest := math.MaxInt
	for _, x := range shortages {
		if s.mayPreempt(q, x, priority) {
			return 0 // what the victims release may be of the queue itself
		}
		lowest = min(lowest, q.Node.BorrowingLevel(x.FlavorResource, x.Amount))
	}
	return lowest
}

// expand finds the Workloads that the released quota may help.
func (d *treeIterator) expand(l *queueIterator) {
	s, q := d.s, l.queue
	l.unexpanded = false
	shortages, priority, quotaOnly := q.LeastShortages()
	if quotaOnly && len(q.Unevaluated) == 0 && s.areShort(q, shortages, priority) {
		d.start(l, nil)
	} else {
		d.start(l, q.RequeueUnless(func(class cache.EquivalenceClass, r *cache.Inadmissible) bool {
			return s.areShort(q, r.Shortages, class.Priority)
		}, s.cache.Cycles))
	}
	q.MarkEvaluated()
	d.reserveForHead(q, l)
}

// areShort reports whether all of the amounts are short.
func (s *Cycle) areShort(q *cache.ClusterQueue, shortages []cache.Shortage, priority int32) bool {
	return !slices.ContainsFunc(shortages, func(x cache.Shortage) bool { return !s.isShort(q, x, priority) })
}

// isShort reports whether an amount is not free, and no preemption can help a Workload of the priority.
func (s *Cycle) isShort(q *cache.ClusterQueue, x cache.Shortage, priority int32) bool {
	return x.Amount > max(0, q.Node.Available(x.FlavorResource)) && !s.mayPreempt(q, x, priority)
}

// mayPreempt reports whether there may be candidates for preemption.
func (s *Cycle) mayPreempt(q *cache.ClusterQueue, x cache.Shortage, priority int32) bool {
	if !preempts(q.Object) || !s.mayPreemptFor(q, x.FlavorResource, x.Amount) {
		return false
	}
	p := q.Object.Spec.Preemption
	if preemption.PolicyOf(p.WithinClusterQueue) != kueue.PreemptionPolicyNever && s.hasCandidates(q, p.WithinClusterQueue, priority) {
		return true
	}
	// Without victims of its own, the queue uses as much as before. It may reclaim only within its nominal quota or that of a cohort
	// around it, unless it may preempt while it borrows. A victim that is evicted anyway forbids nothing.
	return preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyNever && q.Node.OthersBorrow(x.FlavorResource) &&
		(s.cache.Config.FairSharing != nil || preemption.MayBorrow(p.BorrowWithinCohort) || q.Tree.HasEvicted() ||
			q.Node.WithinReclaimable(x.FlavorResource, x.Amount))
}

// shortages returns what keeps the Workload from any quota; quotaOnly is false if something else does, too.
func (a *assigner) shortages() (out []cache.Shortage, quotaOnly bool) {
	switch {
	case workload.ReplacedKey(a.w.Object).Name != "" || a.candidatesTargeted || !a.until.IsZero():
		return nil, false
	case a.Chosen == nil:
		return nil, true // no flavor has quota for one of its resources
	}
	for i := range a.groupRequests {
		if out, ok := a.groupShortages(i); ok {
			return out, true
		}
	}
	return nil, false
}

// groupShortages returns a shortage for each flavor of group request i that matches; ok is false if a flavor has none.
func (a *assigner) groupShortages(i int) (out []cache.Shortage, ok bool) {
	s := a.groupRequests[i]
	spec := a.s.cache.CompletePodSpec(a.w.Object.Namespace, &a.w.Object.Spec.PodSets[s.podSet].Template.Spec)
	for _, f := range s.flavors {
		var all []cache.Shortage
		for _, name := range s.requests.Names() {
			all = append(all, cache.Shortage{FlavorResource: quota.FlavorResource{Flavor: f.Name, Resource: name}, Amount: s.requests[name]})
		}
		exceeds := func(x cache.Shortage) bool { return x.Amount > a.queue.Node.Potential(x.FlavorResource) }
		if slices.ContainsFunc(all, exceeds) || workload.Mismatch(spec, a.s.cache.Flavors[f.Name]) != "" {
			continue // whatever is released
		}
		k := slices.IndexFunc(all, func(x cache.Shortage) bool { return a.s.isShort(a.queue, x, a.w.Priority) })
		if k < 0 {
			return nil, false
		}
		out = append(out, all[k])
	}
	return out, true
}
