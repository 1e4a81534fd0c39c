package queueing

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// index is a Snapshot with its references resolved.
type index struct {
	*Snapshot
	queues      map[kueue.ClusterQueueReference]*queue
	order       []*queue
	localQueues map[types.NamespacedName]*kueue.LocalQueue
	flavors     map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	checks      map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck
	policies    map[string]*v1alpha1.CapacityPolicy
}

// queue is a ClusterQueue with what is in it.
type queue struct {
	object   *kueue.ClusterQueue
	standing Standing
	nominal  Usage
	// reserved is what its Workloads have reserved, admitted the part of it whose
	// Workloads may run.
	reserved, admitted Usage
	// Counts of its Workloads by how far they are.
	waiting, reserving, running int32
	// pending are those that wait and may be judged.
	pending []*Workload
}

func newIndex(s *Snapshot) *index {
	ix := &index{
		Snapshot:    s,
		queues:      make(map[kueue.ClusterQueueReference]*queue, len(s.ClusterQueues)),
		localQueues: make(map[types.NamespacedName]*kueue.LocalQueue, len(s.LocalQueues)),
		flavors:     make(map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor, len(s.Flavors)),
		checks:      make(map[kueue.AdmissionCheckReference]*kueue.AdmissionCheck, len(s.Checks)),
		policies:    make(map[string]*v1alpha1.CapacityPolicy, len(s.Policies)),
	}
	for _, lq := range s.LocalQueues {
		ix.localQueues[types.NamespacedName{Namespace: lq.Namespace, Name: lq.Name}] = lq
	}
	for _, f := range s.Flavors {
		ix.flavors[kueue.ResourceFlavorReference(f.Name)] = f
	}
	for _, c := range s.Checks {
		ix.checks[kueue.AdmissionCheckReference(c.Name)] = c
	}
	for _, p := range s.Policies {
		ix.policies[p.Name] = p
	}
	for _, cq := range s.ClusterQueues {
		q := &queue{object: cq, nominal: nominal(cq), reserved: Usage{}, admitted: Usage{}}
		q.standing = ix.clusterQueueStanding(cq)
		ix.queues[kueue.ClusterQueueReference(cq.Name)] = q
		ix.order = append(ix.order, q)
	}
	slices.SortFunc(ix.order, func(a, b *queue) int { return strings.Compare(a.object.Name, b.object.Name) })
	for _, w := range s.Workloads {
		ix.count(w)
	}
	return ix
}

// count adds a Workload to the numbers of its queue.
func (ix *index) count(w *Workload) {
	switch {
	case IsFinished(w.Object):
	case HasQuota(w.Object):
		q := ix.queues[w.Object.Status.Admission.ClusterQueue]
		if q == nil {
			return
		}
		q.reserving++
		q.reserved.Add(w.Usage)
		if IsAdmitted(w.Object) {
			q.running++
			q.admitted.Add(w.Usage)
		}
	case IsActive(w.Object):
		if q := ix.queueOf(w); q != nil {
			q.waiting++
		}
	}
}

// queueOf is the queue that a Workload waits in; nil if a link is missing.
func (ix *index) queueOf(w *Workload) *queue {
	lq := ix.localQueueOf(w)
	if lq == nil {
		return nil
	}
	return ix.queues[lq.Spec.ClusterQueue]
}

func (ix *index) localQueueOf(w *Workload) *kueue.LocalQueue {
	return ix.localQueues[types.NamespacedName{Namespace: w.Object.Namespace, Name: string(w.Object.Spec.QueueName)}]
}

// sorted returns the Workloads in the order of their names, so that the same
// snapshot always gives the same verdicts in the same order.
func (ix *index) sorted() []*Workload {
	return slices.SortedFunc(slices.Values(ix.Workloads), func(a, b *Workload) int {
		return cmp.Or(strings.Compare(a.Object.Namespace, b.Object.Namespace), strings.Compare(a.Object.Name, b.Object.Name))
	})
}
