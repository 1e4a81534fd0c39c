package status

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// Figures are what metrics show of a queue beside its status.
type Figures struct {
	// Active is how many of its pending Workloads are about to be judged, Finished how
	// many Workloads are over and not deleted yet.
	Active, Finished int32
	// Skipped is how many Workloads found nothing to preempt in the last cycle but what
	// others had claimed in it.
	Skipped int
	// Pending is what its pending Workloads ask for. A resource that the queue has quota
	// for is always there. Of LocalQueues it is not told.
	Pending nodegroups.Resources
	// Cohorts are those above a ClusterQueue, its parent first and the root last.
	Cohorts []string
	// Share is the weighted share of a ClusterQueue, which its status has rounded up.
	Share float64
	// Usage is what a LocalQueue has used lately where its ClusterQueue asks for
	// admission fair sharing; nil where it does not.
	Usage *float64
}

// CohortFigures are what metrics show of a cohort, whether an object describes it or
// queues merely name it. Sums are over all below it.
type CohortFigures struct {
	// Parent is empty for a root; Root is then the cohort itself.
	Parent, Root string
	// Quota is the nominal quota that there is in it, less what its members do not
	// lend. Reserved is what its Workloads with quota have.
	Quota, Reserved quota.Amounts
	// Admitted is how many Workloads are admitted.
	Admitted int32
}

// OfClusterQueue are the figures of a ClusterQueue.
func OfClusterQueue(c *cache.Cache, name kueue.ClusterQueueReference) Figures {
	s := reader{c}
	q := s.Queues[name]
	if q == nil {
		return Figures{}
	}
	out := Figures{Active: s.activePending(name), Finished: q.Finished, Skipped: len(q.Skipped), Pending: nodegroups.Resources{},
		Share: q.Node.Share().Precise()}
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

// ShareOf is the weighted share of a cohort, which its status has rounded up.
func ShareOf(c *cache.Cache, cohort kueue.CohortReference) float64 {
	if n := c.CohortNodes[cohort]; n != nil {
		return n.Share().Precise()
	}
	return 0
}

// OfLocalQueue are the figures of a LocalQueue.
func OfLocalQueue(c *cache.Cache, key types.NamespacedName) Figures {
	s := reader{c}
	lq := s.LocalQueues[key]
	if lq == nil {
		return Figures{}
	}
	out := Figures{Active: s.localActivePending(key), Finished: lq.Finished}
	if q := s.Queues[lq.Object.Spec.ClusterQueue]; q != nil && s.SharesByUsage(q) {
		out.Usage = &lq.Usage
	}
	return out
}

// cohortFigures are those of a cohort, worked out of all below it.
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

// queueOf is the ClusterQueue of a node; nil for that of a cohort, which may have the
// name of a ClusterQueue.
func (s reader) queueOf(n *quota.Node) *cache.ClusterQueue {
	if q := s.Queues[kueue.ClusterQueueReference(n.Name)]; q != nil && q.Node == n {
		return q
	}
	return nil
}

// activePending is how many of the Workloads that wait in a ClusterQueue are judged
// again whenever one of the queue is. All others wait for something to change first:
// for quota to come back, for the end of a pause, or for a user to act.
func (s reader) activePending(name kueue.ClusterQueueReference) int32 {
	if q := s.Queues[name]; judgesAll(q) {
		return int32(q.Pending.Len())
	}
	return 0
}

// localActivePending is activePending for what came by a LocalQueue.
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

// judgesAll says that no refusal lasts: a StrictFIFO queue begins with its head each
// time, and where quota came back or is kept for a Workload, all are judged again.
func judgesAll(q *cache.ClusterQueue) bool {
	return q != nil &&
		(q.Object.Spec.QueueingStrategy == kueue.StrictFIFO || q.Tree.Released || q.Tree.Claimed)
}
