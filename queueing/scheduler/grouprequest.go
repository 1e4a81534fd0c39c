package scheduler

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/quota"
)

func (s *groupRequest) has(flavor kueue.ResourceFlavorReference) bool {
	return slices.ContainsFunc(s.flavors, func(f kueue.FlavorQuotas) bool { return f.Name == flavor })
}

// groupRequest is the request of one podSet for the resources of one resource group. It gets one flavor.
type groupRequest struct {
	podSet   int
	flavors  []kueue.FlavorQuotas
	requests nodegroups.Resources
	// selectsNodes reports whether the flavor selects the nodes of the pods. It does not if no pod requests the
	// resources, such as those that a transformation adds.
	selectsNodes bool
}

// assigner finds an assignment for one Workload: the first combination of flavors, in the order of preference, that
// matches the pods, has the quota, with preemption if necessary, and, if a capacity check applies, the machines.
type assigner struct {
	s     *Cycle
	queue *cache.ClusterQueue
	w     *cache.Workload
	// counts is the number of pods of each podSet.
	counts []int32
	// replaced is the Workload slice that this one replaces; nil if there is none.
	replaced *cache.Workload
	// adopting: the pods already run, so resources without quota are ignored.
	adopting bool

	groupRequests []groupRequest
	Chosen        []flavorCandidate
	// assumed is the usage of the group requests before the current one.
	assumed quota.Amounts
	// flavorOffset is how many flavors are skipped at first; see Cycle.flavorOffset.
	flavorOffset int
	plans, tries int
	// candidatesTargeted: the last search for victims found only Workloads that are already preempted for others.
	candidatesTargeted bool
	// topologyFailed: on some flavor, the pods do not fit in the domains of the Topology.
	topologyFailed bool
	// assignment is the result; nil if there is none.
	assignment *Assignment
	until      time.Time
	Notes      notes
}

const (
	modePreempt assignmentMode = iota
	// modeReclaim preempts only Workloads that use borrowed quota.
	modeReclaim
	modeFit
)

// splitRequests splits the requests of the Workload by podSet and resource group. It fails if a resource is in no
// group, because it has no quota then.
func (a *assigner) splitRequests() bool {
	for i := range a.counts {
		before := len(a.groupRequests)
		rest := a.w.Pod[i].Clone()
		// Quota for pods counts pods, whatever they request.
		if covers(a.queue.Object, corev1.ResourcePods) {
			rest[corev1.ResourcePods] = 1
		}
		for _, group := range a.queue.Object.Spec.ResourceGroups {
			requests := nodegroups.Resources{}
			for _, name := range group.CoveredResources {
				if v := rest[name]; v > 0 {
					requests[name] = nodegroups.Times(v, int64(a.counts[i]))
				}
				if requests[name] == quota.Unlimited {
					a.addNote(i, "", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
						"insufficient quota for %s: %s exceeds the largest amount that can be counted; request less", name,
						nodegroups.Quantity(name, quota.Unlimited))
					return false
				}
				delete(rest, name)
			}
			if len(requests) > 0 {
				a.groupRequests = append(a.groupRequests, groupRequest{
					podSet: i, flavors: group.Flavors, requests: requests, selectsNodes: a.requestsAny(i, requests),
				})
			}
		}
		for _, name := range rest.Names() {
			if rest[name] > 0 && !a.adopting && !a.s.cache.IgnoresUndeclared() {
				a.addNote(i, "", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
					"resource %s unavailable in ClusterQueue %s: an administrator can add it to a resource group", name, a.queue.Object.Name)
				return false
			}
		}
		if placement.RequestsTopology(a.w.Object.Spec.PodSets[i].TopologyRequest) {
			a.selectTopology(i, before)
		}
	}
	return true
}

// requestsAny reports whether the pods of a podSet request any of the resources.
func (a *assigner) requestsAny(podSet int, requests nodegroups.Resources) bool {
	for name := range requests {
		if name != corev1.ResourcePods && a.w.Requests[podSet][name] > 0 {
			return true
		}
	}
	return false
}

