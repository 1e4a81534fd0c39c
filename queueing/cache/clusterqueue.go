package cache

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
)

func CheckRules(cq *kueue.ClusterQueue) []kueue.AdmissionCheckStrategyRule {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	return cq.Spec.AdmissionChecksStrategy.AdmissionChecks
}

// FlavorsOf lists the flavors of a ClusterQueue in the order of its spec.
func FlavorsOf(cq *kueue.ClusterQueue) []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			if !slices.Contains(out, f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// applies says that a check is needed where a flavor is assigned.
func applies(rule kueue.AdmissionCheckStrategyRule, flavor kueue.ResourceFlavorReference) bool {
	return len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor)
}

// ChecksFor lists the checks that an assignment needs, in the order of the
// queue's spec.
func ChecksFor(cq *kueue.ClusterQueue, flavors []kueue.ResourceFlavorReference) []kueue.AdmissionCheckReference {
	var out []kueue.AdmissionCheckReference
	for _, rule := range CheckRules(cq) {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(flavors, func(f kueue.ResourceFlavorReference) bool { return applies(rule, f) }) {
			out = append(out, rule.Name)
		}
	}
	return out
}

// What a queue lends it may not get back: with reclaimWithinCohort other than Any, some
// that borrow from it stay for as long as they like. As long as its head waits for nominal
// quota of its own, what is free of that quota is therefore kept for the head, and not
// lent to other queues. Kueue does the same for the heads of one scheduling cycle.

// HeadReservation is quota that other queues may not borrow.
type HeadReservation struct {
	Queue *ClusterQueue
	Head  *Workload
	Usage quota.Amounts
}

// ClusterQueue is a ClusterQueue with what is in it.
type ClusterQueue struct {
	Object   *kueue.ClusterQueue
	Standing Standing
	Node     *quota.Node
	Tree     *Tree
	counts

	// Pending are the Workloads that wait and may be judged, in their order; fresh
	// those of them that have not been since they changed. AllUnjudged says that none has been
	// since the queue did.
	Pending     *btree.BTreeG[*Workload]
	Unjudged    map[types.UID]*Workload
	AllUnjudged bool
	// Inadmissible are the answers to Workloads that still wait. They hold as long as
	// quota and machines only become fewer.
	Inadmissible map[EquivalenceClass]*Inadmissible
	// WithQuota are those with quota.
	WithQuota map[types.UID]*Workload
	// Requested is what those that wait ask for, on whatever flavor.
	Requested Sums
	// Skipped are the Workloads that found nothing to preempt in the last cycle but what
	// others had claimed in it.
	Skipped map[types.UID]bool
	// Unobserved counts those charged with quota whose objects do not show it yet.
	Unobserved int
	// circular: its cohort is in a circle of cohorts.
	circular bool
	// WantsMachines says that a refusal was for want of machines.
	WantsMachines bool
	// WantsNodes says that a refusal was for want of room in the domains of a Topology.
	WantsNodes bool
}

func newQueue(cq *kueue.ClusterQueue) *ClusterQueue {
	return &ClusterQueue{
		Object: cq, counts: newCounts(),
		Node:         quota.NewNode(cq.Name, weightOf(cq.Spec.FairSharing), quotasOf(cq.Spec.ResourceGroups)),
		Pending:      btree.NewG(32, Less),
		Unjudged:     map[types.UID]*Workload{},
		Inadmissible: map[EquivalenceClass]*Inadmissible{},
		WithQuota:    map[types.UID]*Workload{},
		Requested:    Sums{},
		Skipped:      map[types.UID]bool{},
	}
}

// Less orders the Workloads of a ClusterQueue: higher priority, then longer in
// the queue, then the UID, which is unique.
func Less(a, b *Workload) bool { return Compare(a, b) < 0 }

func Compare(a, b *Workload) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	if c := a.Since.Compare(b.Since); c != 0 {
		return c
	}
	return strings.Compare(string(a.Object.UID), string(b.Object.UID))
}

// Push puts a Workload into the queue, to be judged.
func (q *ClusterQueue) Push(w *Workload) {
	q.Pending.ReplaceOrInsert(w)
	q.Unjudged[w.Object.UID] = w
}

// Drop takes a Workload out of those that wait to be judged.
func (q *ClusterQueue) Drop(w *Workload) {
	q.Pending.Delete(w)
	delete(q.Unjudged, w.Object.UID)
}

// Remove takes out a Workload that waits no more though it got no quota. Those that were
// refused because of it may start now: all behind the head of a StrictFIFO queue, and all
// of the tree if quota was claimed or kept for it.
func (q *ClusterQueue) Remove(w *Workload) {
	if !q.Pending.Has(w) {
		return
	}
	head, _ := q.Pending.Min()
	q.AllUnjudged = q.AllUnjudged || head == w && q.Object.Spec.QueueingStrategy == kueue.StrictFIFO
	kept := slices.ContainsFunc(q.Tree.HeadReservations, func(k HeadReservation) bool { return k.Head == w })
	q.Tree.Released = q.Tree.Released || q.Tree.Claimed || kept
	q.Drop(w)
}

// RequeueInadmissible forgets what was refused, so that all are judged again.
func (q *ClusterQueue) RequeueInadmissible() {
	clear(q.Inadmissible)
	q.WantsMachines, q.WantsNodes, q.AllUnjudged = false, false, true
}

// HasUnjudged reports whether there is a Workload to be judged.
func (q *ClusterQueue) HasUnjudged() bool {
	return len(q.Unjudged) > 0 || q.AllUnjudged && q.Pending.Len() > 0
}

// MarkJudged empties what is to be judged. A table that was large once would cost as much to
// clear ever after.
func (q *ClusterQueue) MarkJudged() { q.Unjudged, q.AllUnjudged = map[types.UID]*Workload{}, false }

// weightOf is in thousandths; one where nothing is said.
func weightOf(fs *kueue.FairSharing) int64 {
	if fs == nil || fs.Weight == nil {
		return 1000
	}
	return max(0, nodegroups.Scaled(*fs.Weight, resource.Milli))
}

// quotasOf reads the quotas of a ClusterQueue or cohort.
func quotasOf(groups []kueue.ResourceGroup) map[quota.FlavorResource]quota.Quota {
	out := map[quota.FlavorResource]quota.Quota{}
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				amount := func(list corev1.ResourceList) int64 { return nodegroups.ResourcesFrom(list)[r.Name] }
				own := quota.Quota{Nominal: amount(corev1.ResourceList{r.Name: r.NominalQuota})}
				if r.BorrowingLimit != nil {
					own.Borrowing = new(amount(corev1.ResourceList{r.Name: *r.BorrowingLimit}))
				}
				if r.LendingLimit != nil {
					own.Lending = new(amount(corev1.ResourceList{r.Name: *r.LendingLimit}))
				}
				out[quota.FlavorResource{Flavor: flavor.Name, Resource: r.Name}] = own
			}
		}
	}
	return out
}
