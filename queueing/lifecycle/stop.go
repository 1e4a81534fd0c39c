package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// stop evicts or releases a Workload that a user has stopped: by itself, by its LocalQueue or by its ClusterQueue. Hold
// releases the quota of Workloads that are not admitted; HoldAndDrain also evicts the others.
func (s Rules) stop(w *cache.Workload) *Verdict {
	if v := s.Deactivate(w); v != nil {
		return v
	}
	if !workload.IsActive(w.Object) {
		cause, message := deactivationCause(w.Object)
		return s.evictDueTo(w, kueue.WorkloadDeactivated, cause, message, kueue.WorkloadDeactivated, time.Time{})
	}
	lq, q := s.cache.LocalQueueOf(w), s.cache.Queues[w.Object.Status.Admission.ClusterQueue]
	if workload.IsAdmitted(w.Object) {
		switch {
		case lq != nil && cache.Drains(lq.Spec.StopPolicy):
			return s.Evict(w, kueue.WorkloadEvictedByLocalQueueStopped, "The LocalQueue is stopped",
				kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
		case q != nil && cache.Drains(q.Object.Spec.StopPolicy):
			return s.Evict(w, kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped",
				kueue.WorkloadQuotaReservedReasonSuspended, time.Time{})
		}
		return nil
	}
	switch {
	case lq == nil || !lq.DeletionTimestamp.IsZero():
		return s.Release(w, kueue.WorkloadQuotaReservedReasonMisconfigured,
			fmt.Sprintf("LocalQueue %s is terminating or missing", w.Object.Spec.QueueName))
	case cache.IsStopped(lq.Spec.StopPolicy):
		return s.Release(w, kueue.WorkloadQuotaReservedReasonSuspended, StoppedMessage(lq))
	case q == nil || !q.Object.DeletionTimestamp.IsZero():
		return s.Release(w, kueue.WorkloadQuotaReservedReasonMisconfigured,
			fmt.Sprintf("ClusterQueue %s is terminating or missing", w.Object.Status.Admission.ClusterQueue))
	case cache.IsStopped(q.Object.Spec.StopPolicy):
		return s.Release(w, kueue.WorkloadQuotaReservedReasonSuspended, InactiveMessage(q))
	}
	return nil
}

// StoppedMessage and InactiveMessage explain why a stopped queue blocks a Workload. They are the same before and after
// it loses its quota, so that they are written once.
func StoppedMessage(lq *kueue.LocalQueue) string {
	return fmt.Sprintf("LocalQueue %s is inactive: its stopPolicy is %s; set it to None to resume", lq.Name, *lq.Spec.StopPolicy)
}

func InactiveMessage(q *cache.ClusterQueue) string {
	return fmt.Sprintf("ClusterQueue %s is inactive: %s", q.Object.Name, q.Status.Message)
}
