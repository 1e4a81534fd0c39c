package cache

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Unadmitted is the number of active Workloads that are not admitted, by why they are not.
	Unadmitted map[Unadmitted]int32
}

// Unadmitted is why a Workload is not admitted: the reasons of its conditions Admitted and QuotaReserved, as in Kueue's metrics.
type Unadmitted struct{ Reason, UnderlyingCause string }

// unadmittedAs returns why a Workload is not admitted.
func unadmittedAs(w *kueue.Workload) Unadmitted {
	out := Unadmitted{kueue.WorkloadAdmittedReasonNoReservation, kueue.WorkloadQuotaReservedReasonPendingEvaluation}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); c != nil {
		out.Reason = c.Reason
	}
	switch c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); {
	case c == nil:
	case c.Status == metav1.ConditionTrue:
		out.UnderlyingCause = ""
	default:
		out.UnderlyingCause = c.Reason
	}
	return out
}

func newCounts() counts {
	return counts{Reserved: Sums{}, Admitted: Sums{}, Unadmitted: map[Unadmitted]int32{}}
}

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
