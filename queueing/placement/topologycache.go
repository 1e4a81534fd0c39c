package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Flavor is a ResourceFlavor with the levels of its Topology.
type Flavor struct {
	Name       kueue.ResourceFlavorReference
	NodeLabels map[string]string
	Topology   string
	Levels     []string
}

// Usage is the usage of the pods of one podSet in the domains of a flavor.
type Usage struct {
	Flavor  kueue.ResourceFlavorReference
	Domains []Domain
	// Pod is the request of each pod.
	Pod nodegroups.Resources
}

// TopologyCache keeps one Tree for each flavor with a Topology. Nodes, pods and the topology assignments of Workloads
// update it. It is not safe for concurrent use.
type TopologyCache struct {
	trees map[kueue.ResourceFlavorReference]*flavorTree
	nodes map[string]*nodeInfo
	// hosts indexes nodes by the label kubernetes.io/hostname, which topology domains refer to. It may differ from the
	// name of the node.
	hosts map[string]*nodeInfo
	// deleted maps the hosts of deleted nodes to their provider IDs; see DeletedNodes.
	deleted map[string]string
	pods    map[types.UID]*podInfo
	// podsByWorkload indexes pods by the Workload that their annotation names.
	podsByWorkload map[types.NamespacedName]map[types.UID]*podInfo
	// usage is the usage of Workloads with a topology assignment. It counts for their pods, wherever these run and
	// whether or not they exist yet.
	usage map[types.NamespacedName][]Usage
	// outdated are the nodes that have changed since the last refresh of the trees.
	outdated map[string]bool
	// partial reports whether the cache has only some nodes of the cluster. The usage of an assignment to a domain of
	// several nodes may then be on nodes outside the cache, so pods are charged to the nodes that they run on.
	partial bool
	// freed: capacity was freed, or a node may fit more pods than before. nodeChanged: a node has changed. podEnded: a
	// pod of a Workload has ended. suspectHosts are hosts whose assigned pods may have lost them; checkAll extends
	// that to every host.
	freed, nodeChanged, podEnded bool
	suspectHosts                 map[string]bool
	checkAll                     bool
}

// flavorTree is the Tree of a flavor.
type flavorTree struct {
	Flavor
	*Tree
}

// nodeInfo is a node with the pods on it.
type nodeInfo struct {
	object *corev1.Node
	// host is the last value of the node's label kubernetes.io/hostname.
	host string
	pods map[types.UID]*podInfo
	// devices are those that pods on the node can claim.
	devices nodegroups.Resources
	// free is the free capacity of the node in the trees; nil if the trees leave the node out.
	free nodegroups.Resources
}

// podInfo is a pod on a node.
type podInfo struct {
	node     string
	requests nodegroups.Resources
	// workload and podSet come from the annotations of the pod; empty if it has none.
	workload types.NamespacedName
	podSet   string
	// terminating: the pod is being deleted. If no kubelet answers, it never ends.
	terminating bool
}

// NewTopologyCache returns an empty TopologyCache.
func NewTopologyCache() *TopologyCache {
	return &TopologyCache{
		trees: map[kueue.ResourceFlavorReference]*flavorTree{}, nodes: map[string]*nodeInfo{}, hosts: map[string]*nodeInfo{},
		deleted:        map[string]string{},
		pods:           map[types.UID]*podInfo{},
		podsByWorkload: map[types.NamespacedName]map[types.UID]*podInfo{},
		usage:          map[types.NamespacedName][]Usage{}, outdated: map[string]bool{}, suspectHosts: map[string]bool{},
	}
}

// Clone returns a cache of the same nodes and pods, without flavors and Workloads.
func (c *TopologyCache) Clone() *TopologyCache {
	out := NewTopologyCache()
	out.pods, out.deleted = maps.Clone(c.pods), maps.Clone(c.deleted)
	for w, pods := range c.podsByWorkload {
		out.podsByWorkload[w] = maps.Clone(pods)
	}
	for name, s := range c.nodes {
		clone := &nodeInfo{object: s.object, host: s.host, pods: maps.Clone(s.pods), devices: s.devices}
		out.nodes[name], out.outdated[name] = clone, true
		if c.hosts[s.host] == s {
			out.hosts[s.host] = clone
		}
	}
	return out
}

