package placement

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// Occupancy is the capacity and the usage of a domain of the lowest level above the nodes, or of a node if there is no
// level above.
type Occupancy struct {
	// Values are the values of the levels, the highest first.
	Values []string
	// Nodes counts the nodes of the domain, Open those that are Ready and not cordoned.
	Nodes, Open int
	// Capacity is that of all nodes, and Used is the usage of pods and assignments. Free counts only open nodes, so
	// Used and Free may sum up to less than Capacity.
	Capacity, Used, Free nodegroups.Resources
	// Workloads maps each Workload to its number of pods, by assignment or by the pods' annotation. Others counts the
	// pods of no Workload.
	Workloads map[types.NamespacedName]int
	Others    int
}

// Occupancy returns the occupancy of the domains of a flavor, sorted by values; nil if the flavor has no Topology.
func (c *TopologyCache) Occupancy(flavor kueue.ResourceFlavorReference) []Occupancy {
	p := c.trees[flavor]
	if p == nil {
		return nil
	}
	c.refresh()
	domains, leaves := map[string]*Occupancy{}, map[string]*leafOccupancy{}
	for _, s := range c.nodes {
		if s.object == nil || !selects(p.NodeLabels, s.object.Labels) {
			continue
		}
		values := p.valuesOf(s.object)
		if values == nil {
			continue
		}
		path := p.occupancyDomain(values)
		key := strings.Join(path, separator)
		if domains[key] == nil {
			domains[key] = &Occupancy{
				Values: path, Capacity: nodegroups.Resources{}, Used: nodegroups.Resources{}, Free: nodegroups.Resources{},
				Workloads: map[types.NamespacedName]int{},
			}
		}
		id := p.id(values)
		if leaves[id] == nil {
			leaves[id] = &leafOccupancy{domain: domains[key], free: nodegroups.Resources{}}
		}
		c.addNode(leaves[id], s)
	}
	for id, l := range leaves {
		l.domain.Used.Add(p.usage[id], 1)
		for name, v := range l.free {
			// An overcommitted leaf does not reduce the free capacity of others.
			l.domain.Free[name] += max(0, v-p.usage[id][name])
		}
	}
	for w, uses := range c.usage {
		for _, u := range uses {
			if own := c.trees[u.Flavor]; own != p && (!p.hosts || own == nil || !own.hosts) {
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

// leafOccupancy is a leaf of a domain.
type leafOccupancy struct {
	domain *Occupancy
	// free is the capacity of its open nodes, less the requests of pods without an assignment.
	free nodegroups.Resources
}

// addNode counts a node and the pods on it that have no assignment.
func (c *TopologyCache) addNode(l *leafOccupancy, s *nodeInfo) {
	l.domain.Nodes++
	l.domain.Capacity.Add(s.capacity(), 1)
	if s.free != nil {
		l.domain.Open++
		l.free.Add(s.free, 1)
	}
	for _, r := range s.pods {
		switch {
		case c.isAssigned(r):
			continue
		case r.workload.Name != "":
			l.domain.Workloads[r.workload]++
		default:
			l.domain.Others++
		}
		l.domain.Used.Add(withPod(r.requests), 1)
	}
}
