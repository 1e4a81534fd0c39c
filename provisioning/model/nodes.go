package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/provisioning/fit"
)

// nodes are the nodes with their pods.
type nodes struct {
	byName map[string]*node
	pods   map[types.UID]*pod
	// leaving nodes are about to be given back.
	leaving map[string]bool
	// gone nodes were not found when they were to be written. Until informers know,
	// what they tell of them is old.
	gone map[string]types.UID
	// stale nodes have changed since they were put in the set.
	stale map[string]bool
	// relaunched are the requests whose launches may be in another phase since then;
	// nil while nobody keeps accounts.
	relaunched map[types.UID]bool
	// lapses is when nodes that keep room for gangs that run have less to keep. endedOn
	// are those on which pods of a booking key have ended lately, and how many.
	lapses  map[string]time.Time
	endedOn map[consumerKey]map[string]int
	set     *provisioning.Nodes
}

func newNodes() nodes {
	return nodes{
		byName: map[string]*node{}, pods: map[types.UID]*pod{},
		leaving: map[string]bool{}, gone: map[string]types.UID{}, stale: map[string]bool{}, lapses: map[string]time.Time{}, endedOn: map[consumerKey]map[string]int{}, set: provisioning.NewNodes(),
	}
}

// node is a node with its pods. The API object may be missing for a moment when
// a pod is heard of before its node.
type node struct {
	object *corev1.Node
	pods   map[types.UID]*pod
	// assumed bookings are being written and may not be seen yet.
	assumed map[types.UID]provisioning.Placement
	// idleSince is when the last pod left, see provisioning.Node.
	idleSince time.Time
	// booked says that some live request had booked it at the last look.
	booked bool
	// ended are pods of gangs that ended here lately.
	ended []ended
}

// pod is what counts of a pod.
type pod struct {
	version metav1.Object
	name    string
	node    string
	// requests is the room that it takes on its node.
	requests nodegroups.Resources
	running  *fit.Running
	finished bool
	// terminating pods have been deleted and are not gone yet.
	terminating bool
	// static pods come and go with their node.
	static bool
	// movable is the pod itself, if it may be moved for the sake of its machine.
	movable *corev1.Pod
	// succeeded pods have used up their part of a booking, also when deleted.
	succeeded, deleted bool
	// bound, rather than only nominated; and when, to the second.
	bound    bool
	boundAt  time.Time
	daemon   types.UID
	consumes consumerKey
	// madeAgain: somebody makes another one when it has ended.
	madeAgain bool
	// stranded: kube-scheduler has found no room for it.
	stranded bool
}

// consumeAnnotations name the request whose capacity a pod consumes; the second
// is the older spelling.
var consumeAnnotations = []string{
	provreq.ProvisioningRequestPodAnnotationKey,
	"cluster-autoscaler.kubernetes.io/consume-provisioning-request",
}

func readPod(p *corev1.Pod) *pod {
	out := &pod{
		version:   &metav1.ObjectMeta{ResourceVersion: p.ResourceVersion},
		name:      p.Name,
		node:      p.Spec.NodeName,
		bound:     p.Spec.NodeName != "",
		finished:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		succeeded: p.Status.Phase == corev1.PodSucceeded,

		terminating: p.DeletionTimestamp != nil,
		static:      p.Annotations[corev1.MirrorPodAnnotationKey] != "",
		madeAgain:   isMadeAgain(p),
	}
	if !out.bound {
		out.node = p.Status.NominatedNodeName
	}
	out.boundAt = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled:
		case c.Status == corev1.ConditionTrue:
			out.boundAt = c.LastTransitionTime.Time
		default:
			out.stranded = c.Reason == corev1.PodReasonUnschedulable && out.node == "" && !out.finished && !out.terminating
		}
	}
	if out.node != "" || out.stranded {
		out.requests = fit.PodRequests(p)
	}
	if out.node != "" {
		out.running = fit.ReadRunning(p)
	}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" {
		out.daemon = owner.UID
	}
	for _, key := range consumeAnnotations {
		if name, ok := p.Annotations[key]; ok {
			out.consumes = consumerKey{p.Namespace, name}
			break
		}
	}
	if out.bound && out.consumes.name == "" && provisioning.Movable(p) {
		out.movable = p
	}
	return out
}

