package cache

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/preemption"
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

// applies reports whether a check applies to a flavor.
func applies(rule kueue.AdmissionCheckStrategyRule, flavor kueue.ResourceFlavorReference) bool {
	return len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor)
}

// ChecksFor lists the checks that an assignment requires, in the order of the queue's spec.
func ChecksFor(cq *kueue.ClusterQueue, flavors []kueue.ResourceFlavorReference) []kueue.AdmissionCheckReference {
	var out []kueue.AdmissionCheckReference
	for _, rule := range CheckRules(cq) {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(flavors, func(f kueue.ResourceFlavorReference) bool { return applies(rule, f) }) {
			out = append(out, rule.Name)
		}
	}
	return out
}

// A queue may not get back what it lends: with a reclaimWithinCohort other than Any, some borrowers cannot be
// preempted. So while the head of a queue waits for nominal quota, the free part of that quota is reserved for the head
// and not lent. Kueue does the same for the heads of one scheduling cycle.

// HeadReservation is quota that other queues may not borrow.
type HeadReservation struct {
	Queue *ClusterQueue
	Head  *Workload
	Usage quota.Amounts
}

// ClusterQueue is a ClusterQueue with its Workloads.
type ClusterQueue struct {
	Object *kueue.ClusterQueue
	Status ActiveStatus
	Node   *quota.Node
	Tree   *Tree
	counts

	// Pending are the Workloads that wait to be evaluated, in order. Unevaluated are those of them that are new or
	// changed since their last evaluation. AllUnevaluated: the queue changed, so this is true of all.
	Pending        *btree.BTreeG[*Workload]
	Unevaluated    map[types.UID]*Workload
	AllUnevaluated bool
	// Deferred: the last cycle spent its budget before it had evaluated all of them.
	Deferred bool
	// Effort is what its evaluations cost in the last cycle.
	Effort int
	// releasedIn is the first cycle after something was released.
	releasedIn int
	// Inadmissible are the results for Workloads that still wait. They hold until quota or machines are released.
	Inadmissible map[EquivalenceClass]*Inadmissible
	// shortages, shortPriority and quotaOnly cache LeastShortages; shortages is nil if they are not known.
	shortages     []Shortage
	shortPriority int32
	quotaOnly     bool
	// WithQuota are the Workloads with quota. priorities counts them by priority, and evicted those that are evicted.
	WithQuota  map[types.UID]*Workload
	priorities map[int32]int
	evicted    int
	// Requested is the sum of what the pending Workloads request.
	Requested Sums
	// Skipped are the Workloads whose preemption candidates were all preempted for others in the last cycle.
	Skipped map[types.UID]bool
	// Unobserved counts the Workloads with assumed quota whose objects do not show it yet.
	Unobserved int
	// circular: its cohort is part of a cycle of cohorts.
	circular bool
	// WaitsForCapacity: a Workload was inadmissible because of machines.
	WaitsForCapacity bool
	// WaitsForTopology: a Workload was inadmissible because it did not fit in the domains of a Topology.
	WaitsForTopology bool
}

func newQueue(cq *kueue.ClusterQueue) *ClusterQueue {
	return &ClusterQueue{
		Object: cq, counts: newCounts(),
		Node:         quota.NewNode(cq.Name, weightOf(cq.Spec.FairSharing), quotasOf(cq.Spec.ResourceGroups)),
		Pending:      btree.NewG(32, Less),
		Unevaluated:  map[types.UID]*Workload{},
		Inadmissible: map[EquivalenceClass]*Inadmissible{},
		WithQuota:    map[types.UID]*Workload{},
		priorities:   map[int32]int{},
		Requested:    Sums{},
		Skipped:      map[types.UID]bool{},
	}
}

// Less orders the Workloads of a ClusterQueue: higher priority, then longer in the queue, then the UID, which is
// unique.
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

// Push adds a Workload to the queue, to be evaluated.
func (q *ClusterQueue) Push(w *Workload) {
	q.Pending.ReplaceOrInsert(w)
	q.Unevaluated[w.Object.UID] = w
	w.EvaluatedIn = 0
	w.unrefuse()
}

// Drop removes a Workload from the pending ones.
func (q *ClusterQueue) Drop(w *Workload) {
	q.Pending.Delete(w)
	delete(q.Unevaluated, w.Object.UID)
	w.unrefuse()
}

