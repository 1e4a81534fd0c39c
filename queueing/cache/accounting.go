package cache

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// add counts a Workload in its queues and in the usage. It undoes what remove and charge did before.
func (s *Cache) add(w *Workload) {
	lq := s.LocalQueues[localQueueKey(w.Object)]
	switch {
	case workload.IsFinished(w.Object):
		w.Phase = finished
		if lq != nil {
			w.Queue = s.Queues[lq.Object.Spec.ClusterQueue]
		}
	case s.ReplacementOf(w) != nil:
		// Its quota is part of the quota of the slice that replaced it.
		s.ReplacementOf(w).Replaces = w.Object.UID
	case workload.HasQuota(w.Object):
		w.Phase, w.Queue = Reserving, s.Queues[w.Object.Status.Admission.ClusterQueue]
		if !workload.IsAdmitted(w.Object) {
			s.Unadmitted[w.Object.UID] = w
		}
		if len(w.Object.Status.UnhealthyNodes) > 0 {
			s.Unhealthy[w.Object.UID] = w
		}
		if len(w.TopologyUsage) > 0 && len(w.Object.Status.ReclaimablePods) > 0 {
			s.Reclaimed[w.Object.UID] = w
		}
		s.ExpectPods(w, w.Object.Status.Admission)
	case workload.IsActive(w.Object):
		w.Phase = Pending
		if lq != nil {
			w.Queue = s.Queues[lq.Object.Spec.ClusterQueue]
		}
	}
	if w.Phase != untracked {
		w.admitted = w.Phase == Reserving && workload.IsAdmitted(w.Object)
		switch old := s.Slices.RunsBy(w); {
		case w.admitted:
			w.running = w.Usage
		case w.Phase == Reserving && old != nil:
			w.running = old.Usage
		}
		if isWaiting := w.Phase == Pending || w.Phase == Reserving && !w.admitted; isWaiting && w.Object.DeletionTimestamp.IsZero() {
			w.unadmitted = unadmittedAs(w.Object)
		}
		w.Local = lq
		s.count(w, +1)
	}
	s.charge(w)
	if w.Queue != nil && w.Phase == Reserving {
		w.Queue.setRunning(w, +1)
	}
}

// preemptionState is the part of a Workload with quota that decides whether others may preempt or replace it.
type preemptionState struct {
	queue *ClusterQueue
	// replaceable: it is admitted, and a slice may replace it.
	replaceable      bool
	evicted          bool
	priority         int32
	reserved, queued int64
}

// preemptionState is empty for a Workload without quota.
func (w *Workload) preemptionState() preemptionState {
	if w.Phase != Reserving || w.Queue == nil {
		return preemptionState{}
	}
	return preemptionState{w.Queue, w.admitted && workload.IsElastic(w.Object), workload.IsEvicted(w.Object), w.Priority,
		workload.ReservedSince(w.Object).UnixNano(), w.Since.UnixNano()}
}

// remove removes a Workload from where its phase counts it.
func (s *Cache) remove(w *Workload) {
	if q := w.Queue; q != nil {
		switch w.Phase {
		case Reserving:
			q.setRunning(w, -1)
		case Pending:
			q.Remove(w)
		}
	}
	delete(s.Unadmitted, w.Object.UID)
	delete(s.Unhealthy, w.Object.UID)
	delete(s.Reclaimed, w.Object.UID)
	s.count(w, -1)
	w.Phase, w.Queue, w.Local, w.admitted, w.running, w.unadmitted = untracked, nil, nil, false, nil, Unadmitted{}
}

// charge adds the quota of a Workload to the usage of its queue, once: the quota in its object, or, before the object
// shows any, the quota that a verdict assumed. Both are the same quota, and the watch event of a write may arrive
// before its response.
func (s *Cache) charge(w *Workload) {
	q, usage := w.Assumed, w.AssumedUsage
	if w.Phase == Reserving {
		q, usage = w.Queue, w.Usage
	}
	if old := w.chargedTo; old != nil {
		old.Node.Sub(w.charged)
		if q != old || !w.charged.Within(usage) {
			old.Tree.QuotaReleased = true
		}
	}
	if q != nil {
		q.Node.Add(usage)
		if q != w.chargedTo || !usage.Within(w.charged) {
			q.Tree.noteUsage()
		}
	}
	if w.unobserved {
		w.chargedTo.Unobserved--
	}
	seen := w.unobserved && w.Phase == Reserving
	w.chargedTo, w.charged = q, usage
	if w.unobserved = q != nil && w.Phase != Reserving; w.unobserved {
		q.Unobserved++
	}
	if seen && q != nil && q.Tree.MissedCandidates {
		q.Tree.QuotaReleased, q.Tree.MissedCandidates = true, false
	}
	s.Nodes.SetUsage(workload.KeyOf(w.Object), w.currentTopologyUsage())
	if q != nil && !workload.IsTrue(w.Object, kueue.WorkloadPodsReady) {
		s.PodsNotReady[w.Object.UID] = w
	} else {
		s.podsReady(w)
	}
}

// count updates the numbers in the status of queues.
func (s *Cache) count(w *Workload, by int32) {
	for _, c := range []*counts{w.Queue.countsOf(), w.Local.countsOf()} {
		if c == nil {
			continue
		}
		if w.unadmitted != (Unadmitted{}) {
			if c.Unadmitted[w.unadmitted] += by; c.Unadmitted[w.unadmitted] == 0 {
				delete(c.Unadmitted, w.unadmitted)
			}
		}
		switch w.Phase {
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
	if w.Phase == Pending && w.Queue != nil {
		w.Queue.Requested.change(w.requests(), by)
	}
	s.Dirty.add(w)
}

// Assume gives a Workload quota before its object shows it.
func (s *Cache) Assume(w *Workload, q *ClusterQueue, usage quota.Amounts, uses []placement.Usage) {
	w.Assumed, w.AssumedUsage, w.AssumedTopologyUsage = q, usage, uses
	s.charge(w)
	q.Drop(w)
	delete(q.Skipped, w.Object.UID)
}

// unassume undoes Assume if the verdict was not written.
func (s *Cache) unassume(w *Workload) {
	w.Assumed, w.AssumedUsage, w.AssumedTopologyUsage = nil, nil, nil
	s.charge(w)
	s.dropPenalty(w)
}
