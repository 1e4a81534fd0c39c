package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/placement"
)

// NodeState is the state of a node, in a word.
type NodeState string

// The states of nodes.
const (
	// Free: it takes any pod, and runs none but those of DaemonSets.
	Free NodeState = "Free"
	// Used: it runs pods.
	Used NodeState = "Used"
	// Booked: it waits for the pods of a job.
	Booked NodeState = "Booked"
	// Joining: its launch is not complete.
	Joining NodeState = "Joining"
	// Closed: it is cordoned, is being scaled down, or its machine is about to be interrupted.
	Closed NodeState = "Closed"
	// Broken: it is not Ready, its machine has ended, or none of its pods can start.
	Broken NodeState = "Broken"
)

// NodeLine is a node.
type NodeLine struct {
	Name string `json:"name"`
	// Group is its NodeGroup; empty for a node that is in none.
	Group string    `json:"group,omitempty"`
	State NodeState `json:"state"`
	// Words say why it is closed or broken, and which of its devices have a taint.
	Words string `json:"words,omitempty"`
	// Racks are the domains that it is in, one for each Topology whose labels it has.
	Racks []NodeRack `json:"racks,omitempty"`
	// ClusterQueues are those with a flavor whose nodeLabels it has.
	ClusterQueues []string `json:"clusterQueues,omitempty"`
	// Jobs have booked it or run there, each as namespace/kind/name.
	Jobs    []string      `json:"jobs,omitempty"`
	Devices []NodeDevices `json:"devices,omitempty"`
}

// NodeRack is a domain of a Topology: of the lowest level above the nodes.
type NodeRack struct {
	Topology string   `json:"topology"`
	Domain   []string `json:"domain"`
}

// Name of the domain.
func (r NodeRack) Name() string { return strings.Join(r.Domain, "/") }

// NodeDevices are the devices of a name, and those of them that are neither used nor booked. None is free on a node that is closed,
// broken or joining.
type NodeDevices struct {
	Resource corev1.ResourceName `json:"resource"`
	Capacity int64               `json:"capacity"`
	Free     int64               `json:"free"`
}

// NodeCount counts the nodes of a group, a rack or a ClusterQueue.
type NodeCount struct {
	// Of names it: a group (empty for nodes of none), a Topology and its domain, or a ClusterQueue.
	Of      string        `json:"name"`
	Nodes   int           `json:"nodes"`
	Free    int           `json:"free"`
	Used    int           `json:"used"`
	Booked  int           `json:"booked"`
	Joining int           `json:"joining"`
	Closed  int           `json:"closed"`
	Broken  int           `json:"broken"`
	Devices []NodeDevices `json:"devices,omitempty"`
}

// Nodes are all nodes, those of no NodeGroup included, and their counts.
type Nodes struct {
	Nodes []NodeLine `json:"nodes"`
	// Groups are those with machines; a machine that has no node yet is counted as joining.
	Groups        []NodeCount `json:"groups"`
	Racks         []NodeCount `json:"racks"`
	ClusterQueues []NodeCount `json:"clusterQueues"`
}

// NodesIn lists and counts the nodes of a NodeGroup, or all nodes if that is empty.
func (p *Picture) NodesIn(group string) *Nodes {
	out := &Nodes{Nodes: []NodeLine{}}
	jobs := p.jobsOnNodes()
	groups, racks, queues := map[string]*NodeCount{}, map[string]*NodeCount{}, map[string]*NodeCount{}
	for n := range p.Snapshot.Nodes.All() {
		if group != "" && n.Group != group {
			continue
		}
		l := p.nodeLine(n)
		l.Jobs = slices.Sorted(maps.Keys(jobs[n.Name]))
		out.Nodes = append(out.Nodes, l)
		count(groups, l.Group, &l)
		for _, r := range l.Racks {
			count(racks, r.Topology+" "+r.Name(), &l)
		}
		for _, q := range l.ClusterQueues {
			count(queues, q, &l)
		}
	}
	for name, g := range p.Groups {
		if group != "" && group != name {
			continue
		}
		c := cmp.Or(groups[name], &NodeCount{Of: name})
		if booting := int(g.Status.Machines) - c.Nodes; booting > 0 {
			c.Nodes, c.Joining, groups[name] = c.Nodes+booting, c.Joining+booting, c
		}
	}
	slices.SortFunc(out.Nodes, func(a, b NodeLine) int { return cmp.Or(strings.Compare(a.Group, b.Group), inNumbers(a.Name, b.Name)) })
	out.Groups, out.Racks, out.ClusterQueues = counted(groups), counted(racks), counted(queues)
	return out
}

