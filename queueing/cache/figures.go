package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
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

// Figures are those of a ClusterQueue.
func (s *Cache) Figures(name kueue.ClusterQueueReference) Figures {
	q := s.Queues[name]
	if q == nil {
		return Figures{}
	}
	out := Figures{Active: s.ActivePending(name), Finished: q.finished, Skipped: len(q.Skipped), Pending: nodegroups.Resources{}}
	for _, fr := range q.Node.Keys() {
		out.Pending[fr.Resource] = 0
	}
	for fr, v := range q.requested {
		out.Pending[fr.Resource] = v
	}
	for at := q.Node.Parent(); at != nil; at = at.Parent() {
		out.Cohorts = append(out.Cohorts, at.Name)
	}
	return out
}

// LocalFigures are those of a LocalQueue.
func (s *Cache) LocalFigures(key types.NamespacedName) Figures {
	lq := s.LocalQueues[key]
	if lq == nil {
		return Figures{}
	}
	out := Figures{Active: s.LocalActivePending(key), Finished: lq.finished}
	if q := s.Queues[lq.Object.Spec.ClusterQueue]; q != nil && s.SharesByUsage(q) {
		out.Usage = &lq.Usage
	}
	return out
}

// cohortFigures are those of a cohort, worked out of all below it.
func (s *Cache) cohortFigures(n *quota.Node) CohortFigures {
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
			out.Reserved.Add(quota.Amounts(q.reserved))
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
func (s *Cache) queueOf(n *quota.Node) *ClusterQueue {
	if q := s.Queues[kueue.ClusterQueueReference(n.Name)]; q != nil && q.Node == n {
		return q
	}
	return nil
}

// Float is an amount in the base unit of its resource, as metrics have it.
func Float(name corev1.ResourceName, v int64) float64 {
	q := nodegroups.Resources{name: v}.List()[name]
	return q.AsApproximateFloat64()
}
