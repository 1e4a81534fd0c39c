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

// Use is where pods of one podSet are.
type Use struct {
	Flavor  kueue.ResourceFlavorReference
	Domains []Domain
	// Pod is what each of them requests.
	Pod nodegroups.Resources
}

// Forest has a tree for each flavor with a Topology, kept up to date by the nodes, the pods on them
// and the Workloads that have an assignment. It is for one goroutine at a time.
type Forest struct {
	trees map[kueue.ResourceFlavorReference]*planted
	nodes map[string]*site
	// hosts are the nodes by their label kubernetes.io/hostname, by which domains name them. It may differ from
	// the name of the node.
	hosts map[string]*site
	// left are the provider IDs of nodes that have gone, by host; see Gone.
	left map[string]string
	pods map[types.UID]*resident
	// crews are the pods of each Workload that pods name.
	crews map[types.NamespacedName]map[types.UID]*resident
	// held are the uses of Workloads that have an assignment. Their pods count by it, wherever they
	// are and whether they exist yet.
	held map[types.NamespacedName][]Use
	// outdated are the nodes that the trees do not show as they are.
	outdated map[string]bool
	// part reports whether the forest has only some nodes of the cluster. The usage of assignments in a domain of several nodes may then be on
	// other nodes, so pods are charged to the nodes that they run on.
	part bool
	// grown: something was freed, or suits others now. changed: a node has changed. failed are hosts that may be lost to the pods that are
	// assigned to them; reread says that any may be.
	// ended: a pod of a Workload has ended.
	grown, changed, ended bool
	failed                map[string]bool
	reread                bool
}

// planted is the tree of a flavor.
type planted struct {
	Flavor
	*Tree
}

// site is a node and the pods on it.
type site struct {
	object *corev1.Node
	// host is the last host name that the node had.
	host string
	pods map[types.UID]*resident
	// free is as the trees show it; nil where they do not show the node.
	free nodegroups.Resources
}

// resident is a pod on a node.
type resident struct {
	node     string
	requests nodegroups.Resources
	// workload and podSet are those that the pod says it is of; empty for none.
	workload types.NamespacedName
	podSet   string
	// leaving: it was told to stop. Where no kubelet answers, it never ends.
	leaving bool
}

// NewForest returns one without trees.
func NewForest() *Forest {
	return &Forest{
		trees: map[kueue.ResourceFlavorReference]*planted{}, nodes: map[string]*site{}, hosts: map[string]*site{},
		left:  map[string]string{},
		pods:  map[types.UID]*resident{},
		crews: map[types.NamespacedName]map[types.UID]*resident{},
		held:  map[types.NamespacedName][]Use{}, outdated: map[string]bool{}, failed: map[string]bool{},
	}
}

// Clone returns a forest of the same nodes and pods, without trees and Workloads.
func (f *Forest) Clone() *Forest {
	out := NewForest()
	out.pods, out.left = maps.Clone(f.pods), maps.Clone(f.left)
	for w, crew := range f.crews {
		out.crews[w] = maps.Clone(crew)
	}
	for name, s := range f.nodes {
		clone := &site{object: s.object, host: s.host, pods: maps.Clone(s.pods)}
		out.nodes[name], out.outdated[name] = clone, true
		if f.hosts[s.host] == s {
			out.hosts[s.host] = clone
		}
	}
	return out
}

// Plant replaces the trees by those of these flavors. Nodes are told apart by these labels.
func (f *Forest) Plant(flavors []Flavor, keys []string) {
	f.trees = map[kueue.ResourceFlavorReference]*planted{}
	for _, flavor := range flavors {
		f.trees[flavor.Name] = &planted{flavor, NewTree(flavor.Topology, flavor.Levels, keys)}
	}
	for name, s := range f.nodes {
		s.free, f.outdated[name] = nil, true
	}
	for _, uses := range f.held {
		f.add(uses, 1, func(p *planted) bool { return p.hosts || !f.part })
	}
}

// Tree of a flavor; nil where it has no Topology.
func (f *Forest) Tree(flavor kueue.ResourceFlavorReference) *Tree {
	p := f.trees[flavor]
	if p == nil {
		return nil
	}
	f.refresh()
	return p.Tree
}

// Grown reports whether something was freed since the last call, or suits pods that it did not suit before.
func (f *Forest) Grown() bool {
	f.refresh()
	out := f.grown
	f.grown = false
	return out
}

// Refilled says that all there is may be looked at again.
func (f *Forest) Refilled() { f.grown, f.changed, f.reread = true, true, true }

