package scheduler

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
)

// reservesForHead reports whether quota is reserved for the head of the queue.
func reservesForHead(q *cache.ClusterQueue) bool {
	p := q.Object.Spec.Preemption
	return q.Node.Parent() != nil && (p == nil || preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyAny)
}

// headReservationOf returns the free part of the nominal quota that a head waits for: on the first flavor that matches
// each of its podSets and has enough nominal quota. It is empty if the head has to borrow in any case.
func (s *Cycle) headReservationOf(q *cache.ClusterQueue, w *cache.Workload) quota.Amounts {
	a := &assigner{s: s, queue: q, w: w, counts: cache.PodCounts(w), assumed: quota.Amounts{}, replaced: s.cache.ReplacedBy(q, w)}
	if !a.splitRequests() {
		return nil
	}
	a.Chosen = make([]flavorCandidate, len(a.groupRequests))
	for i := range a.groupRequests {
		at := slices.IndexFunc(a.groupRequests[i].flavors, func(f kueue.FlavorQuotas) bool {
			return a.flavorMismatch(i, f.Name) == "" && a.isNominal(i, f.Name)
		})
		if at < 0 {
			return nil
		}
		a.Chosen[i] = flavorCandidate{Flavor: a.groupRequests[i].flavors[at].Name}
		a.assumed.Add(a.usageOf(i, a.Chosen[i].Flavor))
	}
	out := quota.Amounts{}
	for fr, v := range a.assumed {
		if free := min(v, q.Node.Quota(fr).Nominal-q.Node.Usage(fr)); free > 0 {
			out[fr] = free
		}
	}
	return out
}

// isNominal reports whether group request i fits in the nominal quota of a flavor.
func (a *assigner) isNominal(i int, flavor kueue.ResourceFlavorReference) bool {
	for fr, v := range a.usageOf(i, flavor) {
		if nodegroups.Plus(v, a.assumed[fr]) > a.queue.Node.Quota(fr).Nominal {
			return false
		}
	}
	return true
}

// reserveForHead replaces the reservation for the head of a queue. It reserves only if the head is inadmissible; a head
// that is still in the iterator is evaluated soon. The iterator is nil if nothing of the queue is evaluated.
func (d *treeIterator) reserveForHead(q *cache.ClusterQueue, l *queueIterator) {
	t := d.tree
	// More or less can be borrowed now, so earlier assignments are outdated.
	before := len(t.HeadReservations)
	if t.HeadReservations = slices.DeleteFunc(t.HeadReservations,
		func(k cache.HeadReservation) bool { return k.Queue == q }); len(t.HeadReservations) < before {
		d.version++
	}
	head, ok := q.Pending.Min()
	if !ok || !reservesForHead(q) || head.Reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota || l != nil && l.contains(head) {
		return
	}
	if usage := d.s.headReservationOf(q, head); len(usage) > 0 {
		t.HeadReservations = append(t.HeadReservations, cache.HeadReservation{Queue: q, Head: head, Usage: usage})
		d.version++
	}
}

// reserveForHeads reserves quota for the heads that are not evaluated.
func (d *treeIterator) reserveForHeads() {
	lines := make(map[*cache.ClusterQueue]*queueIterator, len(d.queues))
	for _, l := range d.queues {
		lines[l.queue] = l
	}
	for _, q := range d.tree.Queues {
		d.reserveForHead(q, lines[q])
	}
}

// reserveForRefused reserves quota for a Workload that became inadmissible, if it is the head.
func (d *treeIterator) reserveForRefused(l *queueIterator, w *cache.Workload) {
	if head, _ := l.queue.Pending.Min(); head == w {
		d.reserveForHead(l.queue, l)
	}
}

// reserveForNext reserves quota for the next head after a Workload was assigned. What was reserved for that Workload
// and is not used may let others start.
func (d *treeIterator) reserveForNext(l *queueIterator, w *cache.Workload, usage quota.Amounts) {
	for _, k := range d.tree.HeadReservations {
		if k.Head == w && !k.Usage.Within(usage) {
			d.tree.QuotaReleased = true
		}
	}
	d.reserveForHead(l.queue, l)
}

// borrowsReserved returns the reservation for the head of another queue that an assignment would borrow from; nil if
// there is none. A reservation does not apply to a Workload of higher priority. Nor does it apply to quota that is
// already lent: the head could not get that back, whatever the assignment takes from its victims.
func borrowsReserved(q *cache.ClusterQueue, w *cache.Workload, p *Assignment) *cache.HeadReservation {
	if p.borrowingLevel == 0 || len(q.Tree.HeadReservations) == 0 {
		return nil
	}
	var holding []cache.HeadReservation
	for _, k := range q.Tree.HeadReservations {
		if k.Queue == q || k.Head.Priority < w.Priority {
			continue
		}
		if free := k.Queue.Node.Free(k.Usage); len(free) > 0 {
			holding = append(holding, cache.HeadReservation{Queue: k.Queue, Head: k.Head, Usage: free})
		}
	}
	for _, v := range p.victims {
		v.Queue.Node.Sub(v.Usage)
		defer v.Queue.Node.Add(v.Usage)
	}
	var first *cache.HeadReservation
	for i := range holding {
		k := &holding[i]
		for fr, v := range p.Usage {
			if k.Usage[fr] > 0 && q.Node.Borrows(fr, v) {
				first = cmp.Or(first, k)
			}
		}
		k.Queue.Node.Add(k.Usage)
		defer k.Queue.Node.Sub(k.Usage)
	}
	if q.Node.Fits(p.Usage) {
		return nil
	}
	return first
}
