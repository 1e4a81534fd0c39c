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

func (s *slot) has(flavor kueue.ResourceFlavorReference) bool {
	return slices.ContainsFunc(s.flavors, func(f kueue.FlavorQuotas) bool { return f.Name == flavor })
}

// slot is one decision: on which flavor of a resource group one podSet gets
// what it asks for of the group's resources.
type slot struct {
	podSet  int
	flavors []kueue.FlavorQuotas
	need    nodegroups.Resources
	// selects reports whether the flavor says on which nodes the pods are. That of what no pod requests, as of what a transformation
	// makes, does not.
	selects bool
}

// assigner looks for flavors for one Workload: the first combination, in the
// order of preference, that suits the pods, has the quota, by preemption if need
// be, and, where a capacity check holds, the machines.
type assigner struct {
	s     *Cycle
	queue *cache.ClusterQueue
	w     *cache.Workload
	// counts is how many pods of each podSet there are to be.
	counts []int32
	// old is the slice that the Workload replaces; nil if there is none.
	old *cache.Workload
	// running: its pods run already, so resources without quota are not counted.
	running bool

	slots  []slot
	Chosen []option
	// assumed is what the slots before the current one take.
	assumed quota.Amounts
	// skip is how many flavors to pass over at first, see blindly.
	skip         int
	plans, tries int
	// skipped: the last search for victims found only what others have claimed.
	skipped bool
	// lacksNodes: on some flavor, its pods have no room in the domains of the Topology.
	lacksNodes bool
	// found is the combination that was taken.
	found *Proposal
	until time.Time
	Notes notes
}

const (
	preempt mode = iota
	// reclaim takes back only what others have borrowed.
	reclaim
	fits
)

// split cuts the Workload's requests into slots. It fails if a resource is
// covered by no group, since there is no quota for it.
func (a *assigner) split() bool {
	for i := range a.counts {
		before := len(a.slots)
		rest := a.w.Pod[i].Clone()
		// Quota on pods counts pods, whatever they ask for.
		if covers(a.queue.Object, corev1.ResourcePods) {
			rest[corev1.ResourcePods] = 1
		}
		for _, group := range a.queue.Object.Spec.ResourceGroups {
			need := nodegroups.Resources{}
			for _, name := range group.CoveredResources {
				if v := rest[name]; v > 0 {
					need[name] = nodegroups.Times(v, int64(a.counts[i]))
				}
				if need[name] == quota.Endless {
					a.refuse(i, "", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota,
						"insufficient quota for %s: %s exceeds the largest amount that can be counted; request less", name,
						nodegroups.Quantity(name, quota.Endless))
					return false
				}
				delete(rest, name)
			}
			if len(need) > 0 {
				a.slots = append(a.slots, slot{podSet: i, flavors: group.Flavors, need: need, selects: a.requestsAny(i, need)})
			}
		}
		for _, name := range rest.Names() {
			if rest[name] > 0 && !a.running && !a.s.cache.IgnoresUndeclared() {
				a.refuse(i, "", kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
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

// requestsAny reports whether the pods of a podSet request some of what they need quota for.
func (a *assigner) requestsAny(podSet int, need nodegroups.Resources) bool {
	for name := range need {
		if name != corev1.ResourcePods && a.w.Requests[podSet][name] > 0 {
			return true
		}
	}
	return false
}

// selectTopology gives a podSet that requests a topology a slot that selects its nodes, even if it needs no quota: its own slots are
// those from first on. Without a flavor that has a Topology any slot does, so that the request is refused.
func (a *assigner) selectTopology(podSet, first int) {
	own := a.slots[first:]
	if slices.ContainsFunc(own, func(s slot) bool { return s.selects }) {
		return
	}
	if i := slices.IndexFunc(own, func(s slot) bool { return a.hasTopology(s.flavors) }); i >= 0 {
		own[i].selects = true
		return
	}
	groups := a.queue.Object.Spec.ResourceGroups
	i := max(0, slices.IndexFunc(groups, func(g kueue.ResourceGroup) bool { return a.hasTopology(g.Flavors) }))
	if i < len(groups) {
		a.slots = append(a.slots, slot{podSet: podSet, flavors: groups[i].Flavors, selects: true,
			need: nodegroups.Resources{groups[i].CoveredResources[0]: 0}})
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

func (a *assigner) use(i int, flavor kueue.ResourceFlavorReference) quota.Amounts {
	out := make(quota.Amounts, len(a.slots[i].need))
	for name, v := range a.slots[i].need {
		out[quota.FlavorResource{Flavor: flavor, Resource: name}] = v
	}
	return out
}

// refuse notes why a podSet cannot have a flavor.
func (a *assigner) refuse(podSet int, flavor kueue.ResourceFlavorReference, code, format string, args ...any) {
	a.Notes.add(note{flavor, a.w.Object.Spec.PodSets[podSet].Name, code, fmt.Sprintf(format, args...)})
}

// admission writes the chosen flavors down as Kueue's API does.
func (a *assigner) admission() *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.queue.Object.Name)}
	for i := range a.counts {
		assignment := kueue.PodSetAssignment{
			Name:    a.w.Object.Spec.PodSets[i].Name,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			Count:   new(a.counts[i]),
		}
		usage := nodegroups.Resources{}
		for j, s := range a.slots {
			if s.podSet != i {
				continue
			}
			for name, v := range s.need {
				assignment.Flavors[name] = a.Chosen[j].Flavor
				usage[name] = v
			}
		}
		assignment.ResourceUsage = usage.List()
		out.PodSetAssignments = append(out.PodSetAssignments, assignment)
	}
	return out
}

// option is a flavor that a slot could have.
type option struct {
	Flavor   kueue.ResourceFlavorReference
	mode     mode
	distance int
	// final: the search of flavors ends here, by the queue's fungibility.
	final bool
}

// mode is what it takes to have quota, the best last.
type mode int

// note tells something about the combination that was tried. It is put down at
// each of its flavors, so that none is left unexplained; pods that ask for nothing
// have none.
func (a *assigner) note(message, code string) {
	flavors := a.distinct()
	if len(flavors) == 0 {
		a.refuse(0, "", code, "%s", message)
	}
	for _, flavor := range flavors {
		a.refuse(0, flavor, code, "flavor %s: %s", flavor, message)
	}
}

func (a *assigner) distinct() []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, o := range a.Chosen {
		out = append(out, o.Flavor)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
