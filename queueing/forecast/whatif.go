package forecast

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
)

// Copy is a State of its own with the same objects: to set others in it and ask what
// would be, or to forecast while the original goes on.
func Copy(state *queueing.State) *queueing.State {
	out := state.WithoutWorkloads(nil)
	for _, w := range state.AllWorkloads() {
		out.Join(w)
	}
	if have := state.Capacity(); have != nil {
		// A set of nodes must not be copied by two at a time, and both may.
		own := *have
		own.Nodes = have.Nodes.Clone()
		out.SetCapacity(&own)
	}
	return out
}

// WithQuota is the ClusterQueue with another nominal quota for a flavor and resource,
// to be set in a copy of a State.
func WithQuota(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference,
	name corev1.ResourceName, nominal resource.Quantity) (*kueue.ClusterQueue, error) {
	out := cq.DeepCopy()
	// A State looks at the spec again only if the generation is another one.
	out.Generation++
	for i := range out.Spec.ResourceGroups {
		for j := range out.Spec.ResourceGroups[i].Flavors {
			f := &out.Spec.ResourceGroups[i].Flavors[j]
			for k := range f.Resources {
				if f.Name == flavor && f.Resources[k].Name == name {
					f.Resources[k].NominalQuota = nominal
					return out, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("ClusterQueue %s has no nominalQuota of %s in flavor %s: name a flavor and a resource of its resourceGroups",
		cq.Name, name, flavor)
}

// WithGroup is the snapshot with one more group, or with another one of that name.
func WithGroup(s *planner.Snapshot, g nodegroups.Group) *planner.Snapshot {
	out := *s
	out.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(o planner.Group) bool { return o.Name == g.Name })
	out.Groups = append(out.Groups, planner.NewGroup(g, s.DaemonSets))
	slices.SortFunc(out.Groups, func(a, b planner.Group) int { return cmp.Compare(a.Name, b.Name) })
	return &out
}

// WithoutZone is the snapshot where a zone has no machines, nor gives any. What runs
// there is not stopped: it tells what newcomers would find.
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
