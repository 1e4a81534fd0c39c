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

// Placing is where the pods of a Workload could go by the Topologies of its flavors.
type Placing struct {
	topologies *placement.TopologyCache
	groups     []group
}

// group is a podSet that is placed by itself, or with the leader that is to be near it.
type group struct {
	flavor  kueue.ResourceFlavorReference
	pods    int
	leader  int // -1 for none
	request placement.Request
}

// Placed is where the pods of one podSet go.
type Placed struct {
	PodSet int
	placement.Usage
	Levels []string
	// Fills as placement.Placement has it, of the only podSet that is placed.
	Fills bool
}

// Uses are those of all podSets.
func Uses(placed []Placed) []placement.Usage {
	var out []placement.Usage
	for i := range placed {
		out = append(out, placed[i].Usage)
	}
	return out
}

// Write puts the places into an admission.
func Write(placed []Placed, admission *kueue.Admission) {
	for i := range placed {
		p := &placed[i]
		admission.PodSetAssignments[p.PodSet].TopologyAssignment = placement.Encode(p.Levels, p.Domains)
	}
}

// NewPlacing asks for the pods of an admission, with what its checks add to them, in a forest. It is
// nil where no flavor has a Topology.
func (s *Cache) NewPlacing(w *Workload, admission *kueue.Admission, checks []kueue.AdmissionCheckState,
	topologies *placement.TopologyCache) *Placing {
	out := &Placing{topologies: topologies}
	led := map[string]int{} // the group's place among groups, by its name
	for i := range admission.PodSetAssignments {
		a := &admission.PodSetAssignments[i]
		flavor, ok := s.topologyFlavor(a)
		if !ok || workload.CountOf(a) == 0 || topologies.Tree(flavor) == nil {
			continue
		}
		ps := &w.Object.Spec.PodSets[i]
		r := ps.TopologyRequest
		g := group{flavor: flavor, pods: i, leader: -1, request: placement.Request{
			Count: workload.CountOf(a), Pod: w.Requests[i], Topology: r, Implied: !placement.RequestsTopology(r), Spec: s.specOf(w, a, checks),
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

// join has the two podSets of a group placed together; the one of a single pod leads.
func (g *group) join(o group) {
	if g.request.Count < o.request.Count {
		*g, o = o, *g
	}
	g.leader, g.request.Leader, g.request.LeaderSpec = o.pods, o.request.Pod, o.request.Spec
}

// specOf is that of the pods of a podSet as they will be.
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

// Lost are the hosts with places of a Workload that its pods cannot have any more.
func (s *Cache) Lost(w *Workload) map[string]bool {
	return s.Nodes.LostHosts(workload.KeyOf(w.Object), w.Uses, func(taint *corev1.Taint) bool {
		admission := w.Object.Status.Admission
		return slices.ContainsFunc(admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool {
			return a.TopologyAssignment != nil &&
				fit.Untolerated([]corev1.Taint{*taint}, s.specOf(w, &a, w.Object.Status.AdmissionChecks).Tolerations) != nil
		})
	})
}

// Lack is of the podSet that has no place.
type Lack struct {
	PodSet int
	Count  int32
	Pod    nodegroups.Resources
	// Best is the domain of the requested level with room for the most of its pods.
	Best placement.Domain
}

// Place finds domains for all podSets, one after the other. The reason says why one has none.
func (p *Placing) Place() (out []Placed, reason string, lack Lack) {
	defer func() { p.topologies.AddUsage(Uses(out), -1) }()
	var taken []placement.Usage // of single nodes, where domains have several
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
			return out, found.Reason, Lack{g.pods, g.request.Count, g.request.Pod, found.Best}
		}
		placed := []Placed{{g.pods, placement.Usage{Flavor: g.flavor, Domains: found.Pods, Pod: g.request.Pod}, tree.Levels(),
			found.Fills && len(p.groups) == 1}}
		if g.leader >= 0 {
			placed = append(placed, Placed{g.leader, placement.Usage{Flavor: g.flavor, Domains: found.Leader, Pod: g.request.Leader},
				tree.Levels(), false})
		}
		p.topologies.AddUsage(Uses(placed), 1)
		taken = append(taken, placement.Usage{Flavor: g.flavor, Domains: found.Nodes, Pod: g.request.Pod},
			placement.Usage{Flavor: g.flavor, Domains: found.LeaderNodes, Pod: g.request.Leader})
		out = append(out, placed...)
	}
	return out, "", Lack{}
}

// PlaceEmpty looks for domains as if no Workload had pods on the nodes, for each podSet by itself.
func (p *Placing) PlaceEmpty() (lack Lack, ok bool) {
	for i := range p.groups {
		g := &p.groups[i]
		if found := p.topologies.Tree(g.flavor).EmptySnapshot().Place(&g.request); found.Reason != "" {
			return Lack{g.pods, g.request.Count, g.request.Pod, found.Best}, false
		}
	}
	return Lack{}, true
}

// Repair finds new places for the pods that were on lost nodes, where the others of the admission stay.
func (p *Placing) Repair(admission *kueue.Admission, lost map[string]bool) (out []Placed, reason string) {
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
			out = append(out, Placed{at, placement.Usage{Flavor: g.flavor, Domains: repaired, Pod: request.Pod}, tree.Levels(), false})
			of[at] = repaired
		}
	}
	return out, ""
}

// Trial is a Placing that Workloads may be taken out of, as package preemption does.
type Trial struct {
	*Cache
	*Placing
}

// Remove looks at the nodes as if a Workload were not there.
func (t Trial) Remove(uid types.UID) { t.add(uid, -1) }

// PutBack undoes Remove.
func (t Trial) PutBack(uid types.UID) { t.add(uid, 1) }

func (t Trial) add(uid types.UID, n int) {
	if w := t.Workloads[uid]; w != nil {
		t.topologies.AddUsage(w.Uses, n)
	}
}

// Fits reports whether all podSets have domains.
func (t Trial) Fits() bool {
	_, reason, _ := t.Place()
	return reason == ""
}