// SetFlavors replaces the trees. The keys are the node labels that Workloads may select on.
func (c *TopologyCache) SetFlavors(flavors []Flavor, keys []string) {
	c.trees = map[kueue.ResourceFlavorReference]*flavorTree{}
	for _, flavor := range flavors {
		c.trees[flavor.Name] = &flavorTree{flavor, NewTree(flavor.Topology, flavor.Levels, keys)}
	}
	for name, s := range c.nodes {
		s.free, c.outdated[name] = nil, true
	}
	for _, uses := range c.usage {
		c.addUsage(uses, 1, func(p *flavorTree) bool { return p.hosts || !c.partial })
	}
}

// Tree returns the tree of a flavor; nil if the flavor has no Topology.
func (c *TopologyCache) Tree(flavor kueue.ResourceFlavorReference) *Tree {
	p := c.trees[flavor]
	if p == nil {
		return nil
	}
	c.refresh()
	return p.Tree
}

// CapacityFreed reports whether, since the last call, capacity was freed or a node began to fit pods that it did not
// fit before.
func (c *TopologyCache) CapacityFreed() bool {
	c.refresh()
	out := c.freed
	c.freed = false
	return out
}

// MarkAllChanged makes the next calls of CapacityFreed, NodeChanged and SuspectWorkloads report a change of every node.
func (c *TopologyCache) MarkAllChanged() { c.freed, c.nodeChanged, c.checkAll = true, true, true }

// SuspectWorkloads returns the Workloads that may have lost a node since the last call.
func (c *TopologyCache) SuspectWorkloads() (out []types.NamespacedName) {
	c.refresh()
	if len(c.suspectHosts) == 0 && !c.checkAll {
		return nil
	}
	for w, uses := range c.usage {
		if slices.ContainsFunc(uses, func(u Usage) bool {
			return slices.ContainsFunc(u.Domains, func(d Domain) bool { return c.checkAll || c.suspectHosts[d.Values[len(d.Values)-1]] })
		}) {
			out = append(out, w)
		}
	}
	c.checkAll = false
	clear(c.suspectHosts)
	return out
}

// LostHosts returns the hosts of a Workload's assignment that it can no longer use: the node is gone, or it is not
// Ready or has a taint that evicts the pods, and none of the Workload's pods still runs there without being deleted.
// Evicts reports whether a taint evicts the pods.
func (c *TopologyCache) LostHosts(w types.NamespacedName, uses []Usage, evicts func(*corev1.Taint) bool) map[string]bool {
	out := map[string]bool{}
	for _, u := range uses {
		if own := c.trees[u.Flavor]; own == nil || !own.hosts {
			continue
		}
		for _, d := range u.Domains {
			if host := d.Values[0]; c.isLost(c.hosts[host], w, evicts) {
				out[host] = true
			}
		}
	}
	return out
}

func (c *TopologyCache) isLost(s *nodeInfo, w types.NamespacedName, evicts func(*corev1.Taint) bool) bool {
	if s == nil || s.object == nil {
		return true
	}
	if isReady(s.object) && !slices.ContainsFunc(evictions(s.object), evicts) {
		return false
	}
	for _, r := range c.podsByWorkload[w] {
		if c.nodes[r.node] == s && !r.terminating {
			return false
		}
	}
	return true
}

// suspectNode records a node that is missing, not Ready or has NoExecute taints, so that the Workloads assigned to it
// are checked.
func (c *TopologyCache) suspectNode(s *nodeInfo) {
	if s.object == nil || !isReady(s.object) || len(evictions(s.object)) > 0 {
		c.suspectHosts[s.host] = true
	}
}

// evictions returns the NoExecute taints of a node. It leaves out the taints not-ready and unreachable, which only
// repeat the Ready condition.
func evictions(n *corev1.Node) (out []*corev1.Taint) {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable {
			out = append(out, t)
		}
	}
	return out
}

// DeletedNodes returns the provider IDs of deleted nodes that pods are still assigned to, by host.
func (c *TopologyCache) DeletedNodes() map[string]string {
	if len(c.deleted) == 0 {
		return nil
	}
	assigned := map[string]bool{}
	for _, uses := range c.usage {
		for _, u := range uses {
			for _, d := range u.Domains {
				assigned[d.Values[len(d.Values)-1]] = true
			}
		}
	}
	maps.DeleteFunc(c.deleted, func(host, _ string) bool { return !assigned[host] })
	return c.deleted
}

// HasHost reports whether the node of a host exists.
func (c *TopologyCache) HasHost(host string) bool { return c.hosts[host] != nil }

// NodeChanged reports whether a node has changed since the last call.
func (c *TopologyCache) NodeChanged() bool {
	out := c.nodeChanged
	c.nodeChanged = false
	return out
}