// SetPod tells of a pod.
func (m *Model) SetPod(p *corev1.Pod) {
	m.update(func() bool {
		old := m.nodes.pods[p.UID]
		if old != nil && !newer(p, old.version) {
			return false
		}
		entry := readPod(p)
		if old != nil {
			m.forgetPod(p.UID, old)
			if old.consumes != entry.consumes {
				m.requests.unstrand(old, p.UID)
			}
		}
		m.nodes.pods[p.UID] = entry
		if entry.node != "" {
			n := m.nodes.get(entry.node)
			n.pods[p.UID] = entry
			switch {
			case !entry.finished && entry.bound && (old == nil || !old.bound):
				m.nodes.replaced(entry)
			case !entry.finished:
			case old == nil:
				m.nodes.endedPod(entry, endOf(p))
			case !old.finished:
				m.nodes.endedPod(entry, m.now())
			}
			n.noteIdle(m.now())
			m.nodes.stale[entry.node] = true
		}
		if entry.consumes.name != "" {
			m.count(entry, +1)
			m.requests.strands(entry, p.UID, m.now())
		}
		return true
	})
}

// DeletePod tells that a pod is gone. On a booked node it is remembered if it has
// had its part of the booking.
func (m *Model) DeletePod(uid types.UID) {
	m.update(func() bool {
		old := m.nodes.pods[uid]
		if old == nil {
			return false
		}
		delete(m.nodes.pods, uid)
		m.forgetPod(uid, old)
		m.requests.unstrand(old, uid)
		n := m.nodes.byName[old.node]
		if n == nil || n.object == nil {
			return true // its node is gone, too
		}
		if !old.finished {
			m.nodes.endedPod(old, m.now())
		}
		if old.succeeded && old.bound && old.consumes.name != "" {
			used := *old
			used.deleted = true
			n.pods[uid] = &used
		}
		return true
	})
}

func (m *Model) forgetPod(uid types.UID, p *pod) {
	if p.node != "" {
		n := m.nodes.get(p.node)
		delete(n.pods, uid)
		n.noteIdle(m.now())
		m.nodes.stale[p.node] = true
		if n.object == nil && len(n.pods) == 0 {
			m.nodes.forgetEnded(p.node, n, func(ended) bool { return true })
			delete(m.nodes.byName, p.node)
		}
	}
	if p.consumes.name != "" {
		m.count(p, -1)
	}
}

func (m *Model) count(p *pod, by int) {
	if p.finished {
		return
	}
	m.requests.touchNamed(p.consumes)
	if m.consumers[p.consumes] += by; m.consumers[p.consumes] == 0 {
		delete(m.consumers, p.consumes)
		m.ended[keyOf(p.consumes)] = m.now()
	}
}

// SetNode tells of a node.
func (m *Model) SetNode(n *corev1.Node) {
	m.update(func() bool {
		if uid, gone := m.nodes.gone[n.Name]; gone && uid == n.UID {
			return false
		}
		delete(m.nodes.gone, n.Name)
		entry := m.nodes.get(n.Name)
		if entry.object != nil && !newer(n, entry.object) {
			return false
		}
		m.linkNode(entry.object, n)
		entry.object = n
		entry.noteIdle(m.now())
		m.nodes.stale[n.Name] = true
		return true
	})
}

// NodeWritten tells of a node that Muster has just written; one that has been
// deleted meanwhile stays deleted.
func (m *Model) NodeWritten(n *corev1.Node) {
	m.update(func() bool {
		entry := m.nodes.byName[n.Name]
		if entry == nil || entry.object == nil || !newer(n, entry.object) {
			return false
		}
		entry.object = n
		m.nodes.stale[n.Name] = true
		return true
	})
}

// DeleteNode tells that a node is gone.
func (m *Model) DeleteNode(name string) {
	m.update(func() bool {
		delete(m.nodes.gone, name)
		return m.deleteNode(name)
	})
}

func (m *Model) deleteNode(name string) bool {
	entry := m.nodes.byName[name]
	if entry == nil {
		return false
	}
	m.linkNode(entry.object, nil)
	entry.object = nil
	m.nodes.forgetEnded(name, entry, func(ended) bool { return true })
	maps.DeleteFunc(entry.pods, func(_ types.UID, p *pod) bool { return p.deleted })
	if len(entry.pods) == 0 {
		delete(m.nodes.byName, name)
	}
	delete(m.nodes.leaving, name)
	m.nodes.stale[name] = true
	return true
}

// NodeGone tells that this node was not found when it was to be written. One that
// was made anew under its name stays.
func (m *Model) NodeGone(n *corev1.Node) {
	m.update(func() bool {
		entry := m.nodes.byName[n.Name]
		if entry == nil || entry.object == nil || entry.object.UID != n.UID {
			return false
		}
		m.nodes.gone[n.Name] = n.UID
		return m.deleteNode(n.Name)
	})
}