// Suspects are the Workloads of whose nodes some may have been lost since the last call.
func (f *Forest) Suspects() (out []types.NamespacedName) {
	f.refresh()
	if len(f.failed) == 0 && !f.reread {
		return nil
	}
	for w, uses := range f.held {
		if slices.ContainsFunc(uses, func(u Use) bool {
			return slices.ContainsFunc(u.Domains, func(d Domain) bool { return f.reread || f.failed[d.Values[len(d.Values)-1]] })
		}) {
			out = append(out, w)
		}
	}
	f.reread = false
	clear(f.failed)
	return out
}

// Lost are the hosts of a Workload's uses that are gone, and those that are not Ready or evict its pods and have none of it but such as
// were told to stop. Evicts reports whether a taint does.
func (f *Forest) Lost(w types.NamespacedName, uses []Use, evicts func(*corev1.Taint) bool) map[string]bool {
	out := map[string]bool{}
	for _, u := range uses {
		if own := f.trees[u.Flavor]; own == nil || !own.hosts {
			continue
		}
		for _, d := range u.Domains {
			if host := d.Values[0]; f.isLost(f.hosts[host], w, evicts) {
				out[host] = true
			}
		}
	}
	return out
}

func (f *Forest) isLost(s *site, w types.NamespacedName, evicts func(*corev1.Taint) bool) bool {
	if s == nil || s.object == nil {
		return true
	}
	if isReady(s.object) && !slices.ContainsFunc(evictions(s.object), evicts) {
		return false
	}
	for _, r := range f.crews[w] {
		if f.nodes[r.node] == s && !r.leaving {
			return false
		}
	}
	return true
}

// suspect has the Workloads with places on a node looked at that may be lost to them.
func (f *Forest) suspect(s *site) {
	if s.object == nil || !isReady(s.object) || len(evictions(s.object)) > 0 {
		f.failed[s.host] = true
	}
}

// evictions are the taints of a node by which pods are evicted. Those that say that it is not Ready, or was not until now, say no more
// than its condition.
func evictions(n *corev1.Node) (out []*corev1.Taint) {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable {
			out = append(out, t)
		}
	}
	return out
}

// Gone are the provider IDs of nodes that have gone and to which pods are assigned, by host.
func (f *Forest) Gone() map[string]string {
	if len(f.left) == 0 {
		return nil
	}
	assigned := map[string]bool{}
	for _, uses := range f.held {
		for _, u := range uses {
			for _, d := range u.Domains {
				assigned[d.Values[len(d.Values)-1]] = true
			}
		}
	}
	maps.DeleteFunc(f.left, func(host, _ string) bool { return !assigned[host] })
	return f.left
}

// Shows reports whether the node of a host is there.
func (f *Forest) Shows(host string) bool { return f.hosts[host] != nil }

// Changed reports whether a node has changed since the last call.
func (f *Forest) Changed() bool {
	out := f.changed
	f.changed = false
	return out
}

// Ended reports whether a pod of a Workload has ended since the last call.
func (f *Forest) Ended() bool {
	out := f.ended
	f.ended = false
	return out
}

// WithoutEnded are the places of a podSet without those of so many pods that have ended. Which places those had follows from where the
// others run: a place is kept as long as a pod is seen in it.
func (f *Forest) WithoutEnded(w types.NamespacedName, podSet string, use Use, ended int32) Use {
	p := f.trees[use.Flavor]
	if ended <= 0 || p == nil {
		return use
	}
	running := map[string]int32{}
	for _, r := range f.crews[w] {
		s := f.nodes[r.node]
		if s.object == nil || r.podSet != "" && r.podSet != podSet {
			continue
		}
		if values := p.valuesOf(s.object); values != nil {
			running[p.id(values)]++
		}
	}
	out := Use{Flavor: use.Flavor, Pod: use.Pod}
	for _, d := range use.Domains {
		free := min(ended, max(0, d.Count-running[p.id(d.Values)]))
		ended -= free
		if d.Count -= free; d.Count > 0 {
			out.Domains = append(out.Domains, d)
		}
	}
	return out
}

// SetNode puts a node in, in place of the one of its name.
func (f *Forest) SetNode(n *corev1.Node) {
	s := f.site(n.Name)
	if s.object == nil || !SameNode(s.object, n) {
		f.outdated[n.Name], f.changed = true, true
		f.grown = f.grown || s.object != nil && suitsOthers(s.object, n)
	}
	s.object = n
	if host := n.Labels[corev1.LabelHostname]; host != s.host {
		f.leave(s)
		s.host = host
	}
	if s.host != "" {
		f.hosts[s.host] = s
		delete(f.left, s.host)
	}
}

