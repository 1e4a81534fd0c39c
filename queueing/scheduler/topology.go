package scheduler

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/workload"
)

// mismatchedTopology says why a flavor is not for the pods of slot i by what they ask for of a Topology, or
// "". The words are Kueue's.
func (a *assigner) mismatchedTopology(i int, name kueue.ResourceFlavorReference) string {
	podSet := a.slots[i].podSet
	ps := &a.w.Object.Spec.PodSets[podSet]
	asks, has := placement.RequestsTopology(ps.TopologyRequest), a.s.cache.Flavors[name].Spec.TopologyName != nil
	switch {
	case !has && !a.slots[i].selects:
		return ""
	case asks && !has:
		return fmt.Sprintf("Flavor %q does not support TopologyAwareScheduling", name)
	case asks:
		if t := a.s.cache.TopologyOf(name); t != nil {
			if lacking := placement.MissingLevels(cache.Levels(t), ps.TopologyRequest); len(lacking) > 0 {
				return fmt.Sprintf("Flavor %q does not contain the requested level: Topology %q has %v, not %s: name one of these", name, t.Name,
					cache.Levels(t), strings.Join(lacking, " or "))
			}
		}
	case has && !a.s.cache.ImpliesTopology(a.queue.Object):
		return fmt.Sprintf("Flavor %q supports only TopologyAwareScheduling", name)
	}
	if has && workload.IsElastic(a.w.Object) {
		return fmt.Sprintf("Flavor %q has a topology, and an elastic job may outgrow its domain: choose a flavor without topologyName", name)
	}
	for j := range i {
		other := a.Chosen[j].Flavor
		if other == name || !a.slots[j].selects || !has && a.s.cache.Flavors[other].Spec.TopologyName == nil {
			continue
		}
		switch of := a.slots[j].podSet; {
		case of == podSet:
			return fmt.Sprintf("flavors %s and %s would serve one podSet, which may have only one where one of them has a topology: put their "+
				"resources into one resource group of ClusterQueue %s, or request only those of one", other, name, a.queue.Object.Name)
		case placement.SameGroup(a.w.Object.Spec.PodSets[of].TopologyRequest, ps.TopologyRequest):
			return fmt.Sprintf("flavor %s would serve podSet %s, and flavor %s podSet %s, which is placed together with it", name, ps.Name, other,
				a.w.Object.Spec.PodSets[of].Name)
		}
	}
	return ""
}

// refusedPlaces says which pods of a Workload would have no place by what it asks of a Topology; empty for none. Its job may be of a
// controller that does not look.
func refusedPlaces(w *kueue.Workload) string {
	groups := map[string][]*kueue.PodSet{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		if why := refusedSlices(ps); why != "" {
			return why
		}
		if ps.TopologyRequest == nil || ps.TopologyRequest.PodSetGroupName == nil {
			continue
		}
		name := *ps.TopologyRequest.PodSetGroupName
		group := append(groups[name], ps)
		groups[name] = group
		switch {
		case len(group) > 2:
			return fmt.Sprintf("podSets %s, %s and %s have the podSetGroupName %q (annotation %s), and a group is two podSets, one of them of a "+
				"single pod: give it to two", group[0].Name, group[1].Name, ps.Name, name, kueue.PodSetGroupName)
		case len(group) == 2 && group[0].Count != 1 && ps.Count != 1:
			return fmt.Sprintf("podSets %s of %d and %s of %d pods have the podSetGroupName %q (annotation %s), and one of a group must be of a "+
				"single pod, the leader: make it one", group[0].Name, group[0].Count, ps.Name, ps.Count, name, kueue.PodSetGroupName)
		}
	}
	return ""
}

// refusedSlices says why a podSet cannot have a partial slice. With several layers the pods left over would not divide into the finer ones,
// and the count of a podSet with minCount is not known. Kueue refuses their jobs.
func refusedSlices(ps *kueue.PodSet) string {
	size := placement.SliceSize(ps.TopologyRequest)
	switch {
	case size <= 0 || ps.Count%size == 0:
		return ""
	case len(ps.TopologyRequest.PodsetSliceRequiredTopologyConstraints) > 1:
		return fmt.Sprintf("podSet %s has %d pods, and slices of %d (annotation %s) must evenly divide them when more than one layer is "+
			"specified: make the number of pods a multiple of the size of a slice", ps.Name, ps.Count, size,
			kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
	case ps.MinCount != nil:
		return fmt.Sprintf("podSet %s has %d pods and a minCount, and slices of %d (annotation %s) must evenly divide them then: make the "+
			"number of pods a multiple of the size of a slice, or remove minCount", ps.Name, ps.Count, size, kueue.PodSetSliceSizeAnnotation)
	}
	return ""
}

// place finds room for the pods in the domains of their flavors' Topologies: where they are now, or once
// victims have left. Where machines are booked after quota is reserved, it is done then.
func (a *assigner) place(p *Proposal) bool {
	p.admission = a.admission()
	if a.delaysTopology() {
		for i := range p.admission.PodSetAssignments {
			if a.s.cache.HasTopology(&p.admission.PodSetAssignments[i]) {
				p.admission.PodSetAssignments[i].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestStatePending)
			}
		}
		return true
	}
	placing := a.s.cache.NewPlacing(a.w, p.admission, nil, a.s.cache.Nodes.TopologyCache)
	if placing == nil {
		return true
	}
	a.plans++
	if !a.s.cache.Nodes.Known {
		a.lacksNodes = true
		a.note("the nodes of the cluster are being read", kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed)
		return false
	}
	placed, reason, lack := placing.Place()
	switch {
	case reason == "" && len(p.victims) == 0:
		p.placed = placed
		return true
	case preempts(a.queue.Object) && a.makeRoom(p, cache.Trial{Cache: a.s.cache, Placing: placing}):
		return true
	case reason == "":
		reason = "there is no room in one place once the Workloads have left that may be preempted"
	}
	if best := lack.Best; best.Count > 0 {
		reason += fmt.Sprintf("; the most room is in %s, for %d pods: this changes when a job there ends, or nodes come",
			strings.Join(best.Values, "/"), best.Count)
	}
	a.lacksNodes = true
	a.note(reason, kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed)
	return false
}

// makeRoom finds victims that free quota, and nodes in the right domain.
func (a *assigner) makeRoom(p *Proposal, trial cache.Trial) bool {
	victims, why := a.victims(p.Usage, trial)
	if why != "" || len(victims) == 0 {
		return false
	}
	for _, v := range victims {
		trial.Remove(v.Object.UID)
		defer trial.PutBack(v.Object.UID)
	}
	placed, reason, _ := trial.Place()
	p.victims, p.placed = victims, placed
	return reason == ""
}

// delaysTopology reports whether a check books machines, so that only then it is known which nodes there are, or has the job run in
// another cluster, on nodes of that.
func (a *assigner) delaysTopology() bool {
	return a.s.cache.Delegates(a.queue.Object) || slices.ContainsFunc(cache.ChecksFor(a.queue.Object, a.distinct()), a.s.cache.Books)
}

var _ preemption.Room = cache.Trial{}
