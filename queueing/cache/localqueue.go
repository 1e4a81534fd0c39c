package cache

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// LocalQueue is a LocalQueue with its numbers.
type LocalQueue struct {
	Object *kueue.LocalQueue
	counts
	consumption
}

// counts are the numbers in the status of a queue.
type counts struct {
	Waiting, Reserving, Running int32
	// Finished Workloads are not deleted yet.
	Finished int32
	// Reserved is the reserved quota, Admitted the part of it that belongs to admitted Workloads.
	Reserved, Admitted Sums
}

func newCounts() counts { return counts{Reserved: Sums{}, Admitted: Sums{}} }

func (q *ClusterQueue) countsOf() *counts {
	if q == nil {
		return nil
	}
	return &q.counts
}

func (lq *LocalQueue) countsOf() *counts {
	if lq == nil {
		return nil
	}
	return &lq.counts
}

// Sums are sums of usage.
type Sums quota.Amounts

func (a Sums) change(usage quota.Amounts, by int32) {
	if by > 0 {
		quota.Amounts(a).Add(usage)
	} else {
		quota.Amounts(a).Sub(usage)
	}
}
