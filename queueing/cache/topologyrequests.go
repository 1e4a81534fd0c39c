package cache

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// TopologyRequests are the topology requests of the podSets of a Workload.
type TopologyRequests struct {
	topologies *placement.TopologyCache
	groups     []group
}

// group is a podSet that is placed alone, or together with its leader.
type group struct {
	flavor  kueue.ResourceFlavorReference
	pods    int
	leader  int // -1 for none
	request placement.Request
}

// PodSetPlacement is the topology assignment of one podSet.
type PodSetPlacement struct {
	PodSet int
	placement.Usage
	Levels []string
	// Fills is that of placement.Placement, if there is only one podSet.
	Fills bool
}

// UsageOf returns the usage of all placements.
func UsageOf(placed []PodSetPlacement) []placement.Usage {
	var out []placement.Usage
	for i := range placed {
		out = append(out, placed[i].Usage)
	}
	return out
}

// SetTopologyAssignments writes the placements to an admission.
func SetTopologyAssignments(placed []PodSetPlacement, admission *kueue.Admission) {
	for i := range placed {
		p := &placed[i]
		admission.PodSetAssignments[p.PodSet].TopologyAssignment = placement.Encode(p.Levels, p.Domains)
	}
}

// NewTopologyRequests returns the topology requests of an admission, including what its checks add to the pods. It is
// nil if no flavor has a Topology.
func (s *Cache) NewTopologyRequests(w *Workload, admission *kueue.Admission, checks []kueue.AdmissionCheckState,
	topologies *placement.TopologyCache) *TopologyRequests {
	out := &TopologyRequests{topologies: topologies}
	led := map[string]int{} // index in groups by podSetGroupName
	for i := range admission.PodSetAssignments {
		a := &admission.PodSetAssignments[i]
		flavor, ok := s.topologyFlavor(a)
		if !ok || workload.CountOf(a) == 0 || topologies.Tree(flavor) == nil {
			continue
		}
		ps := &w.Object.Spec.PodSets[i]
		r := ps.TopologyRequest
		g := group{flavor: flavor, pods: i, leader: -1, request: placement.Request{
			Count: workload.CountOf(a), Pod: w.OnNode[i], Topology: r, Implied: !placement.RequestsTopology(r), Spec: s.specOf(w, a, checks),
			Balanced: s.Config.FeatureGates[config.TASBalancedPlacement],
		}}
		if r != nil && r.PodSetGroupName != nil {
			if at, ok := led[*r.PodSetGroupName]; ok {
				out.groups[at].join(g)
				continue
			}
			led[*r.PodSetGroupName] = len(out.groups)
		}
		out.groups = append(out.groups, g)
	}
	if len(out.groups) == 0 {
		return nil
	}
	return out
}

// join combines the two podSets of a group; the one with a single pod is the leader.
func (g *group) join(o group) {
	if g.request.Count < o.request.Count {
		*g, o = o, *g
	}
	g.leader, g.request.Leader, g.request.LeaderSpec = o.pods, o.request.Pod, o.request.Spec
}

// specOf returns the spec of the pods of a podSet as they will be created.
func (s *Cache) specOf(w *Workload, a *kueue.PodSetAssignment, checks []kueue.AdmissionCheckState) *corev1.PodSpec {
	var flavors []*kueue.ResourceFlavor
	for _, name := range workload.AssignedFlavors(&kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{*a}}) {
		if f := s.Flavors[name]; f != nil {
			flavors = append(flavors, f)
		}
	}
	out := workload.TemplateOn(&workload.FindPodSet(w.Object, a.Name).Template, flavors)
	for i := range checks {
		for _, u := range checks[i].PodSetUpdates {
			if u.Name != a.Name {
				continue
			}
			if out.Spec.NodeSelector == nil {
				out.Spec.NodeSelector = map[string]string{}
			}
			maps.Copy(out.Spec.NodeSelector, u.NodeSelector)
			out.Spec.Tolerations = workload.AddTolerations(out.Spec.Tolerations, u.Tolerations)
		}
	}
	return s.CompletePodSpec(w.Object.Namespace, &out.Spec)
}

// LostHosts returns the hosts of the Workload's topology assignment that its pods can no longer use.
func (s *Cache) LostHosts(w *Workload) map[string]bool {
	return s.Nodes.LostHosts(workload.KeyOf(w.Object), w.TopologyUsage, func(taint *corev1.Taint) bool {
		admission := w.Object.Status.Admission
		return slices.ContainsFunc(admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
			return a.TopologyAssignment != nil &&
				fit.Untolerated([]corev1.Taint{*taint}, s.specOf(w, &a, w.Object.Status.AdmissionChecks).Tolerations) != nil
		})
	})
}

