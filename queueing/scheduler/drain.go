package scheduler

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// drain judges the Workloads of a tree that wait: those that have not been judged
// yet, and all if quota has come back. Among the first ones of the queues those go
// first that borrow from nearest, then by priority and time; with fair sharing,
// those whose part of the tree has least. StrictFIFO stops at the first that does
// not fit; BestEffortFIFO goes on with the next.
func (s *Cycle) drain(t *cache.Tree) []lifecycle.Verdict {
	d := &drainer{s: s, tree: t}
	if t.Released {
		for _, q := range t.Queues {
			q.RequeueInadmissible()
		}
		t.RejudgeAt, t.MessagesOutdated = time.Time{}, false
	}
	t.Released = false
	for _, q := range t.Queues {
		if len(q.Skipped) > 0 {
			clear(q.Skipped)
			s.cache.Dirty.ClusterQueues[q] = true
		}
		d.out = append(d.out, d.addLine(q)...)
	}
	d.reserveForHeads()
	if s.cache.Config.FairSharing != nil {
		d.share()
	} else {
		d.borrow()
	}
	d.unclaim()
	return d.out
}

// addLine puts the Workloads of a queue that are to be judged in line. Those that
// cannot be anything but refused get their answer here.
func (d *drainer) addLine(q *cache.ClusterQueue) []lifecycle.Verdict {
	if !q.HasUnjudged() {
		return nil
	}
	defer q.MarkJudged()
	head, _ := q.Pending.Min()
	strict := q.Object.Spec.QueueingStrategy == kueue.StrictFIFO && !backfills(q.Object)
	l := &line{queue: q}
	switch {
	case strict && !d.s.cache.SharesByUsage(q) && !q.AllUnjudged && q.Unjudged[head.Object.UID] == nil:
		var out []lifecycle.Verdict
		why := d.blocked(q)
		for _, w := range cache.ByName(q.Unjudged) {
			out = d.s.appendWaiting(out, w, why)
		}
		return out
	case strict, q.AllUnjudged, len(q.Unjudged) == q.Pending.Len():
		l.rest = make([]*cache.Workload, 0, q.Pending.Len())
		q.Pending.Ascend(func(w *cache.Workload) bool { l.rest = append(l.rest, w); return true })
	default:
		for _, w := range q.Unjudged {
			l.rest = append(l.rest, w)
		}
		slices.SortFunc(l.rest, cache.Compare)
	}
	slices.SortStableFunc(l.rest, func(a, b *cache.Workload) int { return btoi(b.AwaitsVictims) - btoi(a.AwaitsVictims) })
	l.version = -1
	if d.s.cache.SharesByUsage(q) {
		l.locals = localLinesOf(l.rest)
		l.choose()
	}
	d.lines = append(d.lines, l)
	return nil
}

// nominate finds out how the first of a line could have its quota, as things are.
func (d *drainer) nominate(l *line) {
	q := l.queue
	for len(l.rest) > 0 {
		w := l.rest[0]
		if w.Place != cache.Pending || w.Busy {
			l.next()
			continue
		}
		r := l.answer(d.s.equivalenceClass(q, w))
		if !r.Holds(w, d.s.now) || q.Object.Spec.QueueingStrategy == kueue.StrictFIFO {
			break
		}
		d.refuse(l, &refusal{Inadmissible: *r})
	}
	if len(l.rest) == 0 || l.version == d.version {
		return
	}
	w := l.rest[0]
	l.first, l.notes = d.s.Assign(q, w)
	if delete(q.Skipped, w.Object.UID); l.notes.skipped {
		q.Skipped[w.Object.UID], d.s.cache.Dirty.ClusterQueues[q] = true, true
	}
	l.version = d.version
	l.distance = 0
	if l.first != nil {
		l.distance = l.first.distance
	}
}

// settleHead does what was found out about the first of a line.
func (d *drainer) settleHead(l *line) {
	if len(l.rest) == 0 {
		return
	}
	w, p := l.rest[0], l.first
	w.AwaitsVictims = false
	if p == nil {
		l.queue.WantsNodes = l.queue.WantsNodes || l.notes.lacksNodes
		r := refusalOf(l.notes.Notes.reason(), l.notes.Notes.Message())
		r.Until = l.notes.until
		if backfills(l.queue.Object) {
			r = d.backfill(l, r)
		} else {
			l.queue.NoteInadmissible(d.s.equivalenceClass(l.queue, w), w, r.Inadmissible)
			l.known = nil
		}
		d.refuse(l, r)
		d.reserveForRefused(l, w)
		return
	}
	if h := d.s.blockedBy(w, p); h != nil {
		d.block(l, h)
		return
	}
	if r := d.delays(l.queue, w, p); r != nil {
		d.refuse(l, r)
		return
	}
	if len(p.victims) > 0 || p.awaits || !d.fitsNow(l.queue, p) {
		d.claim(l, p)
		return
	}
	d.version++
	d.out = append(d.out, *d.s.reserve(l.queue, w, p))
	d.noteStart(l.queue, w, p.Usage)
	l.next()
	d.reserveForNext(l, w, p.Usage)
}