// ExplainNode returns the state of a node, why it is closed or broken, which of its devices have a taint, and its jobs. The node must
// exist.
func (p *Picture) ExplainNode(name string) *Explanation {
	n := p.Snapshot.Nodes.Find(name)
	l := p.nodeLine(n)
	out := &Explanation{Kind: "Node", Name: name, Summary: "is " + strings.ToLower(string(l.State)), Devices: l.Devices,
		Jobs: slices.Sorted(maps.Keys(p.jobsOnNodes()[name]))}
	if l.Group != "" {
		out.Summary += ", in NodeGroup " + l.Group
	}
	_, out.Causes = p.nodeTroubles(n)
	return out
}

// nodeLine describes a node without its jobs.
func (p *Picture) nodeLine(n *state.Node) NodeLine {
	l := NodeLine{Name: n.Name, Group: n.Group}
	state, words := p.nodeTroubles(n)
	l.State, l.Words = state, strings.Join(words, "; ")
	for _, name := range n.Allocatable.Names() {
		d := NodeDevices{Resource: name, Capacity: n.Allocatable[name]}
		if !nodegroups.Extended(name) || d.Capacity <= 0 {
			continue
		}
		if l.State == Free || l.State == Used || l.State == Booked {
			d.Free = n.Free[name]
			for i := range n.Bookings {
				d.Free -= n.Bookings[i].Remaining[name]
			}
		}
		d.Free = max(0, d.Free)
		if n.Published != nil && n.Published.Amounts()[name] > 0 {
			d.Capacity = fit.DevicesIn(d.Capacity)
			d.Free = min(fit.DevicesIn(d.Free), d.Capacity)
		}
		l.Devices = append(l.Devices, d)
	}
	var flavors []kueue.ResourceFlavorReference
	topologies := map[string]*kueue.Topology{}
	for name, f := range p.Queues.Flavors {
		if labels.SelectorFromSet(f.Spec.NodeLabels).Matches(labels.Set(n.Labels)) {
			flavors = append(flavors, name)
			if t := p.Queues.TopologyOf(name); t != nil {
				topologies[t.Name] = t
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(topologies)) {
		if domain := domainOf(n, topologies[name]); len(domain) > 0 {
			l.Racks = append(l.Racks, NodeRack{name, domain})
		}
	}
	for _, cq := range p.ClusterQueues {
		if slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
			return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return slices.Contains(flavors, f.Name) })
		}) {
			l.ClusterQueues = append(l.ClusterQueues, cq.Name)
		}
	}
	slices.Sort(l.ClusterQueues)
	return l
}

// domainOf returns the domain of the Topology above the node that it is in; nil if it lacks a label, or if there is no level above.
func domainOf(n *state.Node, t *kueue.Topology) (domain []string) {
	for _, level := range cache.Levels(t) {
		value, ok := n.Labels[level]
		switch {
		case !ok:
			return nil
		case level != corev1.LabelHostname:
			domain = append(domain, value)
		}
	}
	return domain
}

// nodeTroubles returns the state of a node, why it is closed or broken, and which of its devices have a taint.
func (p *Picture) nodeTroubles(n *state.Node) (NodeState, []string) {
	state, why := p.nodeState(n)
	return state, slices.DeleteFunc([]string{why, taintedOn(n)}, func(s string) bool { return s == "" })
}