// PodEnded reports whether a pod of a Workload has ended since the last call.
func (c *TopologyCache) PodEnded() bool {
	out := c.podEnded
	c.podEnded = false
	return out
}

// WithoutEnded removes the given number of ended pods from the usage of a podSet. Ended pods do not say where they ran,
// so it removes them from the domains that have fewer running pods than assigned ones.
func (c *TopologyCache) WithoutEnded(w types.NamespacedName, podSet string, use Usage, ended int32) Usage {
	p := c.trees[use.Flavor]
	if ended <= 0 || p == nil {
		return use
	}
	running := map[string]int32{}
	for _, r := range c.podsByWorkload[w] {
		s := c.nodes[r.node]
		if s.object == nil || r.podSet != "" && r.podSet != podSet {
			continue
		}
		if values := p.valuesOf(s.object); values != nil {
			running[p.id(values)]++
		}
	}
	out := Usage{Flavor: use.Flavor, Pod: use.Pod}
	for _, d := range use.Domains {
		free := min(ended, max(0, d.Count-running[p.id(d.Values)]))
		ended -= free
		if d.Count -= free; d.Count > 0 {
			out.Domains = append(out.Domains, d)
		}
	}
	return out
}

// SetNode adds or replaces a node.
func (c *TopologyCache) SetNode(n *corev1.Node) {
	s := c.nodeInfo(n.Name)
	if s.object == nil || !SameNode(s.object, n) {
		c.outdated[n.Name], c.nodeChanged = true, true
		c.freed = c.freed || s.object != nil && mayFitMorePods(s.object, n)
	}
	s.object = n
	if host := n.Labels[corev1.LabelHostname]; host != s.host {
		c.removeHost(s)
		s.host = host
	}
	if s.host != "" {
		c.hosts[s.host] = s
		delete(c.deleted, s.host)
	}
}

// SetDevices sets the devices that pods on a node can claim; the node need not exist yet.
func (c *TopologyCache) SetDevices(node string, devices nodegroups.Resources) {
	s := c.nodeInfo(node)
	if maps.Equal(s.devices, devices) {
		return
	}
	s.devices = devices
	c.outdated[node], c.nodeChanged = true, true
}

// removeHost removes the host of a node that no longer exists.
func (c *TopologyCache) removeHost(s *nodeInfo) {
	if c.hosts[s.host] == s {
		delete(c.hosts, s.host)
		c.suspectHosts[s.host] = true
	}
}

// SameNode reports whether two versions of a node are equal in all fields that the cache uses.
func SameNode(a, b *corev1.Node) bool {
	// A cordoned node is not schedulable, and it is lost once it is not Ready.
	return a.Spec.Unschedulable == b.Spec.Unschedulable && isReady(a) == isReady(b) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) && equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// mayFitMorePods reports whether a node may fit pods that it did not fit before, although its free capacity is the
// same: a label changed, other than those that Muster sets to book the node, or a taint was removed.
func mayFitMorePods(before, now *corev1.Node) bool {
	labels := func(n *corev1.Node) map[string]string {
		out := maps.Clone(n.Labels)
		maps.DeleteFunc(out, func(key, _ string) bool {
			return key == v1alpha1.HeldLabel || strings.HasPrefix(key, v1alpha1.BookedLabelPrefix)
		})
		return out
	}
	return !maps.Equal(labels(before), labels(now)) || slices.ContainsFunc(before.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key != corev1.TaintNodeUnschedulable &&
			!slices.ContainsFunc(now.Spec.Taints, func(o corev1.Taint) bool { return o.ToString() == t.ToString() })
	})
}

// DeleteNode removes a node.
func (c *TopologyCache) DeleteNode(name string) {
	s := c.nodes[name]
	if s == nil {
		return
	}
	if s.object != nil && c.hosts[s.host] == s {
		c.deleted[s.host] = s.object.Spec.ProviderID
	}
	s.object = nil
	c.removeHost(s)
	c.outdated[name], c.nodeChanged = true, true
}

func (c *TopologyCache) nodeInfo(name string) *nodeInfo {
	s := c.nodes[name]
	if s == nil {
		s = &nodeInfo{pods: map[types.UID]*podInfo{}}
		c.nodes[name] = s
	}
	return s
}

