package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// options are the flavors that slot i could have, the preferred first: those at
// which the queue's fungibility says to stop looking, in the order of the spec;
// then the others, the best first.
func (a *assigner) options(i int) []option {
	s := a.slots[i]
	var out []option
	for k := range s.flavors {
		a.tries++
		name := s.flavors[(k+a.skip)%len(s.flavors)].Name
		if !a.couldServe(i, name) {
			continue
		}
		if o, ok := a.option(i, name); ok {
			out = append(out, o)
		}
	}
	overPreemption := !prefersPreemption(a.queue.Object)
	slices.SortStableFunc(out, func(x, y option) int {
		if x.final != y.final {
			return cmp.Compare(btoi(y.final), btoi(x.final))
		}
		if x.final {
			return 0
		}
		byMode, byDistance := cmp.Compare(y.mode, x.mode), cmp.Compare(x.distance, y.distance)
		if overPreemption {
			return cmp.Or(byMode, byDistance)
		}
		return cmp.Or(byDistance, byMode)
	})
	return out
}

// unsuitable says why the nodes of a flavor are not for slot i, or "".
func (a *assigner) unsuitable(i int, name kueue.ResourceFlavorReference) string {
	s := a.slots[i]
	flavor := a.s.cache.Flavors[name]
	spec := a.s.cache.CompletePodSpec(a.w.Object.Namespace, &a.w.Object.Spec.PodSets[s.podSet].Template.Spec)
	if why := workload.Mismatch(spec, flavor); why != "" {
		return why
	}
	if why := a.changesFlavor(i, name); why != "" {
		return why
	}
	if why := a.mismatchedTopology(i, name); why != "" {
		return why
	}
	for j := range i {
		if a.slots[j].podSet != s.podSet {
			continue
		}
		if label, found := workload.Contradiction(a.s.cache.Flavors[a.Chosen[j].Flavor], flavor); found {
			return fmt.Sprintf("flavors %s and %s have different values of the node label %s", name, a.Chosen[j].Flavor, label)
		}
	}
	return ""
}

// couldServe reports whether slot i could have its quota on a flavor if nothing else used it, and notes why not.
func (a *assigner) couldServe(i int, name kueue.ResourceFlavorReference) bool {
	s, node := a.slots[i], a.queue.Node
	if why := a.unsuitable(i, name); why != "" {
		a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, "%s", why)
		return false
	}
	for _, resourceName := range s.need.Names() {
		fr, want := a.wants(i, name, resourceName)
		if most := node.Potential(fr); want > most {
			show := func(v int64) string { return nodegroups.Quantity(resourceName, v) }
			a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
				"insufficient quota for %s in flavor %s, previously considered podsets requests (%s) + current podset request (%s) > maximum capacity "+
					"(%s)%s: request less, or ask an administrator to raise the quota",
				resourceName, name, show(a.assumed[fr]), show(s.need[resourceName]), show(most), borrowed(node, fr))
			return false
		}
	}
	return true
}

// wants is what slot i would use of a resource of a flavor, with what the slots before it take.
func (a *assigner) wants(i int, flavor kueue.ResourceFlavorReference, resourceName corev1.ResourceName) (quota.FlavorResource, int64) {
	fr := quota.FlavorResource{Flavor: flavor, Resource: resourceName}
	return fr, nodegroups.Plus(a.slots[i].need[resourceName], a.assumed[fr])
}

// option says what it takes to have the quota of slot i on a flavor that could serve it; ok is false
// with a note if nothing helps.
func (a *assigner) option(i int, name kueue.ResourceFlavorReference) (out option, ok bool) {
	s, node := a.slots[i], a.queue.Node
	out = option{Flavor: name, mode: fits}
	for _, resourceName := range s.need.Names() {
		fr, want := a.wants(i, name, resourceName)
		show := func(v int64) string { return nodegroups.Quantity(resourceName, v) }
		free := max(0, node.Available(fr))
		if want <= free {
			out.distance = max(out.distance, node.Distance(fr, want))
			continue
		}
		by, answer := a.couldPreempt(fr, want)
		if len(answer.Targets) == 0 {
			message := fmt.Sprintf("insufficient unused quota for %s in flavor %s, %s more needed: %s of %s are free%s; this changes when a "+
				"running job ends or the quota is raised",
				resourceName, name, show(want-free), show(free), show(node.Potential(fr)), borrowed(node, fr))
			if answer.Why != "" {
				message += "; " + answer.Why
			}
			a.refuse(s.podSet, name, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "%s", message)
			return out, false
		}
		out.distance = max(out.distance, answer.Distance)
		out.mode = min(out.mode, by)
	}
	f := fungibility(a.queue.Object)
	mayBorrow := out.distance == 0 || f.WhenCanBorrow != kueue.TryNextFlavor
	out.final = mayBorrow && (out.mode == fits || f.WhenCanPreempt == kueue.MayStopSearch)
	return out, true
}

// borrowed tells how much of the whole quota would be borrowed.
func borrowed(node *quota.Node, fr quota.FlavorResource) string {
	if node.Parent() == nil {
		return ""
	}
	if v := node.Borrowable(fr); v > 0 {
		return fmt.Sprintf(" (%s of it borrowed from cohort %s)", nodegroups.Quantity(fr.Resource, v), node.Parent().Name)
	}
	return ""
}

func fungibility(cq *kueue.ClusterQueue) kueue.FlavorFungibility {
	if cq.Spec.FlavorFungibility == nil {
		return kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor}
	}
	return *cq.Spec.FlavorFungibility
}

func prefersPreemption(cq *kueue.ClusterQueue) bool {
	f := cq.Spec.FlavorFungibility
	return f != nil && f.Preference != nil && *f.Preference == kueue.PreemptionOverBorrowing
}