// selectTopology marks the group request whose flavor selects the nodes of a podSet with a topology request; those of
// the podSet start at first. It adds one if the podSet needs no quota. If no flavor has a Topology it may mark any,
// because the request is rejected then.
func (a *assigner) selectTopology(podSet, first int) {
	own := a.groupRequests[first:]
	if slices.ContainsFunc(own, func(s groupRequest) bool { return s.selectsNodes }) {
		return
	}
	if i := slices.IndexFunc(own, func(s groupRequest) bool { return a.hasTopology(s.flavors) }); i >= 0 {
		own[i].selectsNodes = true
		return
	}
	groups := a.queue.Object.Spec.ResourceGroups
	i := max(0, slices.IndexFunc(groups, func(g kueue.ResourceGroup) bool { return a.hasTopology(g.Flavors) }))
	if i < len(groups) {
		a.groupRequests = append(a.groupRequests, groupRequest{podSet: podSet, flavors: groups[i].Flavors, selectsNodes: true,
			requests: nodegroups.Resources{groups[i].CoveredResources[0]: 0}})
	}
}

func (a *assigner) hasTopology(flavors []kueue.FlavorQuotas) bool {
	return slices.ContainsFunc(flavors, func(f kueue.FlavorQuotas) bool {
		return a.s.cache.Flavors[f.Name] != nil && a.s.cache.Flavors[f.Name].Spec.TopologyName != nil
	})
}

func covers(cq *kueue.ClusterQueue, name corev1.ResourceName) bool {
	return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.Contains(g.CoveredResources, name)
	})
}

func (a *assigner) usageOf(i int, flavor kueue.ResourceFlavorReference) quota.Amounts {
	out := make(quota.Amounts, len(a.groupRequests[i].requests))
	for name, v := range a.groupRequests[i].requests {
		out[quota.FlavorResource{Flavor: flavor, Resource: name}] = v
	}
	return out
}

// addNote records why a podSet cannot use a flavor.
func (a *assigner) addNote(podSet int, flavor kueue.ResourceFlavorReference, code, format string, args ...any) {
	a.Notes.add(note{flavor, a.w.Object.Spec.PodSets[podSet].Name, code, fmt.Sprintf(format, args...)})
}

// admission returns the chosen flavors as a kueue.Admission.
func (a *assigner) admission() *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.queue.Object.Name)}
	for i := range a.counts {
		assignment := kueue.PodSetAssignment{
			Name:    a.w.Object.Spec.PodSets[i].Name,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			Count:   new(a.counts[i]),
		}
		usage := nodegroups.Resources{}
		for j, s := range a.groupRequests {
			if s.podSet != i {
				continue
			}
			for name, v := range s.requests {
				assignment.Flavors[name] = a.Chosen[j].Flavor
				usage[name] = v
			}
		}
		assignment.ResourceUsage = usage.List()
		out.PodSetAssignments = append(out.PodSetAssignments, assignment)
	}
	return out
}

// flavorCandidate is a flavor that a group request could use.
type flavorCandidate struct {
	Flavor         kueue.ResourceFlavorReference
	mode           assignmentMode
	borrowingLevel int
	// stopsSearch: the fungibility of the queue ends the search at this flavor.
	stopsSearch bool
}

// assignmentMode is what an assignment requires, the best last.
type assignmentMode int

// noteCombination records a message about the whole combination for each of its flavors, so that every flavor is
// explained. A Workload without requests has no flavor.
func (a *assigner) noteCombination(message, code string) {
	flavors := a.chosenFlavors()
	if len(flavors) == 0 {
		a.addNote(0, "", code, "%s", message)
	}
	for _, flavor := range flavors {
		a.addNote(0, flavor, code, "flavor %s: %s", flavor, message)
	}
}

func (a *assigner) chosenFlavors() []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, o := range a.Chosen {
		out = append(out, o.Flavor)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
