package model

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// node is a node with its pods. The API object may be missing for a moment when
// a pod is heard of before its node.
type node struct {
	object *corev1.Node
	pods   map[types.UID]*pod
	// idleSince is when the last pod left, see provisioning.Node.
	idleSince time.Time
	// booked says that some live request had booked it at the last look.
	booked bool
}

// pod is what counts of a pod.
type pod struct {
	version metav1.Object
	node    string
	// requests is the room that it takes on its node.
	requests nodegroups.Resources
	finished bool
	// succeeded pods have used up their part of a booking.
	succeeded bool
	// bound, rather than only nominated; and when, to the second.
	bound    bool
	boundAt  time.Time
	daemon   types.UID
	consumes consumerKey
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
		node:      p.Spec.NodeName,
		bound:     p.Spec.NodeName != "",
		finished:  p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		succeeded: p.Status.Phase == corev1.PodSucceeded,
	}
	if !out.bound {
		out.node = p.Status.NominatedNodeName
	}
	out.boundAt = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			out.boundAt = c.LastTransitionTime.Time
		}
	}
	if out.node != "" {
		out.requests = provisioning.PodRequests(p)
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
	return out
}

// SetPod tells of a pod.
func (m *Model) SetPod(p *corev1.Pod) {
	m.update(func() bool {
		old := m.pods[p.UID]
		if old != nil && !newer(p, old.version) {
			return false
		}
		entry := readPod(p)
		if old != nil {
			m.forgetPod(p.UID, old)
		}
		m.pods[p.UID] = entry
		if entry.node != "" {
			n := m.node(entry.node)
			n.pods[p.UID] = entry
			m.noteIdle(n)
		}
		if entry.consumes.name != "" {
			m.count(entry, +1)
		}
		return true
	})
}

// DeletePod tells that a pod is gone.
func (m *Model) DeletePod(uid types.UID) {
	m.update(func() bool {
		old := m.pods[uid]
		if old != nil {
			m.forgetPod(uid, old)
			delete(m.pods, uid)
		}
		return old != nil
	})
}