// SetPod adds or updates a pod; podSet is empty if the pod belongs to none. The pod counts while it is bound and has
// not ended.
func (c *TopologyCache) SetPod(p *corev1.Pod, podSet string, requests func(*corev1.PodSpec) nodegroups.Resources) {
	if !IsBoundAndRunning(p) {
		c.DeletePod(p.UID)
		return
	}
	if r := c.pods[p.UID]; r != nil {
		// The node and the owner of a pod never change; an in-place resize changes its requests.
		if now := requests(&p.Spec); !maps.Equal(r.requests, now) {
			r.requests = now
			if !c.isAssigned(r) {
				c.outdated[r.node] = true
			}
		}
		if leaving := !p.DeletionTimestamp.IsZero(); leaving && !r.terminating {
			r.terminating = true
			c.suspectNode(c.nodes[r.node])
		}
		return
	}
	r := &podInfo{node: p.Spec.NodeName, requests: requests(&p.Spec), podSet: podSet, terminating: !p.DeletionTimestamp.IsZero()}
	if name := p.Annotations[kueue.WorkloadAnnotation]; name != "" {
		r.workload = types.NamespacedName{Namespace: p.Namespace, Name: name}
		if c.podsByWorkload[r.workload] == nil {
			c.podsByWorkload[r.workload] = map[types.UID]*podInfo{}
		}
		c.podsByWorkload[r.workload][p.UID] = r
	}
	c.pods[p.UID] = r
	c.nodeInfo(r.node).pods[p.UID] = r
	if !c.isAssigned(r) {
		c.outdated[r.node] = true
	}
}

