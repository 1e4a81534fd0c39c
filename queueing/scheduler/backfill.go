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

// reserveInTime finds the earliest time at which the Workload can start, if all running Workloads of the tree use their
// maximum execution time; ok is false if there is none.
func (d *treeIterator) reserveInTime(q *cache.ClusterQueue, w *cache.Workload) (r startReservation, ok bool) {
	r = startReservation{w: w, queue: q}
	var ending []*cache.Workload
	for _, other := range d.tree.Queues {
		for _, h := range other.WithQuota {
			if _, ends := workload.EndOf(h.Object, d.s.now); ends && !h.Targeted {
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
			d.s.cache.Nodes.AddUsage(e.topologyUsage, 1)
		}
	}()
	for _, h := range ending {
		h.Queue.Node.Sub(h.Usage)
		d.s.cache.Nodes.AddUsage(h.TopologyUsage, -1)
		r.ended = append(r.ended, queueUsage{h.Queue, h.Usage, h.TopologyUsage})
		if p, _ := d.s.Assign(q, w); p != nil && len(p.victims) == 0 {
			r.usage = p.Usage
			r.at, _ = workload.EndOf(h.Object, d.s.now)
			return r, true
		}
	}
	return r, false
}

// delayedReservation returns why the assignment would delay a reservation; nil if it delays none. A Workload within the
// quota of its own queue can only delay reservations of that queue.
func (d *treeIterator) delayedReservation(q *cache.ClusterQueue, w *cache.Workload, p *Assignment) *inadmissible {
	for i := range d.startReservations {
		r := &d.startReservations[i]
		if r.queue != q && p.borrowingLevel == 0 {
			continue
		}
		if r.startsAfter(w, d.s.now) {
			continue
		}
		if r.leavesQuotaFor(q, p.Usage) {
			continue
		}
		return newInadmissible(kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
			"Its quota is free, but reserved from %s for %s, which is ahead; a workload that ends before may start now: "+
				"set the label kueue.x-k8s.io/max-exec-time-seconds, or a smaller one", r.at.UTC().Format(time.RFC3339), nameFor(w, r.w)))
	}
	return nil
}

// startsAfter reports whether the reservation starts after a Workload that starts now has ended.
func (r *startReservation) startsAfter(w *cache.Workload, now time.Time) bool {
	most, ok := workload.MostTime(w.Object)
	return ok && !now.Add(most).After(r.at)
}

// noteStart records for the reservations that a Workload starts now.
func (d *treeIterator) noteStart(q *cache.ClusterQueue, w *cache.Workload, usage quota.Amounts) {
	for i := range d.startReservations {
		if r := &d.startReservations[i]; r.startsAfter(w, d.s.now) {
			r.ended = append(r.ended, queueUsage{queue: q, usage: usage})
		}
	}
}

// leavesQuotaFor reports whether another Workload fits beside the reservation.
func (r *startReservation) leavesQuotaFor(q *cache.ClusterQueue, usage quota.Amounts) bool {
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

// backfill reserves quota in time for the first inadmissible Workload of a queue, and adds that to its message.
func (d *treeIterator) backfill(l *queueIterator, r *inadmissible) *inadmissible {
	w := l.pending[0]
	if slices.ContainsFunc(d.startReservations, func(r startReservation) bool { return r.queue == l.queue }) {
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
		// Without a known start, any Workload behind it might delay it.
		l.blocked, d.backfillBlocked = true, true
		told.Message += "; its start is unknown, since running workloads have no maximum execution time"
		return &told
	}
	d.startReservations = append(d.startReservations, reserved)
	told.Message += fmt.Sprintf("; it can start at %s at the latest", reserved.at.UTC().Format(time.RFC3339))
	return &told
}