// SetLeaving says that a node is about to be given back, before its cordon is seen.
func (m *Model) SetLeaving(name string, leaving bool) {
	m.update(func() bool {
		if leaving {
			m.nodes.leaving[name] = true
		} else {
			delete(m.nodes.leaving, name)
		}
		m.nodes.stale[name] = true
		return true
	})
}

// Distinguish tells plans apart nodes by these labels, too: somebody selects on
// them. Without, a plan that does looks at every node.
func (m *Model) Distinguish(labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.distinguish(labels)
}

func (m *Model) distinguish(labels []string) {
	if more := m.nodes.set.Lacks(labels); len(more) > 0 {
		m.nodes.set = m.nodes.set.WithKeys(more)
		m.snapshot, m.soon.stale = nil, true
	}
}

func (ns *nodes) get(name string) *node {
	n := ns.byName[name]
	if n == nil {
		n = &node{pods: map[types.UID]*pod{}, assumed: map[types.UID]provisioning.Placement{}}
		ns.byName[name] = n
	}
	return n
}

// assume keeps what is being booked on the node for the request.
func (ns *nodes) assume(name string, uid types.UID, assumed map[types.UID]Assumption) {
	n := ns.byName[name]
	if n == nil {
		return
	}
	delete(n.assumed, uid)
	for _, p := range assumed[uid].Bookings {
		if p.Node == name {
			n.assumed[uid] = p
		}
	}
	ns.stale[name] = true
}

// requestChanged has the nodes read again that the request has to do with: those that
// bear a booking of it, be it over, and those that it has launched.
func (ns *nodes) requestChanged(uid types.UID) {
	for n := range ns.set.BookedBy(uid) {
		ns.stale[n.Name] = true
	}
	ns.launchChanged(uid)
}

// launchChanged has the nodes read again that the request has launched.
func (ns *nodes) launchChanged(uid types.UID) {
	if ns.relaunched != nil {
		ns.relaunched[uid] = true
	}
	for n := range ns.set.LaunchedFor(uid) {
		ns.stale[n.Name] = true
	}
}

// noteIdle keeps idleSince after a change of the node's pods.
func (n *node) noteIdle(now time.Time) {
	switch busy := n.staying() > 0; {
	case busy:
		n.idleSince = time.Time{}
	case n.idleSince.IsZero():
		n.idleSince = now
	}
}

// staying is the number of pods that keep the node from being idle.
func (n *node) staying() (count int) {
	devices := n.hasDevices()
	for _, p := range n.pods {
		if stray := devices && p.movable != nil; p.counts() && !stray {
			count++
		}
	}
	return count
}

// counts says that the pod has not finished and does not come and go with its node.
func (p *pod) counts() bool { return !p.finished && !p.static && p.daemon == "" }

// hasDevices says that the node's machine is there for its devices. Capacity tells
// better than what is allocatable, which is none while a device plugin restarts.
func (n *node) hasDevices() bool {
	if n.object == nil {
		return false
	}
	for name, amount := range n.object.Status.Capacity {
		if nodegroups.Extended(name) && !amount.IsZero() {
			return true
		}
	}
	return false
}

// flushNodes puts what has changed into the set, and wakes the requests that it
// concerns.
func (m *Model) flushNodes() {
	for name := range m.nodes.stale {
		old := m.nodes.set.Find(name)
		var read *provisioning.Node
		if n := m.nodes.byName[name]; n != nil && n.object != nil {
			read = m.read(name, n)
			m.nodes.set.Set(read)
			if key, ok := m.links.machines[read.ProviderID]; ok {
				m.machineStale(key)
			}
		} else {
			m.nodes.set.Delete(name)
			delete(m.nodes.lapses, name)
		}
		if old != nil && (read == nil || old.Machine != nil && m.links.ended[read.ProviderID]) {
			m.nodeLost(old)
		}
		if read != nil && !m.links.ended[read.ProviderID] {
			m.nodeBack(read)
		}
		for _, n := range []*provisioning.Node{old, read} {
			if n == nil {
				continue
			}
			for i := range n.Labelled {
				m.touch(n.Labelled[i].UID)
			}
			if n.Launch != "" {
				m.touch(provisioning.TokenUID(n.Launch))
			}
		}
		if read != nil && read.OffersMoreThan(old) || read.PromisesLessThan(old) {
			m.wakeAll()
		}
	}
	m.soon.stale = m.soon.stale || len(m.nodes.stale) > 0
	clear(m.nodes.stale)
}

