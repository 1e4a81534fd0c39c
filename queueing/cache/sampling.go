package cache

import (
	"time"

	"github.com/muster-dev/muster/queueing/quota"
)

// Penalize adds the usage of a Workload that gets quota to its LocalQueue at once. Otherwise the LocalQueue could start
// a thousand Workloads between two samples.
func (s *Cache) Penalize(q *ClusterQueue, w *Workload, growth quota.Amounts, now time.Time) {
	lq := w.Local
	if lq == nil || s.Sharing == nil {
		return
	}
	if lq.idle() {
		lq.Record.At = SampleTime(now)
	}
	if s.SharesByUsage(q) {
		entry := s.Sharing.Penalty(ofResources(growth))
		// An earlier entry belongs to a previous attempt.
		entry.Add(lq.entries[w.Object.UID])
		lq.dropPenalty(w.Object.UID)
		lq.entries[w.Object.UID] = entry
		lq.penalty.Add(entry)
		s.updateUsage(lq)
	}
	if s.sampleAt.IsZero() {
		s.sampleAt = now.Add(s.Sharing.Interval)
	}
}

// dropPenalty removes the penalty of a Workload whose verdict was not written.
func (s *Cache) dropPenalty(w *Workload) {
	if w.Local != nil {
		w.Local.dropPenalty(w.Object.UID)
		s.updateUsage(w.Local)
	}
}

// Sample records the usage of the LocalQueues if it is time to: the quota that their Workloads have reserved, also
// while admission checks are pending. This may change their order, so all Workloads are evaluated again.
func (s *Cache) Sample(now time.Time) {
	if s.sampleAt.IsZero() || now.Before(s.sampleAt) {
		return
	}
	s.sampleAt = time.Time{}
	for _, lq := range s.LocalQueues {
		q := s.Queues[lq.Object.Spec.ClusterQueue]
		if q == nil || lq.idle() {
			continue
		}
		lq.Record = s.Sharing.Sample(lq.Record, ofResources(quota.Amounts(lq.Reserved)), SampleTime(now))
		for uid, entry := range lq.entries {
			switch w := s.Workloads[uid]; {
			case w != nil && w.Local == lq && w.Phase == Reserving:
				lq.dropPenalty(uid)
			case w != nil && w.Local == lq && w.Assumed != nil:
				// Its object does not show the quota yet, so the sample does not include it.
			default:
				// It started and ended between two samples.
				lq.Record.Consumed.Add(entry)
				lq.dropPenalty(uid)
			}
		}
		s.updateUsage(lq)
		s.Dirty.LocalQueues[lq] = true
		if s.SharesByUsage(q) {
			q.RequeueInadmissible(s.Cycles + 1)
		}
		if !lq.idle() {
			s.sampleAt = now.Add(s.Sharing.Interval)
		}
	}
}
