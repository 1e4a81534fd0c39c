package placement

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// Occupancy is what a domain has, and what takes it. Domains are those of the lowest level above the
// nodes, or the nodes where there is no level above.
type Occupancy struct {
	// Values are those of the domain's levels, the highest first.
	Values []string
	// Nodes of the domain, and how many of them are Open to pods: Ready, and not cordoned.
	Nodes, Open int
	// Capacity is that of all nodes, and Used what pods and assignments take of it. Free is what the
	// nodes that are open have left, so the three do not add up where some are not.
	Capacity, Used, Free nodegroups.Resources
	// Workloads have the number of their pods, by their assignments or as the pods say. Others are
	// the pods of none.
	Workloads map[types.NamespacedName]int
	Others    int
}

// Occupancy of the domains of a flavor, in the order of their values; nil where it has no Topology.
func (f *Forest) Occupancy(flavor kueue.ResourceFlavorReference) []Occupancy {
	p := f.trees[flavor]
	if p == nil {
		return nil
	}
	f.refresh()
	domains, leaves := map[string]*Occupancy{}, map[string]*occupied{}
	for _, s := range f.nodes {
		if s.object == nil || !selects(p.NodeLabels, s.object.Labels) {
			continue
		}
		values := p.valuesOf(s.object)
		if values == nil {
			continue
		}
		path := p.rack(values)
		key := strings.Join(path, separator)
		if domains[key] == nil {
			domains[key] = &Occupancy{
				Values: path, Capacity: nodegroups.Resources{}, Used: nodegroups.Resources{}, Free: nodegroups.Resources{},
				Workloads: map[types.NamespacedName]int{},
			}
		}
		id := p.id(values)
		if leaves[id] == nil {
			leaves[id] = &occupied{domain: domains[key], free: nodegroups.Resources{}}
		}
		f.occupy(leaves[id], s)
	}
	for id, l := range leaves {
		l.domain.Used.Add(p.used[id], 1)
		for name, v := range l.free {
			// A leaf with too much on it takes no room from others.
			l.domain.Free[name] += max(0, v-p.used[id][name])
		}
	}
	for w, uses := range f.held {
		for _, u := range uses {
			if own := f.trees[u.Flavor]; own != p && (!p.hosts || own == nil || !own.hosts) {
				continue
			}
			for _, d := range u.Domains {
				if l := leaves[p.id(d.Values)]; l != nil {
					l.domain.Workloads[w] += int(d.Count)
				}
			}
		}
	}
	out := make([]Occupancy, 0, len(domains))
	for _, d := range domains {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Occupancy) int { return slices.Compare(a.Values, b.Values) })
	return out
}

// occupied is a leaf of a domain.
type occupied struct {
	domain *Occupancy
	// free is what its nodes that are open have, less what pods without an assignment take.
	free nodegroups.Resources
}

// occupy counts a node, and the pods on it that have no assignment.
func (f *Forest) occupy(l *occupied, s *site) {
	l.domain.Nodes++
	l.domain.Capacity.Add(nodegroups.ResourcesFrom(s.object.Status.Allocatable), 1)
	if s.free != nil {
		l.domain.Open++
		l.free.Add(s.free, 1)
	}
	for _, r := range s.pods {
		switch {
		case f.covers(r):
			continue
		case r.workload.Name != "":
			l.domain.Workloads[r.workload]++
		default:
			l.domain.Others++
		}
		l.domain.Used.Add(withPod(r.requests), 1)
	}
}