// UnplacedPodSet is a podSet that does not fit.
type UnplacedPodSet struct {
	PodSet int
	Count  int32
	Pod    nodegroups.Resources
	// Best is the domain of the requested level that fits the most of its pods.
	Best placement.Domain
}

// FindAssignments places all podSets, one after the other. The reason says why one does not fit.
func (p *TopologyRequests) FindAssignments() (out []PodSetPlacement, reason string, lack UnplacedPodSet) {
	defer func() { p.topologies.AddUsage(UsageOf(out), -1) }()
	var taken []placement.Usage // of single nodes, if domains have several
	for i := range p.groups {
		g := &p.groups[i]
		tree := p.topologies.Tree(g.flavor)
		view := tree.Snapshot()
		for _, u := range taken {
			if u.Flavor == g.flavor {
				view.AddNodeUsage(u.Domains, u.Pod)
			}
		}
		found := view.Place(&g.request)
		if found.Reason != "" {
			return out, found.Reason, UnplacedPodSet{g.pods, g.request.Count, g.request.Pod, found.Best}
		}
		placed := []PodSetPlacement{{g.pods, placement.Usage{Flavor: g.flavor, Domains: found.Pods, Pod: g.request.Pod}, tree.Levels(),
			found.Fills && len(p.groups) == 1}}
		if g.leader >= 0 {
			placed = append(placed, PodSetPlacement{g.leader, placement.Usage{Flavor: g.flavor, Domains: found.Leader, Pod: g.request.Leader},
				tree.Levels(), false})
		}
		p.topologies.AddUsage(UsageOf(placed), 1)
		taken = append(taken, placement.Usage{Flavor: g.flavor, Domains: found.Nodes, Pod: g.request.Pod},
			placement.Usage{Flavor: g.flavor, Domains: found.LeaderNodes, Pod: g.request.Leader})
		out = append(out, placed...)
	}
	return out, "", UnplacedPodSet{}
}

// FindAssignmentsOnEmpty places each podSet separately on nodes without any Workload.
func (p *TopologyRequests) FindAssignmentsOnEmpty() (lack UnplacedPodSet, ok bool) {
	for i := range p.groups {
		g := &p.groups[i]
		if found := p.topologies.Tree(g.flavor).EmptySnapshot().Place(&g.request); found.Reason != "" {
			return UnplacedPodSet{g.pods, g.request.Count, g.request.Pod, found.Best}, false
		}
	}
	return UnplacedPodSet{}, true
}

// Repair replaces the lost nodes of an admission; the other pods stay.
func (p *TopologyRequests) Repair(admission *kueue.Admission, lost map[string]bool) (out []PodSetPlacement, reason string) {
	for i := range p.groups {
		g := &p.groups[i]
		tree := p.topologies.Tree(g.flavor)
		podSets := []int{g.pods}
		if g.leader >= 0 {
			podSets = append(podSets, g.leader)
		}
		of := map[int][]placement.Domain{}
		for _, at := range podSets {
			a := admission.PodSetAssignments[at].TopologyAssignment
			if a == nil {
				continue
			}
			domains, err := placement.Decode(a)
			if err != nil {
				return nil, err.Error()
			}
			of[at] = domains
		}
		for _, at := range podSets {
			request, beside := g.request, []placement.Domain(nil)
			request.Leader = nil
			if at == g.leader {
				request.Pod, request.Spec = g.request.Leader, g.request.LeaderSpec
			}
			for other, domains := range of {
				if other != at {
					beside = slices.DeleteFunc(slices.Clone(domains), func(d placement.Domain) bool { return lost[d.Values[0]] })
				}
			}
			repaired, reason := tree.Repair(&request, of[at], beside, lost)
			if reason != "" {
				return nil, reason
			}
			out = append(out, PodSetPlacement{at, placement.Usage{Flavor: g.flavor, Domains: repaired, Pod: request.Pod}, tree.Levels(), false})
			of[at] = repaired
		}
	}
	return out, ""
}

// TopologySimulation simulates the removal of Workloads for package preemption.
type TopologySimulation struct {
	*Cache
	*TopologyRequests
}

// SimulateRemoval removes the topology usage of a Workload.
func (t TopologySimulation) SimulateRemoval(uid types.UID) { t.add(uid, -1) }

// RevertRemoval undoes SimulateRemoval.
func (t TopologySimulation) RevertRemoval(uid types.UID) { t.add(uid, 1) }

func (t TopologySimulation) add(uid types.UID, n int) {
	if w := t.Workloads[uid]; w != nil {
		t.topologies.AddUsage(w.TopologyUsage, n)
	}
}

// Fits reports whether all podSets fit.
func (t TopologySimulation) Fits() bool {
	_, reason, _ := t.FindAssignments()
	return reason == ""
}