func (m *Model) forgetPod(uid types.UID, p *pod) {
	if p.node != "" {
		n := m.node(p.node)
		delete(n.pods, uid)
		m.noteIdle(n)
		if n.object == nil && len(n.pods) == 0 {
			delete(m.nodes, p.node)
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
	if m.consumers[p.consumes] += by; m.consumers[p.consumes] == 0 {
		delete(m.consumers, p.consumes)
		m.ended[keyOf(p.consumes)] = m.now()
	}
}

// SetNode tells of a node.
func (m *Model) SetNode(n *corev1.Node) {
	m.update(func() bool {
		entry := m.node(n.Name)
		if entry.object != nil && !newer(n, entry.object) {
			return false
		}
		entry.object = n
		m.noteIdle(entry)
		return true
	})
}

// NodeWritten tells of a node that Muster has just written; one that has been
// deleted meanwhile stays deleted.
func (m *Model) NodeWritten(n *corev1.Node) {
	m.update(func() bool {
		entry := m.nodes[n.Name]
		if entry == nil || entry.object == nil || !newer(n, entry.object) {
			return false
		}
		entry.object = n
		return true
	})
}

// DeleteNode tells that a node is gone.
func (m *Model) DeleteNode(name string) {
	m.update(func() bool {
		entry := m.nodes[name]
		if entry == nil {
			return false
		}
		entry.object = nil
		if len(entry.pods) == 0 {
			delete(m.nodes, name)
		}
		delete(m.leaving, name)
		return true
	})
}

func (m *Model) node(name string) *node {
	n := m.nodes[name]
	if n == nil {
		n = &node{pods: map[types.UID]*pod{}}
		m.nodes[name] = n
	}
	return n
}

// noteIdle keeps idleSince after a change of the node's pods.
func (m *Model) noteIdle(n *node) {
	switch busy := n.busy() > 0; {
	case busy:
		n.idleSince = time.Time{}
	case n.idleSince.IsZero():
		n.idleSince = m.now()
	}
}

// busy is the number of unfinished pods that belong to no DaemonSet.
func (n *node) busy() (count int) {
	for _, p := range n.pods {
		if !p.finished && p.daemon == "" {
			count++
		}
	}
	return count
}

// read turns the node into what plans see.
func (m *Model) read(name string, n *node) provisioning.Node {
	o := n.object
	out := provisioning.Node{
		Name:        name,
		ProviderID:  o.Spec.ProviderID,
		Group:       o.Labels[v1alpha1.NodeGroupLabel],
		Labels:      o.Labels,
		Taints:      o.Spec.Taints,
		Ready:       isReady(o),
		Cordon:      cordonOf(o),
		Marked:      o.Annotations[v1alpha1.CordonedAnnotation] != "",
		Launch:      o.Annotations[v1alpha1.LaunchAnnotation],
		Allocatable: nodegroups.ResourcesFrom(o.Status.Allocatable),
		Pods:        n.busy(),
		Created:     o.CreationTimestamp.Time,
	}
	if m.leaving[name] {
		out.Cordon = provisioning.GivingBack
	}
	out.Free = out.Allocatable.Clone()
	for _, p := range n.pods {
		if !p.finished {
			out.Free.Sub(p.requests, 1)
		}
		if p.daemon != "" && p.bound {
			if out.Daemons == nil {
				out.Daemons = map[types.UID]bool{}
			}
			out.Daemons[p.daemon] = true
		}
	}
	out.Labelled = provisioning.BookingsOn(o.Labels, o.Annotations)
	for i := range out.Labelled {
		n.consume(&out.Labelled[i])
	}
	if r := m.requests[provisioning.TokenUID(out.Launch)]; r != nil {
		a := m.attempt(r)
		out.InFlight = statusOf(r) == provisioning.Pending && a.InFlight() && provisioning.Token(r.UID, a.Number) == out.Launch
	}
	for _, b := range out.Labelled {
		if r := m.requests[b.UID]; r != nil && statusOf(r) != provisioning.Over {
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

// consume takes off a booking what the gang's pods on the node have had of it.
// Pods that were bound before the node was booked belong to an earlier request of
// that name.
func (n *node) consume(b *provisioning.Booking) {
	b.Used = nodegroups.Resources{}
	for _, p := range n.pods {
		if p.consumes.namespace != b.Namespace || provisioning.BookingKey(p.consumes.name) != b.Key ||
			p.finished && !p.succeeded || p.bound && p.boundAt.Before(b.Since.Truncate(time.Second)) {
			continue
		}
		if p.bound {
			b.Pods++
		}
		if !p.finished {
			b.Running++
			b.Used.Add(p.requests, 1)
		}
		for name, v := range p.requests {
			b.Remaining[name] = max(0, b.Remaining[name]-v)
		}
	}
}

// attempt of a request: what is being written, else what is on record.
func (m *Model) attempt(r *provreq.ProvisioningRequest) provisioning.Attempt {
	a := attemptOf(r)
	if assumed, ok := m.assumed[r.UID]; ok && assumed.Attempt.Number >= max(1, a.Number) {
		return assumed.Attempt
	}
	return a
}

func isReady(o *corev1.Node) bool {
	if o.DeletionTimestamp != nil {
		return false
	}
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return i >= 0 && o.Status.Conditions[i].Status == corev1.ConditionTrue
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

// Snapshot is the model as decisions see it. It is shared: nobody changes it.
func (m *Model) Snapshot(now time.Time) *provisioning.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snapshot == nil {
		m.snapshot = m.build()
	}
	s := *m.snapshot
	s.Now = now
	return &s
}

func (m *Model) build() *provisioning.Snapshot {
	s := &provisioning.Snapshot{}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		if n := m.nodes[name]; n.object != nil {
			s.Nodes = append(s.Nodes, m.read(name, n))
		}
	}
	m.addAssumed(s)
	counts := m.machineCounts()
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		g := nodegroups.GroupFrom(m.groups[name], m.learnedStatus(name), counts[name])
		s.Groups = append(s.Groups, g)
	}
	for _, uid := range slices.Sorted(maps.Keys(m.daemonSets)) {
		d := m.daemonSets[uid]
		s.DaemonSets = append(s.DaemonSets, provisioning.DaemonSet{UID: uid, Name: d.Namespace + "/" + d.Name, Template: &d.Spec.Template})
	}
	return s
}

// addAssumed adds the bookings that are being written and not seen yet.
func (m *Model) addAssumed(s *provisioning.Snapshot) {
	byName := make(map[string]*provisioning.Node, len(s.Nodes))
	for i := range s.Nodes {
		byName[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, uid := range slices.Sorted(maps.Keys(m.assumed)) {
		for _, p := range m.assumed[uid].Bookings {
			n := byName[p.Node]
			if n == nil || slices.ContainsFunc(n.Bookings, func(b provisioning.Booking) bool { return b.UID == uid }) {
				continue
			}
			b := provisioning.Booking{UID: uid, Remaining: p.Requests, Since: m.now()}
			if r := m.requests[uid]; r != nil {
				b.Key, b.Namespace = provisioning.BookingKey(r.Name), r.Namespace
			}
			n.Bookings = append(n.Bookings, b)
			n.Labelled = append(n.Labelled, b)
		}
	}
}

// machineCounts is the number of machines of each group: those that exist, and
// those of attempts in flight that have not been seen yet.
func (m *Model) machineCounts() map[string]int {
	counts := map[string]int{}
	made := map[string]map[string]int{}
	for key, c := range m.machines {
		if c.State < cloudprovider.Terminated {
			counts[key.group]++
		}
		if c.Launch != "" {
			if made[c.Launch] == nil {
				made[c.Launch] = map[string]int{}
			}
			made[c.Launch][key.group]++
		}
	}
	for uid, r := range m.requests {
		a := m.attempt(r)
		if a.Phase != provisioning.Launching {
			continue
		}
		for _, l := range a.Launches {
			counts[l.Group] += max(0, l.Count-made[provisioning.Token(uid, a.Number)][l.Group])
		}
	}
	return counts
}
