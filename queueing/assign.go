package queueing

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
)

// maxPlans bounds how often the planner is asked for one Workload. It is more
// than the flavors of any usual queue, and keeps a Workload of many podSets,
// each of which may be on any flavor, from holding up a cycle.
const maxPlans = 64

// slot is one decision: on which flavor of a resource group one podSet gets
// what it asks for of the group's resources.
type slot struct {
	podSet  int
	flavors []kueue.FlavorQuotas
	need    nodegroups.Resources
}

// assigner looks for flavors for one Workload: the first combination, in the
// listed order of flavors, that suits the pods, fits the free quota and, where
// a capacity check holds, has machines.
type assigner struct {
	ix    *index
	queue *queue
	w     *Workload

	slots  []slot
	chosen []kueue.ResourceFlavorReference
	// assumed is what the slots before the current one take.
	assumed Usage
	// skip is how many flavors to pass over at first, see blindly.
	skip  int
	plans int
	// plan is the planner's answer for the combination that was taken.
	plan  *provisioning.Verdict
	until time.Time
	notes notes
}

// assign returns the admission of a pending Workload, or notes on every flavor.
func (ix *index) assign(q *queue, w *Workload) (*kueue.Admission, *assigner) {
	a := &assigner{ix: ix, queue: q, w: w, assumed: Usage{}, skip: ix.blindly(q, w)}
	if !a.split() {
		return nil, a
	}
	a.chosen = make([]kueue.ResourceFlavorReference, len(a.slots))
	if !a.choose(0) {
		return nil, a
	}
	return a.admission(), a
}

// split cuts the Workload's requests into slots. It fails if a resource is
// covered by no group, since nobody gave quota for it.
func (a *assigner) split() bool {
	for i, podSet := range a.w.Object.Spec.PodSets {
		rest := a.w.Pod[i].Clone()
		// Quota on pods counts pods, whatever they ask for.
		if a.queue.covers(corev1.ResourcePods) {
			rest[corev1.ResourcePods] = 1
		}
		for _, group := range a.queue.object.Spec.ResourceGroups {
			need := nodegroups.Resources{}
			for _, name := range group.CoveredResources {
				if v := rest[name]; v > 0 {
					need[name] = times(v, podSet.Count)
				}
				delete(rest, name)
			}
			if len(need) > 0 {
				a.slots = append(a.slots, slot{podSet: i, flavors: group.Flavors, need: need})
			}
		}
		for _, name := range rest.Names() {
			if rest[name] > 0 {
				a.notes.add("", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, fmt.Sprintf(
					"%s: ClusterQueue %s has no quota for this resource; an admin can add it to a resource group", name, a.queue.object.Name))
				return false
			}
		}
	}
	return true
}

func (q *queue) covers(name corev1.ResourceName) bool {
	return slices.ContainsFunc(q.object.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.Contains(g.CoveredResources, name)
	})
}

// choose tries the flavors of slot i and of all after it, in their order.
func (a *assigner) choose(i int) bool {
	if i == len(a.slots) {
		return a.obtainable()
	}
	s := a.slots[i]
	for k := range s.flavors {
		candidate := s.flavors[(k+a.skip)%len(s.flavors)]
		if code, why := a.unfit(i, candidate.Name); why != "" {
			a.notes.add(candidate.Name, code, why)
			continue
		}
		use := Usage{}
		for name, v := range s.need {
			use[FlavorResource{candidate.Name, name}] = v
		}
		a.chosen[i] = candidate.Name
		a.assumed.Add(use)
		if a.choose(i + 1) {
			return true
		}
		a.assumed.Sub(use)
		if a.plans >= maxPlans {
			return false
		}
	}
	return false
}

// unfit says why a flavor is not for slot i, or "" if it is.
func (a *assigner) unfit(i int, name kueue.ResourceFlavorReference) (code, why string) {
	s := a.slots[i]
	flavor := a.ix.flavors[name]
	if why := mismatch(&a.w.Object.Spec.PodSets[s.podSet].Template.Spec, flavor); why != "" {
		return kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, why
	}
	for j := range i {
		if a.slots[j].podSet != s.podSet {
			continue
		}
		if label, found := contradiction(a.ix.flavors[a.chosen[j]], flavor); found {
			return kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, fmt.Sprintf(
				"it and flavor %s want different values of the node label %s", a.chosen[j], label)
		}
	}
	for _, resourceName := range s.need.Names() {
		fr := FlavorResource{name, resourceName}
		want := s.need[resourceName]
		quota, free := a.queue.nominal[fr], a.queue.nominal[fr]-a.queue.reserved[fr]-a.assumed[fr]
		show := func(v int64) string { return nodegroups.Quantity(resourceName, v) }
		switch {
		case want > quota-a.assumed[fr]:
			return kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, fmt.Sprintf(
				"%s: %s asked for, but the whole quota is %s; ask for less or have the quota raised", resourceName, show(want+a.assumed[fr]), show(quota))
		case want > free:
			return kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
				"%s: %s more needed than the %s that are free of %s, when a running job ends or the quota grows",
				resourceName, show(want-max(0, free)), show(max(0, free)), show(quota))
		}
	}
	return "", ""
}

// admission writes the chosen flavors down as Kueue's API does.
func (a *assigner) admission() *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.queue.object.Name)}
	for i, podSet := range a.w.Object.Spec.PodSets {
		assignment := kueue.PodSetAssignment{
			Name:    podSet.Name,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			Count:   new(podSet.Count),
		}
		usage := nodegroups.Resources{}
		for j, s := range a.slots {
			if s.podSet != i {
				continue
			}
			for name, v := range s.need {
				assignment.Flavors[name] = a.chosen[j]
				usage[name] = v
			}
		}
		assignment.ResourceUsage = usage.List()
		out.PodSetAssignments = append(out.PodSetAssignments, assignment)
	}
	return out
}
