package status

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// Figures are the metrics of a queue beyond its status.
type Figures struct {
	// Active is the number of its pending Workloads that are about to be evaluated. Finished is the number of finished
	// Workloads that are not deleted yet.
	Active, Finished int32
	// Unadmitted is the number of its active Workloads that are not admitted, by why they are not.
	Unadmitted map[cache.Unadmitted]int32
	// Skipped is the number of Workloads whose preemption candidates were all preempted for others in the last cycle.
	Skipped int
	// Pending is the sum of the requests of its pending Workloads. It includes every resource with quota. It is nil
	// for LocalQueues.
	Pending nodegroups.Resources
	// Cohorts are the ancestors of a ClusterQueue, its parent first.
	Cohorts []string
	// Share is the weighted share of a ClusterQueue. In the status it is rounded up.
	Share float64
	// Usage is the recent usage of a LocalQueue whose ClusterQueue uses admission fair sharing; nil otherwise.
	Usage *float64
}

// CohortFigures are the metrics of a cohort, with or without an object. Sums include all of its descendants.
type CohortFigures struct {
	// Parent is empty for a root; Root is then the cohort itself.
	Parent, Root string
	// Quota is its nominal quota without what its members do not lend. Reserved is the usage of its Workloads with
	// quota.
	Quota, Reserved quota.Amounts
	// Admitted is the number of admitted Workloads.
	Admitted int32
}

// OfClusterQueue returns the metrics of a ClusterQueue.
func OfClusterQueue(c *cache.Cache, name kueue.ClusterQueueReference) Figures {
	s := reader{c}
	q := s.Queues[name]
	if q == nil {
		return Figures{}
	}
	out := Figures{Active: s.activePending(name), Finished: q.Finished, Skipped: len(q.Skipped), Pending: nodegroups.Resources{},
		Unadmitted: maps.Clone(q.Unadmitted),
		Share:      q.Node.Share().Precise()}
	for _, fr := range q.Node.Keys() {
		out.Pending[fr.Resource] = 0
	}
	for fr, v := range q.Requested {
		out.Pending[fr.Resource] = v
	}
	for at := q.Node.Parent(); at != nil; at = at.Parent() {
		out.Cohorts = append(out.Cohorts, at.Name)
	}
	return out
}

// ShareOf returns the weighted share of a cohort. In the status it is rounded up.
func ShareOf(c *cache.Cache, cohort kueue.CohortReference) float64 {
	if n := c.CohortNodes[cohort]; n != nil {
		return n.Share().Precise()
	}
	return 0
}

// OfLocalQueue returns the metrics of a LocalQueue.
func OfLocalQueue(c *cache.Cache, key types.NamespacedName) Figures {
	s := reader{c}
	lq := s.LocalQueues[key]
	if lq == nil {
		return Figures{}
	}
	out := Figures{Active: s.localActivePending(key), Finished: lq.Finished, Unadmitted: maps.Clone(lq.Unadmitted)}
	if q := s.Queues[lq.Object.Spec.ClusterQueue]; q != nil && s.SharesByUsage(q) {
		out.Usage = &lq.Usage
	}
	return out
}

// cohortFigures returns the metrics of a cohort.
func (s reader) cohortFigures(n *quota.Node) CohortFigures {
	out := CohortFigures{Root: n.Root().Name, Quota: quota.Amounts{}, Reserved: quota.Amounts{}}
	if n.Parent() != nil {
		out.Parent = n.Parent().Name
	}
	for _, fr := range n.Keys() {
		if v := n.Subtree(fr); v > 0 {
			out.Quota[fr] = v
		}
	}
	var sum func(n *quota.Node)
	sum = func(n *quota.Node) {
		if q := s.queueOf(n); q != nil {
			out.Reserved.Add(quota.Amounts(q.Reserved))
			out.Admitted += q.Running
		}
		for _, child := range n.Children() {
			sum(child)
		}
	}
	sum(n)
	return out
}

// queueOf returns the ClusterQueue of a node; nil for the node of a cohort, which may have the same name as a
// ClusterQueue.
func (s reader) queueOf(n *quota.Node) *cache.ClusterQueue {
	if q := s.Queues[kueue.ClusterQueueReference(n.Name)]; q != nil && q.Node == n {
		return q
	}
	return nil
}

// activePending returns the number of pending Workloads of a ClusterQueue that are evaluated again whenever one of the
// queue is. All others first wait for an event: released quota, the end of a backoff, or a change by a user.
func (s reader) activePending(name kueue.ClusterQueueReference) int32 {
	if q := s.Queues[name]; judgesAll(q) {
		return int32(q.Pending.Len())
	}
	return 0
}

// localActivePending is activePending for the Workloads of a LocalQueue.
func (s reader) localActivePending(key types.NamespacedName) (n int32) {
	lq := s.LocalQueues[key]
	if lq == nil {
		return 0
	}
	if q := s.Queues[lq.Object.Spec.ClusterQueue]; judgesAll(q) {
		q.Pending.Ascend(func(w *cache.Workload) bool {
			if w.Local == lq {
				n++
			}
			return true
		})
	}
	return n
}

// judgesAll reports whether no result lasts: a StrictFIFO queue starts with its head each time, and if quota was
// released or is reserved, all Workloads are evaluated again.
func judgesAll(q *cache.ClusterQueue) bool {
	return q != nil &&
		(q.Object.Spec.QueueingStrategy == kueue.StrictFIFO || q.Tree.QuotaReleased || q.Tree.HasReservations)
}
