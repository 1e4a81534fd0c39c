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
	entries map[types.UID]usage.Amounts
	penalty usage.Amounts
	// Usage is all that as one figure to order by.
	Usage float64
}

// consumptionOf reads what the status of a LocalQueue remembers.
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

// SharesByUsage says that a ClusterQueue orders its LocalQueues by what they have
// used. Without the configuration for it the field means nothing, as in Kueue.
func (s *Settings) SharesByUsage(q *ClusterQueue) bool {
	scope := q.Object.Spec.AdmissionScope
	return s.Sharing != nil && scope != nil && scope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
}

// updateUsage works out the figure to order by.
func (s *Settings) updateUsage(lq *LocalQueue) {
	if s.Sharing != nil {
		lq.Usage = s.Sharing.Usage(weightOf(lq.Object.Spec.FairSharing), lq.Record.Consumed, lq.penalty)
	}
}

// dropPenalty takes a penalty back.
func (lq *LocalQueue) dropPenalty(uid types.UID) {
	lq.penalty.Sub(lq.entries[uid])
	delete(lq.entries, uid)
}

// idle says that there is nothing to sample.
func (lq *LocalQueue) idle() bool {
	return len(lq.Record.Consumed) == 0 && len(lq.entries) == 0 && len(lq.Reserved) == 0
}

// SampleTime is now as an API object can tell it.
func SampleTime(now time.Time) time.Time { return now.Truncate(time.Second) }

// ofResources are amounts of quota in thousandths, on whatever flavor.
func ofResources(amounts quota.Amounts) usage.Amounts {
	total := nodegroups.Resources{}
	for fr, v := range amounts {
		total[fr.Resource] = nodegroups.Plus(total[fr.Resource], v)
	}
	return usage.FromList(total.List())
}