// IsBoundAndRunning reports whether a pod is bound to a node and has not ended.
func IsBoundAndRunning(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// DeletePod removes a pod.
func (c *TopologyCache) DeletePod(uid types.UID) {
	r := c.pods[uid]
	if r == nil {
		return
	}
	delete(c.pods, uid)
	s := c.nodes[r.node]
	delete(s.pods, uid)
	c.suspectNode(s)
	if pods := c.podsByWorkload[r.workload]; pods != nil {
		c.podEnded = true
		if delete(pods, uid); len(pods) == 0 {
			delete(c.podsByWorkload, r.workload)
		}
	}
	if !c.isAssigned(r) {
		c.outdated[r.node] = true
	}
}

// NodeOfPod returns the node of a bound pod; empty if there is none.
func (c *TopologyCache) NodeOfPod(pod types.UID) string {
	if r := c.pods[pod]; r != nil {
		return r.node
	}
	return ""
}

// DeleteWorkloadPods removes the pods that belong to Workloads. A forecast uses it, because its Workloads end without
// events of their pods.
func (c *TopologyCache) DeleteWorkloadPods() {
	for _, pods := range maps.Clone(c.podsByWorkload) {
		for uid := range maps.Clone(pods) {
			c.DeletePod(uid)
		}
	}
}

// isAssigned reports whether a topology assignment of the pod's Workload already counts the pod.
func (c *TopologyCache) isAssigned(r *podInfo) bool {
	return r.workload.Name != "" && len(c.usage[r.workload]) > 0
}

// SetUsage replaces the usage of a Workload's topology assignment; it is empty if the Workload has none.
func (c *TopologyCache) SetUsage(w types.NamespacedName, uses []Usage) {
	before := c.usage[w]
	if slices.EqualFunc(before, uses, Usage.equal) {
		return
	}
	c.AddUsage(before, -1)
	c.AddUsage(uses, 1)
	c.freed = c.freed || len(before) > 0
	if len(uses) > 0 {
		c.usage[w] = uses
	} else {
		delete(c.usage, w)
	}
	if (len(before) > 0) == (len(uses) > 0) {
		return
	}
	for _, r := range c.podsByWorkload[w] {
		c.outdated[r.node] = true
	}
}

func (u Usage) equal(o Usage) bool {
	return u.Flavor == o.Flavor && maps.Equal(u.Pod, o.Pod) && slices.EqualFunc(u.Domains, o.Domains, func(a, b Domain) bool {
		return a.Count == b.Count && slices.Equal(a.Values, b.Values)
	})
}

// AddUsage adds the usage n times to the trees. Simulations call it again with -n.
func (c *TopologyCache) AddUsage(uses []Usage, n int) {
	c.addUsage(uses, n, func(*flavorTree) bool { return true })
}

func (c *TopologyCache) addUsage(uses []Usage, n int, to func(*flavorTree) bool) {
	for _, u := range uses {
		own := c.trees[u.Flavor]
		for _, p := range c.trees {
			// A node may belong to several flavors. Domains of several nodes exist only in the tree of their own
			// flavor.
			if to(p) && (p == own || p.hosts && own != nil && own.hosts) {
				p.AddUsage(u.Domains, u.Pod, n)
			}
		}
	}
}

// Fits reports whether all of the usage fits at once.
func (c *TopologyCache) Fits(uses []Usage) bool {
	fits := true
	n := 0
	for ; n < len(uses) && fits; n++ {
		t := c.Tree(uses[n].Flavor)
		fits = t != nil && t.Snapshot().Fits(uses[n].Domains, uses[n].Pod)
		c.AddUsage(uses[n:n+1], 1)
	}
	c.AddUsage(uses[:n], -1)
	return fits
}

// refresh updates the trees with all outdated nodes.
func (c *TopologyCache) refresh() {
	for _, name := range slices.Sorted(maps.Keys(c.outdated)) {
		s := c.nodes[name]
		free := c.freeOn(s)
		c.freed = c.freed || free != nil && !within(free, s.free)
		s.free = free
		c.suspectNode(s)
		for _, p := range c.trees {
			if free == nil || !selects(p.NodeLabels, s.object.Labels) {
				p.DeleteNode(name)
			} else {
				p.SetNode(s.object, c.freeIn(p, s))
			}
		}
		if s.object == nil && len(s.pods)+len(s.devices) == 0 {
			delete(c.nodes, name)
		}
	}
	clear(c.outdated)
}

// freeOn returns the free capacity of a node for pods with an assignment; nil if the node is not schedulable.
func (c *TopologyCache) freeOn(s *nodeInfo) nodegroups.Resources {
	if s.object == nil || !schedulable(s.object) {
		return nil
	}
	out := s.capacity()
	for _, r := range s.pods {
		if !c.isAssigned(r) {
			out.Sub(withPod(r.requests), 1)
		}
	}
	return out
}

// capacity returns what the node offers. Where a device plugin offers a resource, its devices are not claimed.
func (s *nodeInfo) capacity() nodegroups.Resources {
	out := nodegroups.ResourcesFrom(s.object.Status.Allocatable)
	for name, n := range s.devices {
		if out[name] == 0 {
			out[name] = n
		}
	}
	return out
}

// freeIn returns the free capacity of a node in the tree of a flavor.
func (c *TopologyCache) freeIn(p *flavorTree, s *nodeInfo) nodegroups.Resources {
	out := s.free.Clone()
	for _, r := range s.pods {
		if c.partial && !p.hosts && c.isAssigned(r) {
			out.Sub(withPod(r.requests), 1)
		}
	}
	return out
}

// ForNodes returns a cache of the chosen nodes, which need not be schedulable yet, less what is reserved on them. It is
// valid until the original changes.
func (c *TopologyCache) ForNodes(chosen func(*corev1.Node) (reserved []nodegroups.Resources, ok bool)) *TopologyCache {
	out := NewTopologyCache()
	out.usage, out.partial = c.usage, true
	for name, s := range c.nodes {
		if s.object == nil {
			continue
		}
		reserved, ok := chosen(s.object)
		if !ok {
			continue
		}
		n := *s.object
		n.Spec.Unschedulable = false
		n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints),
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		pods := maps.Clone(s.pods)
		for i, r := range reserved {
			pods[types.UID(strconv.Itoa(i))] = &podInfo{node: name, requests: r}
		}
		out.nodes[name] = &nodeInfo{object: &n, host: s.host, pods: pods, devices: s.devices}
		out.hosts[s.host] = out.nodes[name]
	}
	var flavors []Flavor
	var keys []string
	for _, p := range c.trees {
		flavors, keys = append(flavors, p.Flavor), p.keys
	}
	out.SetFlavors(flavors, keys)
	return out
}

// schedulable reports whether a node is Ready and not cordoned.
func schedulable(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && isReady(n)
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// within reports whether a has no more than b of every resource.
func within(a, b nodegroups.Resources) bool {
	for name, v := range a {
		if v > b[name] {
			return false
		}
	}
	return true
}

// RequestsTopology reports whether a podSet requests a topology. A request without a level only names the labels that
// number the pods.
func RequestsTopology(r *kueue.PodSetTopologyRequest) bool {
	return r != nil && (r.Required != nil || r.Preferred != nil || r.Unconstrained != nil && *r.Unconstrained || len(layersOf(r)) > 0)
}

// SameGroup reports whether two podSets must be placed together.
func SameGroup(a, b *kueue.PodSetTopologyRequest) bool {
	return a != nil && b != nil && a.PodSetGroupName != nil && b.PodSetGroupName != nil && *a.PodSetGroupName == *b.PodSetGroupName
}
