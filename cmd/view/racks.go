package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/maruel/natural"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// RackLine is a domain of a flavor that has a Topology: one of the lowest level above the nodes, which
// is mostly a rack.
type RackLine struct {
	Flavor   string `json:"flavor"`
	Topology string `json:"topology"`
	// Domain has the values of its levels, the highest first.
	Domain []string `json:"domain"`
	// Nodes of it, of which Open take pods: the others are not Ready, or cordoned.
	Nodes int `json:"nodes"`
	Open  int `json:"open"`
	// Resources lists devices first.
	Resources []RackResource `json:"resources"`
	// Workloads on it, those with most pods first. OtherPods are those of no Workload.
	Workloads []RackWorkload `json:"workloads"`
	OtherPods int            `json:"otherPods"`
}

// Name of the domain.
func (l *RackLine) Name() string { return strings.Join(l.Domain, "/") }

// RackResource is what a domain has of a resource. Of what its nodes have, Used is taken, and Free can be
// had; the rest is on nodes that take no pods.
type RackResource struct {
	Resource string `json:"resource"`
	Capacity string `json:"capacity"`
	Used     string `json:"used"`
	Free     string `json:"free"`
	// Size is Capacity in parts of a thousand of the flavor's largest domain; UsedShare and FreeShare
	// are in parts of a thousand of Capacity.
	Size      int64 `json:"size"`
	UsedShare int64 `json:"usedShare"`
	FreeShare int64 `json:"freeShare"`
}

// RackWorkload is a Workload with pods in a domain.
type RackWorkload struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	// Name is the job's, or the Workload's if it has no job or is not known.
	Name string `json:"name"`
	Pods int    `json:"pods"`
}

// Racks lists the domains of the named flavors that have a Topology, or of all.
func (p *Picture) Racks(flavors ...string) []RackLine {
	out := []RackLine{}
	jobs := map[types.NamespacedName]string{}
	for _, w := range p.Workloads {
		jobs[workload.KeyOf(w)] = history.NameOf(w)
	}
	for _, flavor := range p.RackFlavors() {
		if len(flavors) > 0 && !slices.Contains(flavors, flavor) {
			continue
		}
		name := kueue.ResourceFlavorReference(flavor)
		domains := p.Queues.Nodes.Occupancy(name)
		slices.SortStableFunc(domains, func(a, b placement.Occupancy) int { return slices.CompareFunc(a.Values, b.Values, inNumbers) })
		largest := nodegroups.Resources{}
		for i := range domains {
			for resource, v := range domains[i].Capacity {
				largest[resource] = max(largest[resource], v)
			}
		}
		shared := p.sharedResources()
		for i := range domains {
			o := &domains[i]
			out = append(out, RackLine{
				Flavor: flavor, Topology: p.Queues.TopologyOf(name).Name, Domain: o.Values, Nodes: o.Nodes, Open: o.Open,
				Resources: resourcesOf(o, largest, shared), Workloads: workloadsOn(o, jobs), OtherPods: o.Others,
			})
		}
	}
	return out
}

// placesOf reports where the pods of an admission are by the Topologies of their flavors, as Racks names the domains.
func (p *Picture) placesOf(a *kueue.Admission) (out []string) {
	for i := range a.PodSetAssignments {
		assignment := &a.PodSetAssignments[i]
		if assignment.TopologyAssignment == nil {
			continue
		}
		domains, err := placement.Decode(assignment.TopologyAssignment)
		if err != nil {
			continue // explained by the Workload's own conditions
		}
		pods := map[string]int{}
		for _, d := range domains {
			for _, flavor := range assignment.Flavors {
				if tree := p.Queues.Nodes.Tree(flavor); tree != nil {
					pods[strings.Join(tree.OccupancyDomain(d), "/")] += int(d.Count)
					break
				}
			}
		}
		var places []string
		for _, name := range slices.SortedFunc(maps.Keys(pods), inNumbers) {
			places = append(places, fmt.Sprintf("%s in %s", text.Pods(pods[name]), name))
		}
		out = append(out, fmt.Sprintf("pod set %s: %s", assignment.Name, strings.Join(places, ", ")))
	}
	return out
}

// inNumbers orders names by the numbers in them, as people do: r2 comes before r10.
func inNumbers(a, b string) int {
	switch {
	case a == b:
		return 0
	case natural.Less(a, b):
		return -1
	default:
		return 1
	}
}

// RackFlavors returns the flavors that have a Topology.
func (p *Picture) RackFlavors() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(p.Queues.Flavors)) {
		if p.Queues.TopologyOf(name) != nil {
			out = append(out, string(name))
		}
	}
	return out
}

// sharedResources returns the resources that count devices which pods share.
func (p *Picture) sharedResources() map[corev1.ResourceName]bool {
	out := map[corev1.ResourceName]bool{}
	for n := range p.Snapshot.Nodes.All() {
		if n.Published == nil {
			continue
		}
		for name, amount := range n.Published.Amounts() {
			out[name] = out[name] || amount >= fit.SharesOfDevice
		}
	}
	return out
}

func resourcesOf(o *placement.Occupancy, largest nodegroups.Resources, shared map[corev1.ResourceName]bool) []RackResource {
	out := []RackResource{}
	for _, name := range devicesFirst(o.Capacity) {
		capacity := o.Capacity[name]
		if capacity <= 0 {
			continue
		}
		used, free, most := o.Used[name], o.Free[name], largest[name]
		if shared[name] {
			capacity, most = fit.DevicesIn(capacity), fit.DevicesIn(most)
			used, free = min(used, capacity), min(fit.DevicesIn(max(0, free)), capacity)
		}
		share := func(v, of int64) int64 { return min(1000, int64(1000*float64(v)/float64(of))) }
		show := func(v int64) string { return nodegroups.Quantity(name, v) }
		out = append(out, RackResource{
			Resource: string(name), Capacity: show(capacity), Used: show(used), Free: show(free),
			Size: share(capacity, most), UsedShare: share(used, capacity), FreeShare: share(free, capacity),
		})
	}
	return out
}

// devicesFirst returns the names of resources as people look for them.
func devicesFirst(r nodegroups.Resources) []corev1.ResourceName {
	return slices.SortedFunc(maps.Keys(r), func(a, b corev1.ResourceName) int {
		return cmp.Or(nodegroups.CompareBools(nodegroups.Extended(b), nodegroups.Extended(a)), cmp.Compare(a, b))
	})
}

// workloadsOn a domain, those with most pods first.
func workloadsOn(o *placement.Occupancy, jobs map[types.NamespacedName]string) []RackWorkload {
	out := make([]RackWorkload, 0, len(o.Workloads))
	for key, pods := range o.Workloads {
		name := cmp.Or(jobs[key], "workload/"+key.Name)
		out = append(out, RackWorkload{Namespace: key.Namespace, Workload: key.Name, Name: name, Pods: pods})
	}
	slices.SortFunc(out, func(a, b RackWorkload) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload))
	})
	return out
}