// leave says that the node of a host is not there any more.
func (f *Forest) leave(s *site) {
	if f.hosts[s.host] == s {
		delete(f.hosts, s.host)
		f.failed[s.host] = true
	}
}

// SameNode reports whether two versions of a node are the same to a forest.
func SameNode(a, b *corev1.Node) bool {
	return schedulable(a) == schedulable(b) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) && equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// suitsOthers reports whether a node may suit pods that it did not suit before, though it has no more room: its labels, other than those
// by which Muster books it, have changed, or a taint has gone.
func suitsOthers(before, now *corev1.Node) bool {
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

// DeleteNode takes a node out.
func (f *Forest) DeleteNode(name string) {
	s := f.nodes[name]
	if s == nil {
		return
	}
	if s.object != nil && f.hosts[s.host] == s {
		f.left[s.host] = s.object.Spec.ProviderID
	}
	s.object = nil
	f.leave(s)
	f.outdated[name], f.changed = true, true
}

func (f *Forest) site(name string) *site {
	s := f.nodes[name]
	if s == nil {
		s = &site{pods: map[types.UID]*resident{}}
		f.nodes[name] = s
	}
	return s
}

// SetPod takes in a pod of a podSet, if any, as it is now. It counts while it is bound and has not ended.
func (f *Forest) SetPod(p *corev1.Pod, podSet string, requests func(*corev1.PodSpec) nodegroups.Resources) {
	if !TakesRoom(p) {
		f.DeletePod(p.UID)
		return
	}
	if r := f.pods[p.UID]; r != nil {
		// Neither its node nor its owner changes, while a resize changes what it requests.
		if now := requests(&p.Spec); !maps.Equal(r.requests, now) {
			r.requests = now
			if !f.covers(r) {
				f.outdated[r.node] = true
			}
		}
		if leaving := !p.DeletionTimestamp.IsZero(); leaving && !r.leaving {
			r.leaving = true
			f.suspect(f.nodes[r.node])
		}
		return
	}
	r := &resident{node: p.Spec.NodeName, requests: requests(&p.Spec), podSet: podSet, leaving: !p.DeletionTimestamp.IsZero()}
	if name := p.Annotations[kueue.WorkloadAnnotation]; name != "" {
		r.workload = types.NamespacedName{Namespace: p.Namespace, Name: name}
		if f.crews[r.workload] == nil {
			f.crews[r.workload] = map[types.UID]*resident{}
		}
		f.crews[r.workload][p.UID] = r
	}
	f.pods[p.UID] = r
	f.site(r.node).pods[p.UID] = r
	if !f.covers(r) {
		f.outdated[r.node] = true
	}
}

// TakesRoom reports whether a pod is on a node and has not ended.
func TakesRoom(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// DeletePod takes a pod out.
func (f *Forest) DeletePod(uid types.UID) {
	r := f.pods[uid]
	if r == nil {
		return
	}
	delete(f.pods, uid)
	s := f.nodes[r.node]
	delete(s.pods, uid)
	f.suspect(s)
	if crew := f.crews[r.workload]; crew != nil {
		f.ended = true
		if delete(crew, uid); len(crew) == 0 {
			delete(f.crews, r.workload)
		}
	}
	if !f.covers(r) {
		f.outdated[r.node] = true
	}
}

// NodeOf is the node on which a pod takes room; empty for none.
func (f *Forest) NodeOf(pod types.UID) string {
	if r := f.pods[pod]; r != nil {
		return r.node
	}
	return ""
}

// ForgetCrews takes out the pods that say of which Workload they are, as if they had ended: for a forecast, in which
// Workloads end and their pods are not followed.
func (f *Forest) ForgetCrews() {
	for _, crew := range maps.Clone(f.crews) {
		for uid := range maps.Clone(crew) {
			f.DeletePod(uid)
		}
	}
}

// covers reports whether the pod counts by an assignment.
func (f *Forest) covers(r *resident) bool {
	return r.workload.Name != "" && len(f.held[r.workload]) > 0
}

// Hold takes in where the pods of a Workload are by its assignment; none if it has no assignment any more.
func (f *Forest) Hold(w types.NamespacedName, uses []Use) {
	before := f.held[w]
	if slices.EqualFunc(before, uses, Use.equal) {
		return
	}
	f.Add(before, -1)
	f.Add(uses, 1)
	f.grown = f.grown || len(before) > 0
	if len(uses) > 0 {
		f.held[w] = uses
	} else {
		delete(f.held, w)
	}
	if (len(before) > 0) == (len(uses) > 0) {
		return
	}
	for _, r := range f.crews[w] {
		f.outdated[r.node] = true
	}
}

func (u Use) equal(o Use) bool {
	return u.Flavor == o.Flavor && maps.Equal(u.Pod, o.Pod) && slices.EqualFunc(u.Domains, o.Domains, func(a, b Domain) bool {
		return a.Count == b.Count && slices.Equal(a.Values, b.Values)
	})
}

// Add adds n times these uses to the trees: for trials, which are to be undone.
func (f *Forest) Add(uses []Use, n int) {
	f.add(uses, n, func(*planted) bool { return true })
}

func (f *Forest) add(uses []Use, n int, to func(*planted) bool) {
	for _, u := range uses {
		own := f.trees[u.Flavor]
		for _, p := range f.trees {
			// A node may be of several flavors. Other domains are known by the values of their own tree.
			if to(p) && (p == own || p.hosts && own != nil && own.hosts) {
				p.Use(u.Domains, u.Pod, n)
			}
		}
	}
}

// Fits reports whether there is room for all of these uses together.
func (f *Forest) Fits(uses []Use) bool {
	fits := true
	n := 0
	for ; n < len(uses) && fits; n++ {
		t := f.Tree(uses[n].Flavor)
		fits = t != nil && t.View().Fits(uses[n].Domains, uses[n].Pod)
		f.Add(uses[n:n+1], 1)
	}
	f.Add(uses[:n], -1)
	return fits
}

// refresh has the trees show the nodes as they are.
func (f *Forest) refresh() {
	for _, name := range slices.Sorted(maps.Keys(f.outdated)) {
		s := f.nodes[name]
		free := f.freeOn(s)
		f.grown = f.grown || free != nil && !within(free, s.free)
		s.free = free
		f.suspect(s)
		for _, p := range f.trees {
			if free == nil || !selects(p.NodeLabels, s.object.Labels) {
				p.DeleteNode(name)
			} else {
				p.SetNode(s.object, f.freeIn(p, s))
			}
		}
		if s.object == nil && len(s.pods) == 0 {
			delete(f.nodes, name)
		}
	}
	clear(f.outdated)
}

// freeOn is what a node has for pods with an assignment; nil where it takes no pods.
func (f *Forest) freeOn(s *site) nodegroups.Resources {
	if s.object == nil || !schedulable(s.object) {
		return nil
	}
	out := nodegroups.ResourcesFrom(s.object.Status.Allocatable)
	for _, r := range s.pods {
		if !f.covers(r) {
			out.Sub(withPod(r.requests), 1)
		}
	}
	return out
}

// freeIn returns what a node has free in a tree.
func (f *Forest) freeIn(p *planted, s *site) nodegroups.Resources {
	out := s.free.Clone()
	for _, r := range s.pods {
		if f.part && !p.hosts && f.covers(r) {
			out.Sub(withPod(r.requests), 1)
		}
	}
	return out
}

// Among is a forest of these nodes alone, whether or not they take pods yet, less what is reserved on
// them. It is valid until the forest changes.
func (f *Forest) Among(chosen func(*corev1.Node) (reserved []nodegroups.Resources, ok bool)) *Forest {
	out := NewForest()
	out.held, out.part = f.held, true
	for name, s := range f.nodes {
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
			pods[types.UID(strconv.Itoa(i))] = &resident{node: name, requests: r}
		}
		out.nodes[name] = &site{object: &n, host: s.host, pods: pods}
		out.hosts[s.host] = out.nodes[name]
	}
	var flavors []Flavor
	var keys []string
	for _, p := range f.trees {
		flavors, keys = append(flavors, p.Flavor), p.keys
	}
	out.Plant(flavors, keys)
	return out
}

// schedulable reports whether a node takes pods at all.
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

// within reports whether a is no more than b of anything.
func within(a, b nodegroups.Resources) bool {
	for name, v := range a {
		if v > b[name] {
			return false
		}
	}
	return true
}

// Asks reports whether a podSet asks for topology; a request may only say by which labels its pods are
// numbered.
func Asks(r *kueue.PodSetTopologyRequest) bool {
	return r != nil && (r.Required != nil || r.Preferred != nil || r.Unconstrained != nil && *r.Unconstrained || len(layersOf(r)) > 0)
}

// SameGroup reports whether two podSets are to be placed together.
func SameGroup(a, b *kueue.PodSetTopologyRequest) bool {
	return a != nil && b != nil && a.PodSetGroupName != nil && b.PodSetGroupName != nil && *a.PodSetGroupName == *b.PodSetGroupName
}
