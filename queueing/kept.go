package queueing

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

// What a queue lends it may not get back: with reclaimWithinCohort other than Any, some
// that borrow from it stay for as long as they like. As long as its head waits for nominal
// quota of its own, what is free of that quota is therefore kept for the head, and not
// lent to other queues. Kueue does the same for the heads of one scheduling cycle.

// kept is quota that other queues may not borrow.
type kept struct {
	queue *queue
	head  *Workload
	usage quota.Amounts
}

// keeps reports whether the queue keeps quota for its head.
func keeps(q *queue) bool {
	p := q.object.Spec.Preemption
	return q.node.Parent() != nil && (p == nil || cmp.Or(p.ReclaimWithinCohort, kueue.PreemptionPolicyNever) != kueue.PreemptionPolicyAny)
}

// keptFor is what is free of the nominal quota that a Workload waits for: on the first
// flavor that suits each of its podSets and has as much nominal quota. It is empty for one
// that has to borrow in any case.
func (s *Cycle) keptFor(q *queue, w *Workload) quota.Amounts {
	a := &assigner{s: s, queue: q, w: w, counts: podCounts(w), assumed: quota.Amounts{}, old: s.predecessor(q, w)}
	if !a.split() {
		return nil
	}
	a.chosen = make([]option, len(a.slots))
	for i := range a.slots {
		at := slices.IndexFunc(a.slots[i].flavors, func(f kueue.FlavorQuotas) bool {
			return a.unsuitable(i, f.Name) == "" && a.isNominal(i, f.Name)
		})
		if at < 0 {
			return nil
		}
		a.chosen[i] = option{flavor: a.slots[i].flavors[at].Name}
		a.assumed.Add(a.use(i, a.chosen[i].flavor))
	}
	out := quota.Amounts{}
	for fr, v := range a.assumed {
		if free := min(v, q.node.Quota(fr).Nominal-q.node.Usage(fr)); free > 0 {
			out[fr] = free
		}
	}
	return out
}

// isNominal reports whether slot i asks for no more than the nominal quota of a flavor.
func (a *assigner) isNominal(i int, flavor kueue.ResourceFlavorReference) bool {
	for fr, v := range a.use(i, flavor) {
		if nodegroups.Plus(v, a.assumed[fr]) > a.queue.node.Quota(fr).Nominal {
			return false
		}
	}
	return true
}

// keep keeps quota for the head of a queue, in place of the one before it, if the head has
// been refused. One that is still in line is judged soon. The line is nil where none of the
// queue is judged.
func (d *drainer) keep(q *queue, l *line) {
	t := d.tree
	// What was found out about others is not true any more if there is more or less to
	// borrow.
	before := len(t.kept)
	if t.kept = slices.DeleteFunc(t.kept, func(k kept) bool { return k.queue == q }); len(t.kept) < before {
		d.version++
	}
	head, ok := q.pending.Min()
	if !ok || !keeps(q) || head.reason != kueue.WorkloadQuotaReservedReasonWaitingForQuota || l != nil && l.has(head) {
		return
	}
	if usage := d.s.keptFor(q, head); len(usage) > 0 {
		t.kept = append(t.kept, kept{q, head, usage})
		d.version++
	}
}

// keepAll keeps quota for the heads that are not judged.
func (d *drainer) keepAll() {
	lines := make(map[*queue]*line, len(d.lines))
	for _, l := range d.lines {
		lines[l.queue] = l
	}
	for _, q := range d.tree.queues {
		d.keep(q, lines[q])
	}
}

// keepRefused keeps quota for a Workload that was just refused, if it is the head.
func (d *drainer) keepRefused(l *line, w *Workload) {
	if head, _ := l.queue.pending.Min(); head == w {
		d.keep(l.queue, l)
	}
}

// keepNext keeps quota for the next head after a Workload that has got some. What was kept
// for it and it does not use may let others start.
func (d *drainer) keepNext(l *line, w *Workload, usage quota.Amounts) {
	for _, k := range d.tree.kept {
		if k.head == w && !k.usage.Within(usage) {
			d.tree.loosened = true
		}
	}
	d.keep(l.queue, l)
}

// has reports whether a Workload is in line.
func (l *line) has(w *Workload) bool {
	if l.lots == nil {
		return slices.Contains(l.rest, w)
	}
	return slices.ContainsFunc(l.lots, func(o *lot) bool { return slices.Contains(o.rest, w) })
}

// borrowsKept is what is kept for the head of another queue and a proposal would borrow;
// nil if it borrows nothing of that kind.
func borrowsKept(q *queue, p *proposal) *kept {
	if p.distance == 0 || len(q.tree.kept) == 0 {
		return nil
	}
	for _, v := range p.victims {
		v.queue.node.Sub(v.Usage)
		defer v.queue.node.Add(v.Usage)
	}
	var first *kept
	for i := range q.tree.kept {
		k := &q.tree.kept[i]
		if k.queue == q {
			continue
		}
		for fr, v := range p.usage {
			if k.usage[fr] > 0 && q.node.Borrows(fr, v) {
				first = cmp.Or(first, k)
			}
		}
		k.queue.node.Add(k.usage)
		defer k.queue.node.Sub(k.usage)
	}
	if q.node.Fits(p.usage) {
		return nil
	}
	return first
}
