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

// Account is how the last Cycle left one Workload, for a user that asks: with every
// flavor that it could have, and not only with the reason that it is told.
type Account struct {
	Workload *kueue.Workload
	// Queue is the ClusterQueue that it waits in or has its quota from; empty if there
	// is none.
	Queue kueue.ClusterQueueReference
	// Ahead are those that are judged before it; Pending counts all that wait in the
	// queue. Both are empty once it has quota.
	Ahead   []*kueue.Workload
	Pending int
	// Reason and Message are why it waits.
	Reason, Message string
	// Next is when it is looked at again though nothing happens; zero is never.
	Next time.Time
	// Options are the flavors of its queue, in their order. Empty where something
	// other than a pause keeps it from being judged at all.
	Options []Option
	// Holders have the quota that it lacks, those with the most to give back first.
	Holders []Holder
}

// Option is one flavor, as the Workload could have all of its pods there.
type Option struct {
	Flavor kueue.ResourceFlavorReference
	// Reason and Message say why it was not taken; empty where it was not needed.
	Reason, Message string
	// Quota is what counts of each resource.
	Quota []Amount
	// Plan is the planner's answer; nil where no check of Muster's asks for machines
	// there, or where flavors would have to be combined.
	Plan *planner.Verdict
	// Room is what its pods lack in the domains of a Topology; nil where that is not why it waits.
	Room *Room
}

// Amount is what a ClusterQueue has of one resource of a flavor, in the unit of
// nodegroups.Resources.
type Amount struct {
	Resource corev1.ResourceName
	// Asked is what the Workload asks for, Free what it could have now, Whole what it
	// could have at most, of which Borrowable would be that of others in the cohort.
	Asked, Free, Whole, Borrowable int64
}

// Short is how much has to come back.
func (a Amount) Short() int64 { return max(0, a.Asked-a.Free) }

// Holder is a Workload with quota that another one lacks.
type Holder struct {
	Workload *kueue.Workload
	Queue    kueue.ClusterQueueReference
	Priority int32
	// Usage is the part of it that the other one lacks.
	Usage quota.Amounts
	// Borrows says that its queue uses more than is its own.
	Borrows bool
}

// optionsOf looks at each flavor once more, and at the machines there.
func (s *Cycle) optionsOf(w *cache.Workload) (out []Option) {
	_, tried := s.Assign(w.Queue, w)
	for _, flavor := range cache.FlavorsOf(w.Queue.Object) {
		o := Option{Flavor: flavor}
		for _, n := range tried.Notes {
			if n.flavor == flavor {
				o.Reason, o.Message = n.code, n.message
			}
		}
		a := &assigner{s: s, queue: w.Queue, w: w, counts: cache.PodCounts(w), assumed: quota.Amounts{}}
		if a.split() {
			o.Quota = a.amounts(flavor)
			if o.Reason != kueue.WorkloadQuotaReservedReasonNoMatchingFlavor {
				o.Plan = a.planOn(flavor)
			}
			if o.Reason == kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed {
				o.Room = a.roomOn(flavor)
			}
		}
		out = append(out, o)
	}
	return out
}

// amounts are those of each resource that the flavor has quota for.
func (a *assigner) amounts(flavor kueue.ResourceFlavorReference) (out []Amount) {
	asked := quota.Amounts{}
	for i := range a.slots {
		if a.slots[i].has(flavor) {
			asked.Add(a.use(i, flavor))
		}
	}
	node := a.queue.Node
	for _, fr := range asked.Keys() {
		whole := node.Potential(fr)
		out = append(out, Amount{
			Resource: fr.Resource, Asked: asked[fr], Free: max(0, node.Available(fr)), Whole: whole, Borrowable: node.Borrowable(fr),
		})
	}
	return out
}

// planOn asks the planner for all pods on one flavor.
func (a *assigner) planOn(flavor kueue.ResourceFlavorReference) *planner.Verdict {
	checks := a.s.cache.CapacityChecks(cache.ChecksFor(a.queue.Object, []kueue.ResourceFlavorReference{flavor}))
	if a.s.capacity == nil || a.s.plan == nil || len(checks) == 0 {
		return nil
	}
	for i := range a.slots {
		if !a.slots[i].has(flavor) {
			return nil
		}
		a.Chosen = append(a.Chosen, option{Flavor: flavor})
	}
	return new(a.s.plan(a.s.capacity, a.s.checks.GangOf(a.w, a.admission()), a.s.checks.PolicyOf(a.w, checks[0])))
}

// holders are those in the cohort that have what the options are short of.
func (s *Cycle) holders(w *cache.Workload, options []Option) (out []Holder) {
	short := map[quota.FlavorResource]bool{}
	for _, o := range options {
		for _, amount := range o.Quota {
			if amount.Short() > 0 && amount.Asked <= amount.Whole {
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
	if w == nil || w.Queue == nil || w.Place != cache.Pending {
		return queue, class, false
	}
	return kueue.ClusterQueueReference(w.Queue.Object.Name), s.equivalenceClass(w.Queue, w), true
}

// Account tells how things stand with a Workload; ok is false if there is none of
// that UID. It is to be called after a Cycle, which it changes nothing of.
func (s *Cycle) Account(uid types.UID) (out Account, ok bool) {
	w := s.cache.Workloads[uid]
	if w == nil {
		return out, false
	}
	out = Account{Workload: w.Object}
	out.Reason, out.Message, out.Next = w.WaitingReason()
	if w.Queue == nil {
		return out, true
	}
	out.Queue = kueue.ClusterQueueReference(w.Queue.Object.Name)
	if w.Place != cache.Pending || w.Assumed != nil {
		return out, true
	}
	line := s.cache.InLine(out.Queue)
	out.Pending = len(line)
	out.Ahead = line[:slices.Index(line, w.Object)]
	// What a pause will be followed by is worth to know.
	if w.Queue.Pending.Has(w) || w.Queue.Standing.Active && !s.rules.PausedUntil(w).IsZero() {
		s.assumeUpcoming()
		out.Options = s.optionsOf(w)
		out.Holders = s.holders(w, out.Options)
	}
	return out, true
}
