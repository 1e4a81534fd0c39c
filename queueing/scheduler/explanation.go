package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// Explanation explains the state of one Workload after the last Cycle: every flavor that it could use, not only the
// reason in its condition.
type Explanation struct {
	Workload *kueue.Workload
	// Queue is the ClusterQueue that it waits in or has its quota from; empty if there is none.
	Queue kueue.ClusterQueueReference
	// Ahead are the Workloads before it in the queue; Pending counts all Workloads that wait there. Both are empty
	// once it has quota.
	Ahead   []*kueue.Workload
	Pending int
	// Reason and Message are those of its waiting condition.
	Reason, Message string
	// RetryAt is when it is evaluated again without an event; zero is never.
	RetryAt time.Time
	// Flavors are the flavors of its queue, in order. They are empty if the Workload is not evaluated at all, except
	// while it backs off.
	Flavors []FlavorExplanation
	// Holders use the quota that it lacks, sorted by how much they would release.
	Holders []Holder
}

// FlavorExplanation explains one flavor, as if all pods of the Workload used it.
type FlavorExplanation struct {
	Flavor kueue.ResourceFlavorReference
	// Reason and Message say why the flavor was not chosen; empty if it was not considered.
	Reason, Message string
	// Quota is the quota of each resource.
	Quota []Amount
	// Plan is the planner's verdict; nil if no capacity check of Muster applies to the flavor, or if flavors would
	// have to be combined.
	Plan *planner.Verdict
	// Topology is what the pods lack in the domains of a Topology; nil if the Workload waits for another reason.
	Topology *TopologyShortage
}

// Amount is the quota of a ClusterQueue for one resource of a flavor, in the unit of nodegroups.Resources.
type Amount struct {
	Resource corev1.ResourceName
	// Requested is the request of the Workload and Free the quota that it could use now. Maximum is the most that the
	// ClusterQueue could ever use; Borrowable is the part of it that is borrowed from the cohort.
	Requested, Free, Maximum, Borrowable int64
}

// Short is how much quota must be released.
func (a Amount) Short() int64 { return max(0, a.Requested-a.Free) }

// Holder is a Workload that uses quota which another one lacks.
type Holder struct {
	Workload *kueue.Workload
	Queue    kueue.ClusterQueueReference
	Priority int32
	// Usage is the part of its usage that the other one lacks.
	Usage quota.Amounts
	// Borrows reports whether its queue borrows.
	Borrows bool
}

// explainFlavors explains every flavor of the queue.
func (s *Cycle) explainFlavors(w *cache.Workload) (out []FlavorExplanation) {
	_, tried := s.Assign(w.Queue, w)
	for _, flavor := range cache.FlavorsOf(w.Queue.Object) {
		o := FlavorExplanation{Flavor: flavor}
		for _, n := range tried.Notes {
			if n.flavor == flavor {
				o.Reason, o.Message = n.code, n.message
			}
		}
		a := &assigner{s: s, queue: w.Queue, w: w, counts: cache.PodCounts(w), assumed: quota.Amounts{}}
		if a.splitRequests() {
			o.Quota = a.amounts(flavor)
			if o.Reason != kueue.WorkloadQuotaReservedReasonNoMatchingFlavor {
				o.Plan = a.planFor(flavor)
			}
			if o.Reason == kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed {
				o.Topology = a.topologyShortage(flavor)
			}
		}
		out = append(out, o)
	}
	return out
}

// amounts returns the quota of each requested resource of the flavor.
func (a *assigner) amounts(flavor kueue.ResourceFlavorReference) (out []Amount) {
	asked := quota.Amounts{}
	for i := range a.groupRequests {
		if a.groupRequests[i].has(flavor) {
			asked.Add(a.usageOf(i, flavor))
		}
	}
	node := a.queue.Node
	for _, fr := range asked.Keys() {
		whole := node.Potential(fr)
		out = append(out, Amount{
			Resource: fr.Resource, Requested: asked[fr], Free: max(0, node.Available(fr)), Maximum: whole, Borrowable: node.Borrowable(fr),
		})
	}
	return out
}

