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

// candidateFlavors returns the flavors that group request i could use, the preferred first: in the order of the spec
// those that end the search by the queue's fungibility, then the others, the best first.
func (a *assigner) candidateFlavors(i int) []flavorCandidate {
	s := a.groupRequests[i]
	var out []flavorCandidate
	for k := range s.flavors {
		a.tries++
		name := s.flavors[(k+a.flavorOffset)%len(s.flavors)].Name
		if !a.fitsMaximum(i, name) {
			continue
		}
		if o, ok := a.tryFlavor(i, name); ok {
			out = append(out, o)
		}
	}
	overPreemption := !prefersPreemption(a.queue.Object)
	slices.SortStableFunc(out, func(x, y flavorCandidate) int {
		if x.stopsSearch != y.stopsSearch {
			return cmp.Compare(btoi(y.stopsSearch), btoi(x.stopsSearch))
		}
		if x.stopsSearch {
			return 0
		}
		byMode, byDistance := cmp.Compare(y.mode, x.mode), cmp.Compare(x.borrowingLevel, y.borrowingLevel)
		if overPreemption {
			return cmp.Or(byMode, byDistance)
		}
		return cmp.Or(byDistance, byMode)
	})
	return out
}

// flavorMismatch returns why the flavor does not match group request i; empty if it does.
func (a *assigner) flavorMismatch(i int, name kueue.ResourceFlavorReference) string {
	s := a.groupRequests[i]
	flavor := a.s.cache.Flavors[name]
	spec := a.s.cache.CompletePodSpec(a.w.Object.Namespace, &a.w.Object.Spec.PodSets[s.podSet].Template.Spec)
	if why := workload.Mismatch(spec, flavor); why != "" {
		return why
	}
	if why := a.replacedFlavorMismatch(i, name); why != "" {
		return why
	}
	if why := a.topologyMismatch(i, name); why != "" {
		return why
	}
	for j := range i {
		if a.groupRequests[j].podSet != s.podSet {
			continue
		}
		if label, found := workload.Contradiction(a.s.cache.Flavors[a.Chosen[j].Flavor], flavor); found {
			return fmt.Sprintf("flavors %s and %s have different values of the node label %s", name, a.Chosen[j].Flavor, label)
		}
	}
	return ""
}

// fitsMaximum reports whether group request i would fit on a flavor with no other usage. Otherwise it adds a note.
func (a *assigner) fitsMaximum(i int, name kueue.ResourceFlavorReference) bool {
	s, node := a.groupRequests[i], a.queue.Node
	if why := a.flavorMismatch(i, name); why != "" {
		a.addNote(s.podSet, name, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, "%s", why)
		return false
	}
	for _, resourceName := range s.requests.Names() {
		fr, want := a.totalRequest(i, name, resourceName)
		if most := node.Potential(fr); want > most {
			show := func(v int64) string { return nodegroups.Quantity(resourceName, v) }
			a.addNote(s.podSet, name, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
				"insufficient quota for %s in flavor %s, previously considered podsets requests (%s) + current podset request (%s) > maximum capacity "+
					"(%s)%s: request less, or ask an administrator to raise the quota",
				resourceName, name, show(a.assumed[fr]), show(s.requests[resourceName]), show(most), borrowedMessage(node, fr))
			return false
		}
	}
	return true
}

// totalRequest returns what group request i and those before it request of a resource of a flavor.
func (a *assigner) totalRequest(i int, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) (quota.FlavorResource, int64) {
	fr := quota.FlavorResource{Flavor: flavor, Resource: name}
	return fr, nodegroups.Plus(a.groupRequests[i].requests[name], a.assumed[fr])
}

// tryFlavor returns what group request i requires on a flavor; ok is false, with a note, if not even preemption helps.
func (a *assigner) tryFlavor(i int, name kueue.ResourceFlavorReference) (out flavorCandidate, ok bool) {
	s, node := a.groupRequests[i], a.queue.Node
	out = flavorCandidate{Flavor: name, mode: modeFit}
	for _, resourceName := range s.requests.Names() {
		fr, want := a.totalRequest(i, name, resourceName)
		show := func(v int64) string { return nodegroups.Quantity(resourceName, v) }
		free := max(0, node.Available(fr))
		if want <= free {
			out.borrowingLevel = max(out.borrowingLevel, node.BorrowingLevel(fr, want))
			continue
		}
		by, result := a.couldPreempt(fr, want)
		if len(result.Targets) == 0 {
			message := fmt.Sprintf("insufficient unused quota for %s in flavor %s, %s more needed: %s of %s are free%s; this changes when a "+
				"running job ends or the quota is raised",
				resourceName, name, show(want-free), show(free), show(node.Potential(fr)), borrowedMessage(node, fr))
			if result.Why != "" {
				message += "; " + result.Why
			}
			a.addNote(s.podSet, name, kueue.WorkloadQuotaReservedReasonWaitingForQuota, "%s", message)
			return out, false
		}
		out.borrowingLevel = max(out.borrowingLevel, result.BorrowingLevel)
		out.mode = min(out.mode, by)
	}
	f := fungibility(a.queue.Object)
	mayBorrow := out.borrowingLevel == 0 || f.WhenCanBorrow != kueue.TryNextFlavor
	out.stopsSearch = mayBorrow && (out.mode == modeFit || f.WhenCanPreempt == kueue.MayStopSearch)
	return out, true
}

// borrowedMessage says how much of the maximum is borrowed.
func borrowedMessage(node *quota.Node, fr quota.FlavorResource) string {
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
