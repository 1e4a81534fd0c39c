package scheduler

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// scheduleTree evaluates the pending Workloads of a tree: those that are new or changed, and if quota was released, also
// those that it may help. The heads of the queues are ordered by borrowing level, then by priority and time; with fair sharing, by
// share. StrictFIFO stops at the first Workload that does not fit; BestEffortFIFO continues with the next.
func (s *Cycle) scheduleTree(t *cache.Tree) []lifecycle.Verdict {
	d := &treeIterator{s: s, tree: t}
	all, kept := t.RefreshDue(s.now) || t.QuotaReleased && s.evaluatesAll(t), false
	for _, q := range t.Queues {
		if len(q.Skipped) > 0 {
			clear(q.Skipped)
			s.cache.Dirty.ClusterQueues[q] = true
		}
		switch {
		case all || t.QuotaReleased && (isStrict(q) || !q.WaitsForQuotaOnly()):
			q.RequeueInadmissible(s.cache.Cycles)
		case t.HasReservations:
			q.Reevaluate()
		case t.QuotaReleased:
			kept = true
			d.queues = append(d.queues, d.unexpandedQueue(q))
			continue
		}
		d.verdicts = append(d.verdicts, d.addQueue(q)...)
	}
	if all || t.QuotaReleased || t.HasReservations {
		if t.MessagesOutdated = kept; !kept {
			t.RequeueAt = time.Time{}
		}
	}
	t.QuotaReleased = false
	d.reserveForHeads()
	if s.cache.Config.FairSharing != nil {
		d.runByShare()
	} else {
		d.runByBorrowing()
	}
	d.releaseReservations()
	return d.verdicts
}

// addQueue adds an iterator over the Workloads of a queue that have to be evaluated. It returns the verdicts on those
// behind a StrictFIFO head that is known not to fit.
func (d *treeIterator) addQueue(q *cache.ClusterQueue) []lifecycle.Verdict {
	if !q.HasUnevaluated() {
		return nil
	}
	defer q.MarkEvaluated()
	head, _ := q.Pending.Min()
	strict := isStrict(q)
	if strict && !d.s.cache.SharesByUsage(q) && !q.AllUnevaluated && q.Unevaluated[head.Object.UID] == nil {
		var out []lifecycle.Verdict
		why := d.blockedByHead(q)
		for _, w := range cache.ByName(q.Unevaluated) {
			out = d.s.appendWaiting(out, w, why)
		}
		return out
	}
	l := &queueIterator{queue: q}
	d.start(l, q.ToEvaluate(strict))
	d.queues = append(d.queues, l)
	return nil
}

// start sets the Workloads that are to be evaluated, which are in order.
func (d *treeIterator) start(l *queueIterator, pending []*cache.Workload) {
	slices.SortStableFunc(pending, func(a, b *cache.Workload) int { return btoi(b.AwaitsVictims) - btoi(a.AwaitsVictims) })
	l.pending, l.version, l.borrowingLevel = pending, -1, 0
	if d.s.cache.SharesByUsage(l.queue) {
		l.localQueues = localQueueIterators(l.pending)
		if len(l.pending) > 0 {
			l.selectLocal()
		}
	}
}

// nominate finds an assignment for the head of the queue with the current usage.
func (d *treeIterator) nominate(l *queueIterator) {
	q := l.queue
	for len(l.pending) > 0 {
		w := l.pending[0]
		if w.Phase != cache.Pending || w.Busy {
			l.pop()
			continue
		}
		r := l.inadmissible(d.s.equivalenceClass(q, w))
		if r != nil && r.Unsure {
			// Others of the queue may have used what was released.
			r.Unsure = !d.s.areShort(q, r.Shortages, w.Priority)
		}
		if r.Holds(w, d.s.now) && q.Object.Spec.QueueingStrategy != kueue.StrictFIFO {
			w.EvaluatedIn = d.s.cache.Cycles
			q.Refuse(w, r)
			d.markInadmissible(l, &inadmissible{Inadmissible: *r})
			continue
		}
		if l.version >= 0 || d.withinBudget(l) {
			break
		}
	}
	if len(l.pending) == 0 || l.version == d.version {
		return
	}
	w, spent := l.pending[0], d.s.effort
	l.assignment, l.assigner = d.s.Assign(q, w)
	if q.Effort += d.s.effort - spent; !d.mustEvaluate(w) {
		l.effort += d.s.effort - spent
	}
	w.EvaluatedIn = d.s.cache.Cycles
	if delete(q.Skipped, w.Object.UID); l.assigner.candidatesTargeted {
		q.Skipped[w.Object.UID], d.s.cache.Dirty.ClusterQueues[q] = true, true
	}
	l.version = d.version
	l.borrowingLevel = 0
	if l.assignment != nil {
		l.borrowingLevel = l.assignment.borrowingLevel
	}
}

// processHead acts on the nomination of the head.
func (d *treeIterator) processHead(l *queueIterator) {
	if len(l.pending) == 0 {
		return
	}
	w, p := l.pending[0], l.assignment
	w.AwaitsVictims = false
	if p == nil {
		l.queue.WaitsForTopology = l.queue.WaitsForTopology || l.assigner.topologyFailed
		r := newInadmissible(l.assigner.Notes.reason(), l.assigner.Notes.Message())
		r.Until = l.assigner.until
		if backfills(l.queue.Object) {
			r = d.backfill(l, r)
		} else {
			r.Shortages, r.QuotaOnly = l.assigner.shortages()
			l.queue.Refuse(w, l.queue.SetInadmissible(d.s.equivalenceClass(l.queue, w), w, r.Inadmissible))
			l.lastInadmissible = nil
		}
		d.markInadmissible(l, r)
		d.reserveForRefused(l, w)
		return
	}
	if h := d.s.blockedBy(w, p); h != nil {
		d.markBlocked(l, h)
		return
	}
	if r := d.delayedReservation(l.queue, w, p); r != nil {
		d.markInadmissible(l, r)
		return
	}
	if len(p.victims) > 0 || p.awaitsRelease || !d.fitsWithoutReservations(l.queue, p) {
		d.reserveForPreemptor(l, p)
		return
	}
	d.version++
	d.verdicts = append(d.verdicts, *d.s.reserve(l.queue, w, p))
	d.noteStart(l.queue, w, p.Usage)
	l.pop()
	d.reserveForNext(l, w, p.Usage)
}
