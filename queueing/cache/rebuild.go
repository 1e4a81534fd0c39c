package cache

import (
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Rebuild works out the queues anew after an object other than a Workload or a
// request has changed, which is seldom, and has every Workload looked at again.
func (s *Cache) Rebuild() {
	for _, q := range s.Order {
		// Cheaper than to take out one after the other.
		q.Pending.Clear(false)
	}
	for _, w := range s.Workloads {
		s.remove(w)
		// The trees are built again, without anything in use.
		w.chargedTo, w.charged, w.unobserved = nil, nil, false
	}
	s.Outdated = false
	s.Queues = make(map[kueue.ClusterQueueReference]*ClusterQueue, len(s.ClusterQueues))
	s.Order = s.Order[:0]
	for _, cq := range s.ClusterQueues {
		q := newQueue(cq)
		s.Queues[kueue.ClusterQueueReference(cq.Name)] = q
		s.Order = append(s.Order, q)
	}
	slices.SortFunc(s.Order, func(a, b *ClusterQueue) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	for _, lq := range s.LocalQueues {
		lq.counts = NewCounts()
		s.updateUsage(lq)
	}
	s.buildTrees()
	for _, q := range s.Order {
		q.Standing = s.clusterQueueStanding(q)
	}
	for uid, w := range s.Workloads {
		if w.Assumed != nil {
			// A queue that is gone is charged with nothing.
			w.Assumed = s.Queues[kueue.ClusterQueueReference(w.Assumed.Object.Name)]
		}
		s.add(w)
		s.Due[uid] = w
	}
	s.Dirty.AddAll(s)
	if s.Sharing != nil && s.SampleAt.IsZero() {
		// The sample finds out which LocalQueues use anything.
		s.SampleAt = atOnce
	}
}

// atOnce is a time that is over.
var atOnce = time.Unix(0, 0)
