package queueing

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
	// record is as of the last sample. The status of the LocalQueue has it, too, so
	// that a restart remembers.
	record usage.Record
	// entries are the penalties of Workloads whose usage no sample has seen yet, and
	// penalty is their sum.
	entries map[types.UID]usage.Amounts
	penalty usage.Amounts
	// usage is all that as one figure to order by.
	usage float64
}

// consumptionOf reads what the status of a LocalQueue remembers.
func consumptionOf(lq *kueue.LocalQueue) consumption {
	c := consumption{record: usage.Record{Consumed: usage.Amounts{}}, entries: map[types.UID]usage.Amounts{}, penalty: usage.Amounts{}}
	if s := lq.Status.FairSharing; s != nil && s.AdmissionFairSharingStatus != nil {
		c.record = usage.Record{
			Consumed: usage.FromList(s.AdmissionFairSharingStatus.ConsumedResources),
			At:       s.AdmissionFairSharingStatus.LastUpdate.Time,
		}
	}
	return c
}

// sharesByUsage says that a ClusterQueue orders its LocalQueues by what they have
// used. Without the configuration for it the field means nothing, as in Kueue.
func (s *Cache) sharesByUsage(q *queue) bool {
	scope := q.object.Spec.AdmissionScope
	return s.sharing != nil && scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
}

// weigh works out the figure to order by.
func (s *Cache) weigh(lq *localQueue) {
	if s.sharing != nil {
		lq.usage = s.sharing.Usage(weightOf(lq.object.Spec.FairSharing), lq.record.Consumed, lq.penalty)
	}
}

// penalize has the LocalQueue of a Workload that gets quota bear it at once, so that
// it cannot start a thousand between two samples.
func (s *Cache) penalize(q *queue, w *Workload, growth quota.Amounts, now time.Time) {
	lq := w.local
	if lq == nil || !s.sharesByUsage(q) {
		return
	}
	if lq.idle() {
		lq.record.At = sampleTime(now)
	}
	entry := s.sharing.Penalty(ofResources(growth))
	// An earlier one is that of an attempt which is over.
	entry.Add(lq.entries[w.Object.UID])
	lq.pardon(w.Object.UID)
	lq.entries[w.Object.UID] = entry
	lq.penalty.Add(entry)
	s.weigh(lq)
	if s.sampleAt.IsZero() {
		s.sampleAt = now.Add(s.sharing.Interval)
	}
}

// pardon takes back the penalty of a Workload that did not get its quota after all.
func (s *Cache) pardon(w *Workload) {
	if w.local != nil {
		w.local.pardon(w.Object.UID)
		s.weigh(w.local)
	}
}

// pardon takes a penalty back.
func (lq *localQueue) pardon(uid types.UID) {
	lq.penalty.Sub(lq.entries[uid])
	delete(lq.entries, uid)
}

// idle says that there is nothing to sample.
func (lq *localQueue) idle() bool {
	return len(lq.record.Consumed) == 0 && len(lq.entries) == 0 && len(lq.admitted) == 0
}

// sampleTime is now as an API object can tell it.
func sampleTime(now time.Time) time.Time { return now.Truncate(time.Second) }

// sample notes what the LocalQueues use, if it is time for it. Their order may be
// another one then, so all are judged again.
func (s *Cache) sample(now time.Time) {
	if s.sampleAt.IsZero() || now.Before(s.sampleAt) {
		return
	}
	s.sampleAt = time.Time{}
	for _, lq := range s.localQueues {
		q := s.queues[lq.object.Spec.ClusterQueue]
		if q == nil || !s.sharesByUsage(q) || lq.idle() {
			continue
		}
		lq.record = s.sharing.Sample(lq.record, ofResources(quota.Amounts(lq.admitted)), sampleTime(now))
		for uid, entry := range lq.entries {
			switch w := s.workloads[uid]; {
			case w != nil && w.local == lq && w.admitted:
				lq.pardon(uid)
			case w != nil && w.local == lq && (w.place == holding || w.assumed != nil):
				// It waits for its checks; the sample has not seen it.
			default:
				// It came and went between two samples.
				lq.record.Consumed.Add(entry)
				lq.pardon(uid)
			}
		}
		s.weigh(lq)
		s.told.locals[lq] = true
		q.forgive()
		if !lq.idle() {
			s.sampleAt = now.Add(s.sharing.Interval)
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

// lot are Workloads of one LocalQueue, in their order.
type lot struct {
	local *localQueue
	rest  []*Workload
}

// lotsOf divides Workloads by LocalQueue.
func lotsOf(list []*Workload) []*lot {
	var out []*lot
	of := map[*localQueue]*lot{}
	for _, w := range list {
		if of[w.local] == nil {
			of[w.local] = &lot{local: w.local}
			out = append(out, of[w.local])
		}
		of[w.local].rest = append(of[w.local].rest, w)
	}
	return out
}

// ahead says that the first of a lot comes before that of another one.
func (a *lot) ahead(b *lot) bool {
	if a.local.usage != b.local.usage {
		return a.local.usage < b.local.usage
	}
	return before(a.rest[0], b.rest[0])
}
