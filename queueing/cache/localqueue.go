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

// counts are what the status of a queue shows.
type counts struct {
	Waiting, Reserving, Running int32
	// finished are those that are over and not deleted yet.
	finished int32
	// reserved is what Workloads have reserved, admitted the part of it whose
	// Workloads may run.
	reserved, admitted sums
}

func NewCounts() counts { return counts{reserved: sums{}, admitted: sums{}} }

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

// sums are amounts that Workloads are added to and taken from.
type sums quota.Amounts

func (a sums) change(usage quota.Amounts, by int32) {
	if by > 0 {
		quota.Amounts(a).Add(usage)
	} else {
		quota.Amounts(a).Sub(usage)
	}
}
