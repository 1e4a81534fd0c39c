package cache

import (
	"maps"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// TopologyOf returns the Topology of a flavor; nil if it has none or the Topology does not exist.
func (s *Settings) TopologyOf(flavor kueue.ResourceFlavorReference) *kueue.Topology {
	f := s.Flavors[flavor]
	if f == nil || f.Spec.TopologyName == nil {
		return nil
	}
	return s.Topologies[*f.Spec.TopologyName]
}

// UsesTopologies reports whether a flavor has a Topology, so that nodes and pods matter.
func (s *Settings) UsesTopologies() bool {
	for name := range s.Flavors {
		if s.TopologyOf(name) != nil {
			return true
		}
	}
	return false
}

// Levels returns the node labels of a Topology, the highest level first.
func Levels(t *kueue.Topology) []string {
	out := make([]string, len(t.Spec.Levels))
	for i := range t.Spec.Levels {
		out[i] = t.Spec.Levels[i].NodeLabel
	}
	return out
}

// ImpliesTopology reports whether all flavors of a ClusterQueue have a Topology. Pods without a topology request then
// get an assignment, too.
func (s *Settings) ImpliesTopology(cq *kueue.ClusterQueue) bool {
	flavors := FlavorsOf(cq)
	return len(flavors) > 0 && !slices.ContainsFunc(flavors, func(f kueue.ResourceFlavorReference) bool {
		return s.Flavors[f] == nil || s.Flavors[f].Spec.TopologyName == nil
	})
}

// topologyUsageOf returns the topology usage of a Workload's assignment, without the pods that have ended. An invalid assignment
// counts nowhere.
func (s *Cache) topologyUsageOf(w *Workload) []placement.Usage {
	if !workload.HasQuota(w.Object) {
		return nil
	}
	var out []placement.Usage
	for i := range w.Object.Status.Admission.PodSetAssignments {
		a := &w.Object.Status.Admission.PodSetAssignments[i]
		if a.TopologyAssignment == nil {
			continue
		}
		at := slices.IndexFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.Name == a.Name })
		domains, err := placement.Decode(a.TopologyAssignment)
		if at < 0 || err != nil {
			continue
		}
		if flavor, ok := s.topologyFlavor(a); ok {
			use := placement.Usage{Flavor: flavor, Domains: domains, Pod: w.OnNode[at]}
			ended := workload.CountOf(a) - workload.PodsLeft(w.Object, a)
			out = append(out, s.Nodes.WithoutEnded(workload.KeyOf(w.Object), string(a.Name), use, ended))
		}
	}
	return out
}

// topologyFlavor returns the flavor of a podSet that has a Topology.
func (s *Settings) topologyFlavor(a *kueue.PodSetAssignment) (kueue.ResourceFlavorReference, bool) {
	for _, resource := range slices.Sorted(maps.Keys(a.Flavors)) {
		if f := s.Flavors[a.Flavors[resource]]; f != nil && f.Spec.TopologyName != nil {
			return a.Flavors[resource], true
		}
	}
	return "", false
}

// HasTopology reports whether a flavor of the podSet has a Topology.
func (s *Settings) HasTopology(a *kueue.PodSetAssignment) bool {
	_, ok := s.topologyFlavor(a)
	return ok
}

// Nodes are the nodes of the flavors with a Topology, with the pods on them.
type Nodes struct {
	*placement.TopologyCache
	// Known reports whether all nodes have been read.
	Known bool
	// BookedUnseen: booked nodes are not in the cache, as in a forecast. They are assumed to be as requested.
	BookedUnseen bool
	// Vanished are nodes that were deleted while their machines still run; empty if the provisioner is another
	// process.
	Vanished scaledown.Vanished
}

// MayReturn reports whether some of the hosts that a Workload has lost may come back: soon, because it is too early to
// decide, or many, because so many have vanished that a person has to decide.
func (n *Nodes) MayReturn(lost map[string]bool) (soon, many bool) {
	left := n.DeletedNodes()
	for host := range lost {
		id, seen := left[host]
		doubted, vanished := n.Vanished.Machines[id]
		switch {
		case n.HasHost(host):
		case !seen:
			many = many || n.Vanished.Many
		case vanished:
			soon, many = true, many || doubted
		}
	}
	return soon, many
}

func newNodes() Nodes { return Nodes{TopologyCache: placement.NewTopologyCache()} }

// MarkKnown records that all nodes have been read.
func (n *Nodes) MarkKnown() {
	n.Known = true
	n.MarkAllChanged()
}

// Move replaces the topology usage of a Workload before its object shows it.
func (n *Nodes) Move(w *Workload, uses []placement.Usage) {
	w.TopologyUsage = uses
	n.SetUsage(workload.KeyOf(w.Object), w.currentTopologyUsage())
}

// setFlavors sets the flavors that have a Topology. The keys are the node labels that Workloads select on.
func (n *Nodes) setFlavors(s *Settings, keys []string) {
	var flavors []placement.Flavor
	for _, name := range slices.Sorted(maps.Keys(s.Flavors)) {
		if t := s.TopologyOf(name); t != nil && len(t.Spec.Levels) > 0 {
			flavors = append(flavors, placement.Flavor{Name: name, NodeLabels: s.Flavors[name].Spec.NodeLabels, Topology: t.Name, Levels: Levels(t)})
		}
	}
	n.SetFlavors(flavors, keys)
}

func (n *Nodes) forget() { *n = newNodes() }
