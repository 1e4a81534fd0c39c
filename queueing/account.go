package queueing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/quota"
)

// Account is how the last Cycle left one Workload, for somebody who asks: with every
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
	Plan *provisioning.Verdict
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

// Account tells how things stand with a Workload; ok is false if there is none of
// that UID. It is to be called after a Cycle, which it changes nothing of.
func (s *State) Account(uid types.UID, now time.Time) (out Account, ok bool) {
	w := s.workloads[uid]
	if w == nil {
		return out, false
	}
	out = Account{Workload: w.Object}
	out.Reason, out.Message, out.Next = w.told()
	if w.queue == nil {
		return out, true
	}
	out.Queue = kueue.ClusterQueueReference(w.queue.object.Name)
	if w.place != waiting || w.assumed != nil {
		return out, true
	}
	line := s.InLine(out.Queue)
	out.Pending = len(line)
	out.Ahead = line[:slices.Index(line, w.Object)]
	// What a pause will be followed by is worth to know.
	c := s.at(now)
	if w.queue.pending.Has(w) || w.queue.standing.Active && !c.pausedUntil(w).IsZero() {
		c.foresee()
		out.Options = c.optionsOf(w)
		out.Holders = c.holders(w, out.Options)
	}
	return out, true
}

// told is why the Workload waits and when it is looked at again. Where no cycle had to
// say, as in a pause, it is what its object says.
func (w *Workload) told() (reason, message string, next time.Time) {
	c := apimeta.FindStatusCondition(w.Object.Status.Conditions, kueue.WorkloadQuotaReserved)
	if w.reason == "" && c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason, c.Message, w.wakeAt
	}
	return w.reason, w.message, w.wakeAt
}

// Told is the part of an Account that costs nothing; empty for a Workload that is not
// there.
func (s *Cache) Told(uid types.UID) (reason, message string, next time.Time) {
	if w := s.workloads[uid]; w != nil {
		return w.told()
	}
	return "", "", time.Time{}
}

// InLine are the Workloads that wait in a ClusterQueue, in the order in which they are
// judged, those that a gate or a pause holds back included. It needs no Cycle.
func (s *Cache) InLine(name kueue.ClusterQueueReference) []*kueue.Workload {
	if s.outdated {
		s.rebuild()
	}
	q := s.queues[name]
	var list []*Workload
	for _, w := range s.workloads {
		if q != nil && w.queue == q && w.place == waiting && w.assumed == nil {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, compare)
	out := make([]*kueue.Workload, len(list))
	for i, w := range list {
		out[i] = w.Object
	}
	return out
}

// optionsOf looks at each flavor once more, and at the machines there.
func (s *Cycle) optionsOf(w *Workload) (out []Option) {
	_, tried := s.assign(w.queue, w)
	for _, flavor := range flavorsOf(w.queue.object) {
		o := Option{Flavor: flavor}
		for _, n := range tried.notes {
			if n.flavor == flavor {
				o.Reason, o.Message = n.code, n.message
			}
		}
		a := &assigner{s: s, queue: w.queue, w: w, counts: podCounts(w), assumed: quota.Amounts{}}
		if a.split() {
			o.Quota = a.amounts(flavor)
			if o.Reason != kueue.WorkloadQuotaReservedReasonNoMatchingFlavor {
				o.Plan = a.planOn(flavor)
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
	node := a.queue.node
	for _, fr := range asked.Keys() {
		whole := node.Potential(fr)
		out = append(out, Amount{
			Resource: fr.Resource, Asked: asked[fr], Free: max(0, node.Available(fr)), Whole: whole, Borrowable: node.Borrowable(fr),
		})
	}
	return out
}

func (s *slot) has(flavor kueue.ResourceFlavorReference) bool {
	return slices.ContainsFunc(s.flavors, func(f kueue.FlavorQuotas) bool { return f.Name == flavor })
}

// planOn asks the planner for all pods on one flavor.
func (a *assigner) planOn(flavor kueue.ResourceFlavorReference) *provisioning.Verdict {
	checks := a.s.capacityChecks(checksFor(a.queue.object, []kueue.ResourceFlavorReference{flavor}))
	if a.s.capacity == nil || a.s.plan == nil || len(checks) == 0 {
		return nil
	}
	for i := range a.slots {
		if !a.slots[i].has(flavor) {
			return nil
		}
		a.chosen = append(a.chosen, option{flavor: flavor})
	}
	return new(a.s.plan(a.s.capacity, a.s.gangOf(a.w, a.admission()), a.s.policyOf(a.w, checks[0])))
}

// holders are those in the cohort that have what the options are short of.
func (s *Cache) holders(w *Workload, options []Option) (out []Holder) {
	short := map[quota.FlavorResource]bool{}
	for _, o := range options {
		for _, amount := range o.Quota {
			if amount.Short() > 0 && amount.Asked <= amount.Whole {
				short[quota.FlavorResource{Flavor: o.Flavor, Resource: amount.Resource}] = true
			}
		}
	}
	add := func(q *queue, holder *Workload, usage quota.Amounts) {
		h := Holder{Workload: holder.Object, Queue: kueue.ClusterQueueReference(q.object.Name), Priority: holder.priority, Usage: quota.Amounts{}}
		for fr, v := range usage {
			if short[fr] {
				h.Usage[fr] = v
				h.Borrows = h.Borrows || q.node.Usage(fr) > q.node.Subtree(fr)
			}
		}
		if len(h.Usage) > 0 {
			out = append(out, h)
		}
	}
	for _, q := range w.queue.tree.queues {
		for _, holder := range q.holding {
			add(q, holder, holder.Usage)
		}
	}
	for _, other := range s.workloads {
		if other.assumed != nil && other.assumed.tree == w.queue.tree {
			add(other.assumed, other, other.assumedUsage)
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
