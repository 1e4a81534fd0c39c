package queueing

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ActivePending is how many of the Workloads that wait in a ClusterQueue are judged
// again whenever one of the queue is. All others wait for something to change first:
// for quota to come back, for the end of a pause, or for somebody to act.
func (s *Cache) ActivePending(name kueue.ClusterQueueReference) int32 {
	if q := s.queues[name]; q.judgesAll() {
		return int32(q.pending.Len())
	}
	return 0
}

// LocalActivePending is ActivePending for what came by a LocalQueue.
func (s *Cache) LocalActivePending(key types.NamespacedName) (n int32) {
	lq := s.localQueues[key]
	if lq == nil {
		return 0
	}
	if q := s.queues[lq.object.Spec.ClusterQueue]; q.judgesAll() {
		q.pending.Ascend(func(w *Workload) bool {
			if w.local == lq {
				n++
			}
			return true
		})
	}
	return n
}

// judgesAll says that no refusal lasts: a StrictFIFO queue begins with its head each
// time, and where quota came back or is kept for somebody, all is judged anew.
func (q *queue) judgesAll() bool {
	return q != nil &&
		(q.object.Spec.QueueingStrategy == kueue.StrictFIFO || q.tree.loosened || q.tree.claimed)
}
