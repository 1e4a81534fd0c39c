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

// reservesForHead reports whether the queue keeps quota for its head.
func reservesForHead(q *cache.ClusterQueue) bool {
	p := q.Object.Spec.Preemption
	return q.Node.Parent() != nil && (p == nil || preemption.PolicyOf(p.ReclaimWithinCohort) != kueue.PreemptionPolicyAny)
}

// headReservationOf is what is free of the nominal quota that a Workload waits for: on the first
// flavor that suits each of its podSets and has as much nominal quota. It is empty for one
// that has to borrow in any case.
func (s *Cycle) headReservationOf(q *cache.ClusterQueue, w *cache.Workload) quota.Amounts {
	a := &assigner{s: s, queue: q, w: w, counts: cache.PodCounts(w), assumed: quota.Amounts{}, old: s.cache.ReplacedBy(q, w)}
	if !a.split() {
		return nil
	}
	a.Chosen = make([]option, len(a.slots))
	for i := range a.slots {
		at := slices.IndexFunc(a.slots[i].flavors, func(f kueue.FlavorQuotas) bool {
			return a.unsuitable(i, f.Name) == "" && a.isNominal(i, f.Name)
		})
		if at < 0 {
			return nil
		}
		a.Chosen[i] = option{Flavor: a.slots[i].flavors[at].Name}
		a.assumed.Add(a.use(i, a.Chosen[i].Flavor))
	}
	out := quota.Amounts{}
	for fr, v := range a.assumed {
		if free := min(v, q.Node.Quota(fr).Nominal-q.Node.Usage(fr)); free > 0 {
			out[fr] = free
		}
	}
	return out
}

// isNominal reports whether slot i asks for no more than the nominal quota of a flavor.
func (a *assigner) isNominal(i int, flavor kueue.ResourceFlavorReference) bool {
	for fr, v := range a.use(i, flavor) {
		if nodegroups.Plus(v, a.assumed[fr]) > a.queue.Node.Quota(fr).Nominal {
			return false
		}
	}
	return true
}

// reserveForHead keeps quota for the head of a queue, in place of the one before it, if the head has
// been refused. One that is still in line is judged soon. The line is nil where none of the
// queue is judged.
func (d *drainer) reserveForHead(q *cache.ClusterQueue, l *line) {
	t := d.tree
	// What was found out about others is not true any more if there is more or less to
	// borrow.
	before := len(t.HeadReservations)
	if t.HeadReservations = slices.DeleteFunc(t.HeadReservations,
		func(k cache.HeadReservation) bool { return k.Queue == q }); len(t.HeadReservations) < before {
		d.version++
	}
	head, ok := q.Pending.Min()
	if !ok || !reservesForHead(q) || head.Reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota || l != nil && l.has(head) {
		return
	}
	if usage := d.s.headReservationOf(q, head); len(usage) > 0 {
		t.HeadReservations = append(t.HeadReservations, cache.HeadReservation{Queue: q, Head: head, Usage: usage})
		d.version++
	}
}

// reserveForHeads keeps quota for the heads that are not judged.
func (d *drainer) reserveForHeads() {
	lines := make(map[*cache.ClusterQueue]*line, len(d.lines))
	for _, l := range d.lines {
		lines[l.queue] = l
	}
	for _, q := range d.tree.Queues {
		d.reserveForHead(q, lines[q])
	}
}

// reserveForRefused keeps quota for a Workload that was just refused, if it is the head.
func (d *drainer) reserveForRefused(l *line, w *cache.Workload) {
	if head, _ := l.queue.Pending.Min(); head == w {
		d.reserveForHead(l.queue, l)
	}
}

// reserveForNext keeps quota for the next head after a Workload that has got some. What was kept
// for it and it does not use may let others start.
func (d *drainer) reserveForNext(l *line, w *cache.Workload, usage quota.Amounts) {
	for _, k := range d.tree.HeadReservations {
		if k.Head == w && !k.Usage.Within(usage) {
			d.tree.Released = true
		}
	}
	d.reserveForHead(l.queue, l)
}

// borrowsReserved is the reservation for the head of another queue that a proposal would borrow from; nil if there is none.
// A reservation does not hold against a Workload of higher priority, nor for quota that is lent already: the head could not get that
// back, whatever the proposal takes from its victims.
func borrowsReserved(q *cache.ClusterQueue, w *cache.Workload, p *Proposal) *cache.HeadReservation {
	if p.distance == 0 || len(q.Tree.HeadReservations) == 0 {
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
