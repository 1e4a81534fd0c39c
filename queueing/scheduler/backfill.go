package scheduler

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// reserveInTime finds the earliest time at which the Workload can start, if all that runs
// in the tree runs for as long as it may; ok is false if there is none.
func (d *drainer) reserveInTime(q *cache.ClusterQueue, w *cache.Workload) (r reservation, ok bool) {
	r = reservation{w: w, queue: q}
	var ending []*cache.Workload
	for _, other := range d.tree.Queues {
		for _, h := range other.WithQuota {
			if _, ends := workload.EndOf(h.Object, d.s.now); ends && !h.Claimed {
				ending = append(ending, h)
			}
		}
	}
	slices.SortFunc(ending, func(a, b *cache.Workload) int {
		endA, _ := workload.EndOf(a.Object, d.s.now)
		endB, _ := workload.EndOf(b.Object, d.s.now)
		if c := endA.Compare(endB); c != 0 {
			return c
		}
		return cache.Compare(a, b)
	})
	defer func() {
		for _, e := range r.ended {
			e.queue.Node.Add(e.usage)
			d.s.cache.Nodes.AddUsage(e.uses, 1)
		}
	}()
	for _, h := range ending {
		h.Queue.Node.Sub(h.Usage)
		d.s.cache.Nodes.AddUsage(h.Uses, -1)
		r.ended = append(r.ended, part{h.Queue, h.Usage, h.Uses})
		if p, _ := d.s.Assign(q, w); p != nil && len(p.victims) == 0 {
			r.usage = p.Usage
			r.at, _ = workload.EndOf(h.Object, d.s.now)
			return r, true
		}
	}
	return r, false
}

// delays says which reservation would have to wait if a Workload had the proposal
// now, with a reason; nil if none would. A Workload within its queue's own quota
// delays only those of the same queue.
func (d *drainer) delays(q *cache.ClusterQueue, w *cache.Workload, p *Proposal) *refusal {
	for i := range d.reservations {
		r := &d.reservations[i]
		if r.queue != q && p.distance == 0 {
			continue
		}
		if r.outlasts(w, d.s.now) {
			continue
		}
		if r.leaves(q, p.Usage) {
			continue
		}
		return refusalOf(kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
			"Its quota is free, but reserved from %s for %s, which is ahead; a workload that ends before may start now: "+
				"set the label kueue.x-k8s.io/max-exec-time-seconds, or a smaller one", r.at.UTC().Format(time.RFC3339), nameFor(w, r.w)))
	}
	return nil
}

// outlasts says that a Workload which starts now is over by then.
func (r *reservation) outlasts(w *cache.Workload, now time.Time) bool {
	most, ok := workload.MostTime(w.Object)
	return ok && !now.Add(most).After(r.at)
}

// noteStart notes for the reservations that a Workload starts now.
func (d *drainer) noteStart(q *cache.ClusterQueue, w *cache.Workload, usage quota.Amounts) {
	for i := range d.reservations {
		if r := &d.reservations[i]; r.outlasts(w, d.s.now) {
			r.ended = append(r.ended, part{queue: q, usage: usage})
		}
	}
}

// leaves reports whether there is quota for another Workload beside the reservation.
func (r *reservation) leaves(q *cache.ClusterQueue, usage quota.Amounts) bool {
	for _, e := range r.ended {
		e.queue.Node.Sub(e.usage)
	}
	r.queue.Node.Add(r.usage)
	fits := q.Node.Fits(usage)
	r.queue.Node.Sub(r.usage)
	for _, e := range r.ended {
		e.queue.Node.Add(e.usage)
	}
	return fits
}

// backfill reserves quota in time for the first Workload of a line that was
// refused, and says so.
func (d *drainer) backfill(l *line, r *refusal) *refusal {
	w := l.rest[0]
	if slices.ContainsFunc(d.reservations, func(r reservation) bool { return r.queue == l.queue }) {
		return r
	}
	switch r.Reason {
	case kueue.WorkloadQuotaReservedReasonWaitingForQuota, kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed,
		kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads:
	default:
		return r
	}
	told := *r
	reserved, ok := d.reserveInTime(l.queue, w)
	if !ok {
		// No Workload behind it can be shown not to delay it.
		l.blocked, d.barred = true, true
		told.Message += "; its start is unknown, since running workloads have no maximum execution time"
		return &told
	}
	d.reservations = append(d.reservations, reserved)
	told.Message += fmt.Sprintf("; it can start at %s at the latest", reserved.at.UTC().Format(time.RFC3339))
	return &told
}