// nodeState returns the state of a node, and why it is closed or broken.
func (p *Picture) nodeState(n *state.Node) (NodeState, string) {
	switch {
	case n.Ended:
		return Broken, "its machine has ended; the Node object is left"
	case n.Cordon == state.Joining || n.InFlight && !n.Ready:
		return Joining, ""
	case !n.Ready && n.UnreadySince.IsZero():
		return Broken, "it is not Ready"
	case !n.Ready:
		return Broken, fmt.Sprintf("it has not been Ready for %s", ago(p.Now, n.UnreadySince))
	case n.Pods > 0 && n.Blocked == n.Pods:
		return Broken, "none of its pods can start"
	case n.Notice != "":
		return Closed, "its machine is about to be interrupted: " + n.Notice
	case n.Cordon == state.ScalingDown:
		return Closed, "it is being scaled down"
	case n.Cordon == state.Foreign:
		return Closed, "it is cordoned, not by Muster; `kubectl uncordon " + n.Name + "` opens it"
	case n.Pods > len(n.Strays):
		return Used, ""
	case len(n.Bookings) > 0 || n.InFlight || n.Cordon == state.Held:
		return Booked, ""
	}
	return Free, ""
}

// jobsOnNodes are the jobs that have booked each node or have pods there, by the names of the nodes.
func (p *Picture) jobsOnNodes() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(node, namespace, job string) {
		if out[node] == nil {
			out[node] = map[string]bool{}
		}
		out[node][namespace+"/"+job] = true
	}
	byName, byUID := map[string]string{}, map[types.UID]string{}
	for _, w := range p.Workloads {
		byName[w.Namespace+"/"+w.Name], byUID[w.UID] = history.NameOf(w), history.NameOf(w)
	}
	for _, r := range p.Requests {
		job := "provisioningrequest/" + r.Name
		if owner := metav1.GetControllerOf(r); owner != nil {
			job = cmp.Or(byUID[owner.UID], job)
		}
		for n := range p.Snapshot.Nodes.BookedBy(r.UID) {
			add(n.Name, r.Namespace, job)
		}
	}
	for _, pod := range p.Pods {
		owner := metav1.GetControllerOf(pod)
		if !placement.IsBoundAndRunning(pod) || owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") {
			continue
		}
		job := byName[pod.Namespace+"/"+pod.Annotations[kueue.WorkloadAnnotation]]
		switch {
		case job != "":
		case owner != nil:
			job = strings.ToLower(owner.Kind) + "/" + owner.Name
		default:
			job = "pod/" + pod.Name
		}
		add(pod.Spec.NodeName, pod.Namespace, job)
	}
	return out
}

// count adds a node to the count of that name.
func count(in map[string]*NodeCount, name string, l *NodeLine) {
	c := in[name]
	if c == nil {
		c = &NodeCount{Of: name}
		in[name] = c
	}
	c.Nodes++
	switch l.State {
	case Free:
		c.Free++
	case Used:
		c.Used++
	case Booked:
		c.Booked++
	case Joining:
		c.Joining++
	case Closed:
		c.Closed++
	case Broken:
		c.Broken++
	}
	for _, d := range l.Devices {
		i := slices.IndexFunc(c.Devices, func(o NodeDevices) bool { return o.Resource == d.Resource })
		if i < 0 {
			c.Devices = append(c.Devices, d)
			continue
		}
		c.Devices[i].Capacity, c.Devices[i].Free = c.Devices[i].Capacity+d.Capacity, c.Devices[i].Free+d.Free
	}
}

// counted are the counts by name.
func counted(of map[string]*NodeCount) []NodeCount {
	out := []NodeCount{}
	for _, name := range slices.SortedFunc(maps.Keys(of), inNumbers) {
		slices.SortFunc(of[name].Devices, func(a, b NodeDevices) int { return cmp.Compare(a.Resource, b.Resource) })
		out = append(out, *of[name])
	}
	return out
}
