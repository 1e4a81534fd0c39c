package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/usage"
)

// Admission fair sharing: a ClusterQueue with the mode UsageBasedAdmissionFairSharing evaluates the Workloads of the
// LocalQueue with the lowest recent usage first, whatever their priorities. It preempts those of the LocalQueue with
// the highest usage first.

// consumption is the recent usage of a LocalQueue.
type consumption struct {
	// Record is the state of the last sample. It is also in the status of the LocalQueue, from which it is restored
	// after a restart.
	Record usage.Record
	// entries are the penalties of Workloads whose usage is in no sample yet, and penalty is their sum.
	entries map[types.UID]usage.Amounts
	penalty usage.Amounts
	// Usage is the weighted sum that orders LocalQueues.
	Usage float64
}

// consumptionOf restores the consumption from the status of a LocalQueue.
func consumptionOf(lq *kueue.LocalQueue) consumption {
	c := consumption{Record: usage.Record{Consumed: usage.Amounts{}}, entries: map[types.UID]usage.Amounts{}, penalty: usage.Amounts{}}
	if s := lq.Status.FairSharing; s != nil && s.AdmissionFairSharingStatus != nil {
		c.Record = usage.Record{
			Consumed: usage.FromList(s.AdmissionFairSharingStatus.ConsumedResources),
			At:       s.AdmissionFairSharingStatus.LastUpdate.Time,
		}
	}
	return c
}

// SharesByUsage reports whether a ClusterQueue orders its LocalQueues by usage. As in Kueue, the field has no effect
// unless admission fair sharing is configured.
func (s *Settings) SharesByUsage(q *ClusterQueue) bool {
	scope := q.Object.Spec.AdmissionScope
	return s.Sharing != nil && scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
}

// updateUsage computes Usage.
func (s *Settings) updateUsage(lq *LocalQueue) {
	if s.Sharing != nil {
		lq.Usage = s.Sharing.Usage(weightOf(lq.Object.Spec.FairSharing), lq.Record.Consumed, lq.penalty)
	}
}

// dropPenalty removes a penalty.
func (lq *LocalQueue) dropPenalty(uid types.UID) {
	lq.penalty.Sub(lq.entries[uid])
	delete(lq.entries, uid)
}

// idle reports whether there is nothing to sample.
func (lq *LocalQueue) idle() bool {
	return len(lq.Record.Consumed) == 0 && len(lq.entries) == 0 && len(lq.Reserved) == 0
}

// SampleTime truncates the time to the precision of the API.
func SampleTime(now time.Time) time.Time { return now.Truncate(time.Second) }

// ofResources sums quota amounts over flavors, in the unit of package usage.
func ofResources(amounts quota.Amounts) usage.Amounts {
	total := nodegroups.Resources{}
	for fr, v := range amounts {
		total[fr.Resource] = nodegroups.Plus(total[fr.Resource], v)
	}
	return usage.FromList(total.List())
}
