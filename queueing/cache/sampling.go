package cache

import (
	"time"

	"github.com/muster-dev/muster/queueing/quota"
)

// Penalize has the LocalQueue of a Workload that gets quota bear it at once, so that
// it cannot start a thousand between two samples.
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
		// An earlier one is that of an attempt which is over.
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

// dropPenalty takes back the penalty of a Workload that did not get its quota after all.
func (s *Cache) dropPenalty(w *Workload) {
	if w.Local != nil {
		w.Local.dropPenalty(w.Object.UID)
		s.updateUsage(w.Local)
	}
}

// Sample notes what the LocalQueues use, if it is time for it: what their Workloads have reserved, also while checks decide. Their order
// may be another one then, so all are judged again.
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
			case w != nil && w.Local == lq && w.Place == Reserving:
				lq.dropPenalty(uid)
			case w != nil && w.Local == lq && w.Assumed != nil:
				// Its object does not show its quota yet; the sample has not seen it.
			default:
				// It came and went between two samples.
				lq.Record.Consumed.Add(entry)
				lq.dropPenalty(uid)
			}
		}
		s.updateUsage(lq)
		s.Dirty.LocalQueues[lq] = true
		if s.SharesByUsage(q) {
			q.RequeueInadmissible()
		}
		if !lq.idle() {
			s.sampleAt = now.Add(s.Sharing.Interval)
		}
	}
}