// read turns the node into what plans see.
func (m *Model) read(name string, n *node) *provisioning.Node {
	o := n.object
	out := &provisioning.Node{
		Name:        name,
		ProviderID:  o.Spec.ProviderID,
		Group:       o.Labels[v1alpha1.NodeGroupLabel],
		Labels:      o.Labels,
		Taints:      o.Spec.Taints,
		Ready:       isReady(o) && !m.links.ended[o.Spec.ProviderID],
		Cordon:      cordonOf(o),
		Marked:      o.Annotations[v1alpha1.CordonedAnnotation] != "",
		Kept:        isKept(o),
		Launch:      o.Annotations[v1alpha1.LaunchAnnotation],
		Allocatable: nodegroups.ResourcesFrom(o.Status.Allocatable),
		Machine:     m.machineOf(o.Spec.ProviderID),
		Created:     o.CreationTimestamp.Time,
	}
	out.UnreadySince = unreadySince(o)
	if m.nodes.leaving[name] {
		out.Cordon = provisioning.GivingBack
	}
	out.Labelled = provisioning.BookingsOn(o.Labels, o.Annotations)
	m.nameBookings(out.Labelled)
	n.addAssumed(out, m)
	n.addPods(out)
	m.addStrays(out, n)
	n.addStrangers(out)
	for i := range out.Labelled {
		n.consume(&out.Labelled[i], m.createdOf(out.Labelled[i].UID))
	}
	m.keep(name, n, out)
	if owner, _, owned := m.owner(out.Launch); owned {
		out.InFlight = owner.status == provisioning.Pending ||
			!slices.ContainsFunc(out.Labelled, func(b provisioning.Booking) bool { return b.UID == owner.object.UID })
	}
	for _, b := range out.Labelled {
		if e := m.requests.byUID[b.UID]; e != nil && e.status != provisioning.Over {
			b.Held = isHeld(e.object)
			out.Bookings = append(out.Bookings, b)
		}
	}
	// A booking keeps a machine from being idle: its time begins anew at the end.
	if booked := len(out.Bookings) > 0; booked != n.booked {
		if n.booked = booked; !booked && !n.idleSince.IsZero() {
			n.idleSince = m.now()
		}
	}
	out.IdleSince = n.idleSince
	return out
}

// nameBookings tells the queues that their requests are of now, and the namespaces of
// those that are not open yet.
func (m *Model) nameBookings(bookings []provisioning.Booking) {
	for i := range bookings {
		b := &bookings[i]
		e := m.requests.byUID[b.UID]
		if e == nil {
			continue
		}
		t := e.tenant()
		if b.Queue = t.Queue; !b.Open {
			b.Namespace = t.Namespace
		}
	}
}

// addAssumed adds the bookings that are being written and not seen yet.
func (n *node) addAssumed(out *provisioning.Node, m *Model) {
	for uid, p := range n.assumed {
		if slices.ContainsFunc(out.Labelled, func(b provisioning.Booking) bool { return b.UID == uid }) {
			continue
		}
		b := provisioning.Booking{UID: uid, Booked: p.Requests, Remaining: p.Requests.Clone(), Since: m.now()}
		if e := m.requests.byUID[uid]; e != nil {
			t := e.tenant()
			b.Key, b.Namespace, b.Queue = provisioning.BookingKey(e.object.Name), t.Namespace, t.Queue
			b.Earlier = n.boundFor(b.Namespace, b.Key)
		}
		out.Labelled = append(out.Labelled, b)
	}
	provisioning.SortBookings(out.Labelled)
}

// addPods takes what the node's pods have off its room.
func (n *node) addPods(out *provisioning.Node) {
	out.Free = out.Allocatable.Clone()
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		p := n.pods[uid]
		if p.deleted && len(out.Labelled) == 0 {
			delete(n.pods, uid) // nobody asks any more what it has had
		}
		if p.daemon != "" && p.bound {
			if out.Daemons == nil {
				out.Daemons = map[types.UID]bool{}
			}
			out.Daemons[p.daemon] = true
		}
		if !p.finished {
			out.Free.Sub(p.requests, 1)
			out.Running = append(out.Running, p.running)
		}
		if p.counts() {
			out.Pods++
			if p.terminating {
				out.Terminating++
			}
		}
	}
}

// createdOf is when a request was created; zero if it is gone.
func (m *Model) createdOf(uid types.UID) (created time.Time) {
	if e := m.requests.byUID[uid]; e != nil {
		created = e.object.CreationTimestamp.Time
	}
	return created
}

