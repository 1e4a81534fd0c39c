package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/usage"
)

// Admission fair sharing: a ClusterQueue that asks for it judges the Workloads of
// that LocalQueue first which has used least lately, whatever their priorities, and
// has those of the one that has used most leave first.

// consumption is what a LocalQueue has used lately.
type consumption struct {
	// Record is as of the last sample. The status of the LocalQueue has it, too, so
	// that a restart remembers.
	Record usage.Record
	// Entries are the penalties of Workloads whose usage no sample has seen yet, and
	// penalty is their sum.
	Entries map[types.UID]usage.Amounts
	Penalty usage.Amounts
	// Usage is all that as one figure to order by.
	Usage float64
}

// consumptionOf reads what the status of a LocalQueue remembers.
func consumptionOf(lq *kueue.LocalQueue) consumption {
	c := consumption{Record: usage.Record{Consumed: usage.Amounts{}}, Entries: map[types.UID]usage.Amounts{}, Penalty: usage.Amounts{}}
	if s := lq.Status.FairSharing; s != nil && s.AdmissionFairSharingStatus != nil {
		c.Record = usage.Record{
			Consumed: usage.FromList(s.AdmissionFairSharingStatus.ConsumedResources),
			At:       s.AdmissionFairSharingStatus.LastUpdate.Time,
		}
	}
	return c
}

// SharesByUsage says that a ClusterQueue orders its LocalQueues by what they have
// used. Without the configuration for it the field means nothing, as in Kueue.
func (s *Cache) SharesByUsage(q *ClusterQueue) bool {
	scope := q.Object.Spec.AdmissionScope
	return s.Sharing != nil && scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
}

// updateUsage works out the figure to order by.
func (s *Cache) updateUsage(lq *LocalQueue) {
	if s.Sharing != nil {
		lq.Usage = s.Sharing.Usage(weightOf(lq.Object.Spec.FairSharing), lq.Record.Consumed, lq.Penalty)
	}
}

// Penalize has the LocalQueue of a Workload that gets quota bear it at once, so that
// it cannot start a thousand between two samples.
func (s *Cache) Penalize(q *ClusterQueue, w *Workload, growth quota.Amounts, now time.Time) {
	lq := w.Local
	if lq == nil || !s.SharesByUsage(q) {
		return
	}
	if lq.idle() {
		lq.Record.At = sampleTime(now)
	}
	entry := s.Sharing.Penalty(ofResources(growth))
	// An earlier one is that of an attempt which is over.
	entry.Add(lq.Entries[w.Object.UID])
	lq.dropPenalty(w.Object.UID)
	lq.Entries[w.Object.UID] = entry
	lq.Penalty.Add(entry)
	s.updateUsage(lq)
	if s.SampleAt.IsZero() {
		s.SampleAt = now.Add(s.Sharing.Interval)
	}
}

// dropPenalty takes back the penalty of a Workload that did not get its quota after all.
func (s *Cache) dropPenalty(w *Workload) {
	if w.Local != nil {
		w.Local.dropPenalty(w.Object.UID)
		s.updateUsage(w.Local)
	}
}

// dropPenalty takes a penalty back.
func (lq *LocalQueue) dropPenalty(uid types.UID) {
	lq.Penalty.Sub(lq.Entries[uid])
	delete(lq.Entries, uid)
}

// idle says that there is nothing to sample.
func (lq *LocalQueue) idle() bool {
	return len(lq.Record.Consumed) == 0 && len(lq.Entries) == 0 && len(lq.admitted) == 0
}

// sampleTime is now as an API object can tell it.
func sampleTime(now time.Time) time.Time { return now.Truncate(time.Second) }

// Sample notes what the LocalQueues use, if it is time for it. Their order may be
// another one then, so all are judged again.
func (s *Cache) Sample(now time.Time) {
	if s.SampleAt.IsZero() || now.Before(s.SampleAt) {
		return
	}
	s.SampleAt = time.Time{}
	for _, lq := range s.LocalQueues {
		q := s.Queues[lq.Object.Spec.ClusterQueue]
		if q == nil || !s.SharesByUsage(q) || lq.idle() {
			continue
		}
		lq.Record = s.Sharing.Sample(lq.Record, ofResources(quota.Amounts(lq.admitted)), sampleTime(now))
		for uid, entry := range lq.Entries {
			switch w := s.Workloads[uid]; {
			case w != nil && w.Local == lq && w.admitted:
				lq.dropPenalty(uid)
			case w != nil && w.Local == lq && (w.Place == Reserving || w.Assumed != nil):
				// It waits for its checks; the sample has not seen it.
			default:
				// It came and went between two samples.
				lq.Record.Consumed.Add(entry)
				lq.dropPenalty(uid)
			}
		}
		s.updateUsage(lq)
		s.Dirty.locals[lq] = true
		q.RequeueInadmissible()
		if !lq.idle() {
			s.SampleAt = now.Add(s.Sharing.Interval)
		}
	}
}

// ofResources are amounts of quota in thousandths, on whatever flavor.
func ofResources(amounts quota.Amounts) usage.Amounts {
	total := nodegroups.Resources{}
	for fr, v := range amounts {
		total[fr.Resource] = nodegroups.Plus(total[fr.Resource], v)
	}
	return usage.FromList(total.List())
}
