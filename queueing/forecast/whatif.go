package forecast

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/quota"
)

// Copy returns an independent State of the same objects, to change objects in it, or to forecast while the original
// changes.
func Copy(state *queueing.State) *queueing.State {
	out := state.WithoutWorkloads(nil)
	for _, w := range state.AllWorkloads() {
		out.Join(w)
	}
	if have := state.Capacity(); have != nil {
		// A set of nodes must not be copied concurrently, and both States may copy it.
		own := *have
		own.Nodes = have.Nodes.Clone()
		out.SetCapacity(&own)
	}
	return out
}

// WithQuota returns the ClusterQueue with another nominal quota for a flavor and resource, to be set in a copy of a
// State.
func WithQuota(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference,
	name corev1.ResourceName, nominal resource.Quantity) (*kueue.ClusterQueue, error) {
	out := cq.DeepCopy()
	// A State reads the spec again only if the generation has changed.
	out.Generation++
	is, err := quota.Nominal(out, quota.FlavorResource{Flavor: flavor, Resource: name})
	if err != nil {
		return nil, err
	}
	*is = nominal
	return out, nil
}

// WithGroup returns the snapshot with a group added or replaced.
func WithGroup(s *planner.Snapshot, g nodegroups.Group) *planner.Snapshot {
	out := *s
	out.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(o planner.Group) bool { return o.Name == g.Name })
	out.Groups = append(out.Groups, planner.NewGroup(g, s.DaemonSets))
	slices.SortFunc(out.Groups, func(a, b planner.Group) int { return cmp.Compare(a.Name, b.Name) })
	return &out
}

// WithoutZone returns the snapshot without the nodes and groups of a zone. It does not stop what runs there: it shows
// what new Workloads would find.
func WithoutZone(s *planner.Snapshot, zone string) *planner.Snapshot {
	out := *s
	out.Nodes = s.Nodes.Clone()
	for n := range s.Nodes.All() {
		if n.Labels[corev1.LabelTopologyZone] == zone {
			out.Nodes.Delete(n.Name)
		}
	}
	out.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g planner.Group) bool { return g.Zone == zone })
	return &out
}
