package queueing

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ActivePending is how many of the Workloads that wait in a ClusterQueue the next
// cycle judges. All others wait for something to change first: for quota to come
// back, for the end of a pause, or for somebody to act.
func (s *State) ActivePending(name kueue.ClusterQueueReference) int32 {
	q := s.queues[name]
	switch {
	case q == nil || !q.standing.Active:
		return 0
	case q.judgesAll():
		return int32(q.pending.Len())
	}
	return int32(len(q.fresh))
}

// LocalActivePending is ActivePending for what came by a LocalQueue.
func (s *State) LocalActivePending(key types.NamespacedName) (n int32) {
	lq := s.localQueues[key]
	if lq == nil {
		return 0
	}
	q := s.queues[lq.object.Spec.ClusterQueue]
	switch {
	case q == nil || !q.standing.Active:
	case q.judgesAll():
		q.pending.Ascend(func(w *Workload) bool {
			if w.local == lq {
				n++
			}
			return true
		})
	default:
		for _, w := range q.fresh {
			if w.local == lq {
				n++
			}
		}
	}
	return n
}

// judgesAll says that the next cycle judges whoever waits: a StrictFIFO queue
// begins with its head each time, and where quota came back or is kept for
// somebody, nothing that was said holds.
func (q *queue) judgesAll() bool {
	return q.object.Spec.QueueingStrategy == kueue.StrictFIFO || q.tree.loosened || q.tree.claimed
}
