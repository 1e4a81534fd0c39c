package cache

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// WaitingReason returns why the Workload waits and when it is evaluated again. If no cycle has evaluated it, for
// example during a backoff, the reason is that of its condition.
func (w *Workload) WaitingReason() (reason, message string, next time.Time) {
	c := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadQuotaReserved)
	if w.Reason == "" && c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason, c.Message, w.wakeAt
	}
	return w.Reason, w.Message, w.wakeAt
}

// WaitingReason returns the reason of a Workload without evaluating it; empty if the Workload does not exist.
func (s *Cache) WaitingReason(uid types.UID) (reason, message string, next time.Time) {
	if w := s.Workloads[uid]; w != nil {
		return w.WaitingReason()
	}
	return "", "", time.Time{}
}

// PendingInOrder returns the pending Workloads of a ClusterQueue in order, including those that are blocked or back
// off. It needs no Cycle.
func (s *Cache) PendingInOrder(name kueue.ClusterQueueReference) []*kueue.Workload {
	if s.Outdated {
		s.Rebuild()
	}
	q := s.Queues[name]
	var list []*Workload
	for _, w := range s.Workloads {
		if q != nil && w.Queue == q && w.Phase == Pending && w.Assumed == nil {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, Compare)
	out := make([]*kueue.Workload, len(list))
	for i, w := range list {
		out[i] = w.Object
	}
	return out
}

// Requested returns the resource requests in the status of a pending Workload.
func (w *Workload) Requested() []kueue.PodSetRequest {
	if w.Queue == nil {
		return nil
	}
	out := make([]kueue.PodSetRequest, len(w.Pod))
	for i, n := range PodCounts(w) {
		total := make(nodegroups.Resources, len(w.Pod[i]))
		for name, v := range w.Pod[i] {
			total[name] = nodegroups.Times(v, int64(n))
		}
		out[i] = kueue.PodSetRequest{Name: w.Object.Spec.PodSets[i].Name, Resources: total.List()}
	}
	return out
}

// Requested returns the resource requests of a Workload; nil if it does not exist.
func (s *Cache) Requested(uid types.UID) []kueue.PodSetRequest {
	if w := s.Workloads[uid]; w != nil {
		return w.Requested()
	}
	return nil
}
