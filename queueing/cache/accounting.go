package cache

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// add counts a Workload where it belongs. What it adds, leave and reckon take away.
func (s *Cache) add(w *Workload) {
	lq := s.LocalQueues[localQueueKey(w.Object)]
	switch {
	case workload.IsFinished(w.Object):
		w.Place = finished
		if lq != nil {
			w.Queue = s.Queues[lq.Object.Spec.ClusterQueue]
		}
	case s.ReplacementOf(w) != nil:
		// Its quota is part of what the slice has that took its place.
		s.ReplacementOf(w).Replaces = w.Object.UID
	case workload.HasQuota(w.Object):
		w.Place, w.Queue = Reserving, s.Queues[w.Object.Status.Admission.ClusterQueue]
		if !workload.IsAdmitted(w.Object) {
			s.Unadmitted[w.Object.UID] = w
		}
		if len(w.Object.Status.UnhealthyNodes) > 0 {
			s.Unhealthy[w.Object.UID] = w
		}
		if len(w.Uses) > 0 && len(w.Object.Status.ReclaimablePods) > 0 {
			s.Reclaimed[w.Object.UID] = w
		}
		s.ExpectPods(w, w.Object.Status.Admission)
	case workload.IsActive(w.Object):
		w.Place = Pending
		if lq != nil {
			w.Queue = s.Queues[lq.Object.Spec.ClusterQueue]
		}
	}
	if w.Place != untracked {
		w.admitted = w.Place == Reserving && workload.IsAdmitted(w.Object)
		switch old := s.Slices.RunsBy(w); {
		case w.admitted:
			w.running = w.Usage
		case w.Place == Reserving && old != nil:
			w.running = old.Usage
		}
		w.Local = lq
		s.count(w, +1)
	}
	s.charge(w)
	if w.Queue != nil && w.Place == Reserving {
		w.Queue.WithQuota[w.Object.UID] = w
		w.Candidate = candidate(w)
	}
}

// held is what others have to know of a Workload with quota to judge whether it could
// leave for them, or be replaced.
type held struct {
	queue            *ClusterQueue
	admitted         bool
	evicted          bool
	priority         int32
	reserved, queued int64
}

// held is empty for a Workload without quota.
func (w *Workload) held() held {
	if w.Place != Reserving || w.Queue == nil {
		return held{}
	}
	return held{w.Queue, w.admitted, workload.IsEvicted(w.Object), w.Priority, workload.ReservedSince(w.Object).UnixNano(), w.Since.UnixNano()}
}

// remove takes a Workload out of where it is counted by its place.
func (s *Cache) remove(w *Workload) {
	if q := w.Queue; q != nil {
		switch w.Place {
		case Reserving:
			delete(q.WithQuota, w.Object.UID)
			w.Candidate = preemption.Workload{}
		case Pending:
			q.Remove(w)
		}
	}
	delete(s.Unadmitted, w.Object.UID)
	delete(s.Unhealthy, w.Object.UID)
	delete(s.Reclaimed, w.Object.UID)
	s.count(w, -1)
	w.Place, w.Queue, w.Local, w.admitted, w.running = untracked, nil, nil, false, nil
}

// charge charges the queue with what the Workload has of its quota, once: what its object
// shows or, before that shows any, what a verdict gave it. Both stand for the same quota,
// and the news of a write may come before the answer to it.
func (s *Cache) charge(w *Workload) {
	q, usage := w.Assumed, w.AssumedUsage
	if w.Place == Reserving {
		q, usage = w.Queue, w.Usage
	}
	if old := w.chargedTo; old != nil {
		old.Node.Sub(w.charged)
		if q != old || !w.charged.Within(usage) {
			old.Tree.Released = true
		}
	}
	if q != nil {
		q.Node.Add(usage)
		if q != w.chargedTo || !usage.Within(w.charged) {
			q.Tree.noteUse()
		}
	}
	if w.unobserved {
		w.chargedTo.Unobserved--
	}
	seen := w.unobserved && w.Place == Reserving
	w.chargedTo, w.charged = q, usage
	if w.unobserved = q != nil && w.Place != Reserving; w.unobserved {
		q.Unobserved++
	}
	if seen && q != nil && q.Tree.MissedCandidates {
		q.Tree.Released, q.Tree.MissedCandidates = true, false
	}
	s.Nodes.SetUsage(workload.KeyOf(w.Object), w.places())
	if q != nil && !workload.IsTrue(w.Object, kueue.WorkloadPodsReady) {
		s.PodsNotReady[w.Object.UID] = w
	} else {
		s.podsReady(w)
	}
}

// count keeps the numbers that the status of queues shows.
func (s *Cache) count(w *Workload, by int32) {
	for _, c := range []*counts{w.Queue.countsOf(), w.Local.countsOf()} {
		if c == nil {
			continue
		}
		switch w.Place {
		case finished:
			c.Finished += by
		case Pending:
			c.Waiting += by
		case Reserving:
			c.Reserving += by
			c.Reserved.change(w.Usage, by)
			if w.running != nil {
				c.Running += by
				c.Admitted.change(w.running, by)
			}
		}
	}
	if w.Place == Pending && w.Queue != nil {
		w.Queue.Requested.change(w.requests(), by)
	}
	s.Dirty.add(w)
}

// Assume gives quota to a Workload before its object shows it.
func (s *Cache) Assume(w *Workload, q *ClusterQueue, usage quota.Amounts, uses []placement.Usage) {
	w.Assumed, w.AssumedUsage, w.AssumedUses = q, usage, uses
	s.charge(w)
	q.Drop(w)
	delete(q.Skipped, w.Object.UID)
}

// unassume takes back what a verdict gave that came to nothing.
func (s *Cache) unassume(w *Workload) {
	w.Assumed, w.AssumedUsage, w.AssumedUses = nil, nil, nil
	s.charge(w)
	s.dropPenalty(w)
}
