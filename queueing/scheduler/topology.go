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

// topologyMismatch returns, in Kueue's words, why a flavor does not match the topology request of group request i;
// empty if it does.
func (a *assigner) topologyMismatch(i int, name kueue.ResourceFlavorReference) string {
	podSet := a.groupRequests[i].podSet
	ps := &a.w.Object.Spec.PodSets[podSet]
	asks, has := placement.RequestsTopology(ps.TopologyRequest), a.s.cache.Flavors[name].Spec.TopologyName != nil
	switch {
	case !has && !a.groupRequests[i].selectsNodes:
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
		if other == name || !a.groupRequests[j].selectsNodes || !has && a.s.cache.Flavors[other].Spec.TopologyName == nil {
			continue
		}
		switch of := a.groupRequests[j].podSet; {
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

// invalidTopology returns why a topology request of the Workload can never be satisfied; empty if it can. The job's own
// controller may not validate it.
func invalidTopology(w *kueue.Workload) string {
	groups := map[string][]*kueue.PodSet{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		if why := invalidSlices(ps); why != "" {
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

// invalidSlices returns why a podSet cannot have a partial slice. With several layers the remaining pods would not
// divide into the finer ones, and with minCount the number of pods is not known yet. Kueue rejects these jobs.
func invalidSlices(ps *kueue.PodSet) string {
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

// placePods finds topology assignments for the pods, with the victims evicted if there are any. If machines are booked
// after quota is reserved, the topology is assigned then.
func (a *assigner) placePods(p *Assignment) bool {
	p.admission = a.admission()
	if a.delaysTopology() {
		for i := range p.admission.PodSetAssignments {
			if a.s.cache.HasTopology(&p.admission.PodSetAssignments[i]) {
				p.admission.PodSetAssignments[i].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestStatePending)
			}
		}
		return true
	}
	requests := a.s.cache.NewTopologyRequests(a.w, p.admission, nil, a.s.cache.Nodes.TopologyCache)
	if requests == nil {
		return true
	}
	a.plans++
	if !a.s.cache.Nodes.Known {
		a.topologyFailed = true
		a.noteCombination("the nodes of the cluster are being read", kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed)
		return false
	}
	placed, reason, unplaced := requests.FindAssignments()
	switch {
	case reason == "" && len(p.victims) == 0:
		p.placed = placed
		return true
	case preempts(a.queue.Object) && a.preemptForTopology(p, cache.TopologySimulation{Cache: a.s.cache, TopologyRequests: requests}):
		return true
	case reason == "":
		reason = "there is no room in one place once the Workloads have left that may be preempted"
	}
	if best := unplaced.Best; best.Count > 0 {
		reason += fmt.Sprintf("; the most room is in %s, for %d pods: this changes when a job there ends, or nodes come",
			strings.Join(best.Values, "/"), best.Count)
	}
	a.topologyFailed = true
	a.noteCombination(reason, kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed)
	return false
}

// preemptForTopology chooses victims that release quota and also nodes in one suitable domain.
func (a *assigner) preemptForTopology(p *Assignment, trial cache.TopologySimulation) bool {
	victims, why := a.victims(p.Usage, trial)
	if why != "" || len(victims) == 0 {
		return false
	}
	for _, v := range victims {
		trial.SimulateRemoval(v.Object.UID)
		defer trial.RevertRemoval(v.Object.UID)
	}
	placed, reason, _ := trial.FindAssignments()
	p.victims, p.placed = victims, placed
	return reason == ""
}

// delaysTopology reports whether the topology is assigned after quota is reserved: because a check books machines, so
// the nodes are not known yet, or because the job runs in another cluster.
func (a *assigner) delaysTopology() bool {
	return a.s.cache.Delegates(a.queue.Object) || slices.ContainsFunc(cache.ChecksFor(a.queue.Object, a.chosenFlavors()), a.s.cache.Books)
}

var _ preemption.TopologySimulation = cache.TopologySimulation{}