// planFor returns the planner's verdict for all pods on one flavor.
func (a *assigner) planFor(flavor kueue.ResourceFlavorReference) *planner.Verdict {
	checks := a.s.cache.CapacityChecks(cache.ChecksFor(a.queue.Object, []kueue.ResourceFlavorReference{flavor}))
	if a.s.capacity == nil || a.s.plan == nil || len(checks) == 0 {
		return nil
	}
	for i := range a.groupRequests {
		if !a.groupRequests[i].has(flavor) {
			return nil
		}
		a.Chosen = append(a.Chosen, flavorCandidate{Flavor: flavor})
	}
	return new(a.s.plan(a.s.capacity, a.s.checks.GangOf(a.w, a.admission()), a.s.checks.PolicyOf(a.w, checks[0])))
}

// holders returns the Workloads of the cohort that use what the flavors are short of.
func (s *Cycle) holders(w *cache.Workload, options []FlavorExplanation) (out []Holder) {
	short := map[quota.FlavorResource]bool{}
	for _, o := range options {
		for _, amount := range o.Quota {
			if amount.Short() > 0 && amount.Requested <= amount.Maximum {
				short[quota.FlavorResource{Flavor: o.Flavor, Resource: amount.Resource}] = true
			}
		}
	}
	add := func(q *cache.ClusterQueue, holder *cache.Workload, usage quota.Amounts) {
		h := Holder{Workload: holder.Object, Queue: kueue.ClusterQueueReference(q.Object.Name), Priority: holder.Priority, Usage: quota.Amounts{}}
		for fr, v := range usage {
			if short[fr] {
				h.Usage[fr] = v
				h.Borrows = h.Borrows || q.Node.Usage(fr) > q.Node.Subtree(fr)
			}
		}
		if len(h.Usage) > 0 {
			out = append(out, h)
		}
	}
	for _, q := range w.Queue.Tree.Queues {
		for _, holder := range q.WithQuota {
			add(q, holder, holder.Usage)
		}
	}
	for _, other := range s.cache.Workloads {
		if other.Assumed != nil && other.Assumed.Tree == w.Queue.Tree {
			add(other.Assumed, other, other.AssumedUsage)
		}
	}
	most := func(h Holder) (v int64) {
		for _, amount := range h.Usage {
			v = max(v, amount)
		}
		return v
	}
	slices.SortFunc(out, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(most(b), most(a)), strings.Compare(a.Workload.Namespace, b.Workload.Namespace),
			strings.Compare(a.Workload.Name, b.Workload.Name))
	})
	return out
}

// EquivalenceClass returns the ClusterQueue that a Workload waits in and its class there; ok is false if it
// waits in none.
func (s *Cycle) EquivalenceClass(uid types.UID) (queue kueue.ClusterQueueReference, class cache.EquivalenceClass, ok bool) {
	w := s.cache.Workloads[uid]
	if w == nil || w.Queue == nil || w.Phase != cache.Pending {
		return queue, class, false
	}
	return kueue.ClusterQueueReference(w.Queue.Object.Name), s.equivalenceClass(w.Queue, w), true
}

// Explain explains the state of a Workload; ok is false if no Workload has the UID. Call it after Run; it changes
// nothing.
func (s *Cycle) Explain(uid types.UID) (out Explanation, ok bool) {
	w := s.cache.Workloads[uid]
	if w == nil {
		return out, false
	}
	out = Explanation{Workload: w.Object}
	out.Reason, out.Message, out.RetryAt = w.WaitingReason()
	if w.Queue == nil {
		return out, true
	}
	out.Queue = kueue.ClusterQueueReference(w.Queue.Object.Name)
	if w.Phase != cache.Pending || w.Assumed != nil {
		return out, true
	}
	line := s.cache.PendingInOrder(out.Queue)
	out.Pending = len(line)
	out.Ahead = line[:slices.Index(line, w.Object)]
	// While the Workload backs off, explain what it will need afterwards.
	if w.Queue.Pending.Has(w) || w.Queue.Status.Active && !s.rules.PausedUntil(w).IsZero() {
		s.assumeUpcoming()
		out.Flavors = s.explainFlavors(w)
		out.Holders = s.holders(w, out.Flavors)
	}
	return out, true
}