// consume takes off a booking what the gang's pods on the node have had of it.
// Pods that were bound before its request was created, or are on record as earlier
// ones, belong to an earlier request of that name.
func (n *node) consume(b *provisioning.Booking, created time.Time) {
	b.Staying = nodegroups.Resources{}
	for _, uid := range n.consuming(b.Namespace, b.Key) {
		p := n.pods[uid]
		if p.finished && !p.succeeded || p.bound && p.boundAt.Before(created) || slices.Contains(b.Earlier, uid) {
			continue
		}
		if p.bound {
			b.Came = append(b.Came, p.requests)
		}
		if !p.finished {
			b.Running++
			if !p.terminating {
				b.Staying.Add(p.requests, 1)
			}
		}
		for name, v := range p.requests {
			b.Remaining[name] = max(0, b.Remaining[name]-v)
		}
	}
}

// consuming are the pods on the node, or nominated to it, that consume the capacity of
// a request of that key.
func (n *node) consuming(namespace, key string) (out []types.UID) {
	for uid, p := range n.pods {
		if p.consumes.namespace == namespace && provisioning.BookingKey(p.consumes.name) == key {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// boundFor are those of them that are bound.
func (n *node) boundFor(namespace, key string) []types.UID {
	return slices.DeleteFunc(n.consuming(namespace, key), func(uid types.UID) bool { return !n.pods[uid].bound })
}

// BoundFor are the pods bound to a node that consume the capacity of a request of that
// key.
func (m *Model) BoundFor(name, namespace, key string) (out []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes.byName[name]; n != nil {
		out = n.boundFor(namespace, key)
	}
	return out
}

// addStrays adds those of the node's pods that may be moved away from it.
func (m *Model) addStrays(out *provisioning.Node, n *node) {
	if !n.hasDevices() {
		return
	}
	for _, p := range n.pods {
		if p.counts() && p.movable != nil {
			out.Strays = append(out.Strays, provisioning.NewStray(p.movable, m.objects.lookup()))
		}
	}
	slices.SortFunc(out.Strays, func(a, b provisioning.Stray) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i := range out.Strays {
		m.distinguish(out.Strays[i].Keys())
	}
}

// addStrangers names the pods that have slipped past the cordon of a node that Muster holds.
func (n *node) addStrangers(out *provisioning.Node) {
	if out.Cordon != provisioning.Joining && out.Cordon != provisioning.Held {
		return
	}
	for _, p := range n.pods {
		if !p.counts() || !p.bound || p.terminating || slices.ContainsFunc(out.Labelled, func(b provisioning.Booking) bool {
			return b.Namespace == p.consumes.namespace && b.Key == provisioning.BookingKey(p.consumes.name)
		}) {
			continue
		}
		out.Strangers = append(out.Strangers, p.running.Namespace+"/"+p.name)
	}
	slices.Sort(out.Strangers)
}

// isKept says that somebody else than Muster wants the node not to be scaled down, in
// the words of cluster-autoscaler or Karpenter.
func isKept(o *corev1.Node) bool {
	_, ours := o.Annotations[v1alpha1.KeptAnnotation]
	return o.Annotations[v1alpha1.ScaleDownDisabledAnnotation] == "true" && !ours ||
		o.Annotations["karpenter.sh/do-not-disrupt"] == "true"
}

func isReady(o *corev1.Node) bool {
	c := readyCondition(o)
	return o.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue
}

// unreadySince is when the node's Ready condition was lost; zero while it is true.
func unreadySince(o *corev1.Node) time.Time {
	switch c := readyCondition(o); {
	case c == nil:
		return o.CreationTimestamp.Time
	case c.Status == corev1.ConditionTrue:
		return time.Time{}
	default:
		return c.LastTransitionTime.Time
	}
}

func readyCondition(o *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &o.Status.Conditions[i]
}

func cordonOf(o *corev1.Node) provisioning.Cordon {
	if !o.Spec.Unschedulable {
		return provisioning.Open
	}
	switch o.Annotations[v1alpha1.CordonedAnnotation] {
	case v1alpha1.CordonJoining:
		return provisioning.Joining
	case v1alpha1.CordonBooked:
		return provisioning.Held
	case v1alpha1.CordonGivingBack:
		return provisioning.GivingBack
	default:
		return provisioning.Foreign
	}
}

// Node returns the newest version of a node that the model knows, or nil.
func (m *Model) Node(name string) *corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes.byName[name]; n != nil {
		return n.object
	}
	return nil
}