// Remove removes a Workload that no longer waits and got no quota. Workloads that were inadmissible because of it may
// start now: all those behind the head of a StrictFIFO queue, and those of the whole tree if quota was reserved for it.
func (q *ClusterQueue) Remove(w *Workload) {
	if !q.Pending.Has(w) {
		return
	}
	head, _ := q.Pending.Min()
	q.AllUnevaluated = q.AllUnevaluated || head == w && q.Object.Spec.QueueingStrategy == kueue.StrictFIFO
	kept := slices.ContainsFunc(q.Tree.HeadReservations, func(k HeadReservation) bool { return k.Head == w })
	q.Tree.QuotaReleased = q.Tree.QuotaReleased || q.Tree.HasReservations || kept
	q.Drop(w)
}

// RequeueInadmissible has all Workloads evaluated again, in this cycle or later ones, because something was released.
func (q *ClusterQueue) RequeueInadmissible(cycle int) {
	q.Reevaluate()
	q.releasedIn = cycle
}

// Reevaluate forgets the results, so that all Workloads are evaluated again as far as this cycle gets.
func (q *ClusterQueue) Reevaluate() {
	q.dropInadmissible()
	q.WaitsForCapacity, q.WaitsForTopology, q.AllUnevaluated = false, false, true
}

// HasUnevaluated reports whether a Workload has to be evaluated.
func (q *ClusterQueue) HasUnevaluated() bool {
	return len(q.Unevaluated) > 0 || q.AllUnevaluated && q.Pending.Len() > 0
}

// ToEvaluate returns the Workloads that have to be evaluated, or all, in order.
func (q *ClusterQueue) ToEvaluate(all bool) []*Workload {
	if !all && !q.AllUnevaluated && len(q.Unevaluated) < q.Pending.Len() {
		return slices.SortedFunc(maps.Values(q.Unevaluated), Compare)
	}
	out := make([]*Workload, 0, q.Pending.Len())
	q.Pending.Ascend(func(w *Workload) bool { out = append(out, w); return true })
	return out
}

// setRunning adds or removes a Workload with quota.
func (q *ClusterQueue) setRunning(w *Workload, by int) {
	if by > 0 {
		q.WithQuota[w.Object.UID] = w
		w.Candidate = candidate(w)
	} else {
		delete(q.WithQuota, w.Object.UID)
	}
	if q.priorities[w.Candidate.Priority] += by; q.priorities[w.Candidate.Priority] == 0 {
		delete(q.priorities, w.Candidate.Priority)
	}
	if w.Candidate.Evicted {
		q.evicted += by
		q.Tree.evicted += by
	}
	if by < 0 {
		w.Candidate = preemption.Workload{}
	}
}

// HasCandidates reports whether a policy may allow a Workload of the priority to preempt one of the queue.
func (q *ClusterQueue) HasCandidates(policy kueue.PreemptionPolicy, priority int32) bool {
	if q.evicted > 0 || policy == kueue.PreemptionPolicyAny {
		return len(q.WithQuota) > 0
	}
	for p := range q.priorities {
		if p < priority || p == priority && policy == kueue.PreemptionPolicyLowerOrNewerEqualPriority {
			return true
		}
	}
	return false
}

// MarkEvaluated replaces the map: clearing one that was once large stays expensive.
func (q *ClusterQueue) MarkEvaluated() {
	q.Unevaluated, q.AllUnevaluated, q.Deferred = map[types.UID]*Workload{}, false, false
}

// Defer leaves Workloads to the next cycle. Those that were evaluated since something was released need no evaluation.
func (q *ClusterQueue) Defer(rest []*Workload) {
	for _, w := range rest {
		if w.EvaluatedIn < q.releasedIn || w.EvaluatedIn == 0 {
			q.Unevaluated[w.Object.UID] = w
		}
	}
	q.Deferred = len(q.Unevaluated) > 0
}

// weightOf returns the weight in thousandths; the default is one.
func weightOf(fs *kueue.FairSharing) int64 {
	if fs == nil || fs.Weight == nil {
		return 1000
	}
	return max(0, nodegroups.Scaled(*fs.Weight, resource.Milli))
}

// quotasOf returns the quotas of a ClusterQueue or cohort.
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
