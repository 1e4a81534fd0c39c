package model

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// nodes are the nodes with their pods.
type nodes struct {
	byName map[string]*node
	pods   map[types.UID]*state.Pod
	// assumed has the bookings, by node, that are being written and may not have been observed yet.
	assumed map[string]map[types.UID]assumedBooking
	// leaving are the nodes that are about to be terminated.
	leaving map[string]bool
	// gone are the nodes that were not found by a write. Until the informers catch up, their versions of them are old.
	gone map[string]types.UID
	// lapses is when a node that keeps capacity for running gangs keeps less. endedOn counts by node and booking key the pods that have
	// ended recently.
	lapses  map[string]time.Time
	endedOn map[state.ConsumerKey]map[string]int
	set     *nodeset.Set
	// labels were requested to distinguish nodes. judged is the number of nodes when the labels were last selected.
	labels map[string]bool
	judged int

	// The other inputs of the planner's form of a node.
	requests  *requests
	machines  *machines
	claimable *claimable
	lookup    func() fit.Objects
}

func newNodes(r *requests, m *machines, c *claimable, lookup func() fit.Objects) nodes {
	return nodes{
		byName: map[string]*node{}, pods: map[types.UID]*state.Pod{}, assumed: map[string]map[types.UID]assumedBooking{},
		leaving: map[string]bool{}, gone: map[string]types.UID{}, lapses: map[string]time.Time{}, endedOn: map[state.ConsumerKey]map[string]int{},
		set: nodeset.New(), labels: map[string]bool{}, requests: r, machines: m, claimable: c, lookup: lookup,
	}
}

// assumedBooking is a booking and the time of its decision.
type assumedBooking struct {
	planner.Placement
	since time.Time
}

// node is a node with its pods. The API object may be missing if a pod arrives before its node.
type node struct {
	object *corev1.Node
	pods   map[types.UID]*state.Pod
	// idleSince is when the last pod left, see provisioning.Node.
	idleSince time.Time
	// devicesSince is when the node was first seen, or last seen to offer fewer devices.
	devicesSince time.Time
	// lifted: others have lifted the cordon with Muster's mark. If the node is cordoned after that, the cordon belongs to others.
	lifted bool
	// bookedSince is since when live requests book the node, zero while none does.
	bookedSince time.Time
	// publishes is set if a DRA driver publishes devices for the node.
	publishes bool
	// ended are pods of gangs that ended here recently.
	ended []ended
}

func (ns *nodes) get(name string) *node {
	n := ns.byName[name]
	if n == nil {
		n = &node{pods: map[types.UID]*state.Pod{}}
		ns.byName[name] = n
	}
	return n
}

// object returns the newest version of a node, or nil.
func (ns *nodes) object(name string) *corev1.Node {
	if n := ns.byName[name]; n != nil {
		return n.object
	}
	return nil
}

// put stores a version of a node, unless it is old.
func (ns *nodes) put(o *corev1.Node, now time.Time) effect {
	if old := ns.object(o.Name); old != nil && !objects.Newer(o, old) {
		return unchanged
	}
	n := ns.get(o.Name)
	if n.object != nil && !maps.EqualFunc(o.Status.Allocatable, n.object.Status.Allocatable, resource.Quantity.Equal) {
		delete(ns.claimable.published, o.Name)
	}
	if n.object == nil || state.OffersFewerDevices(o, n.object) {
		n.devicesSince = now
	}
	n.object = o
	_, marked := o.Annotations[v1alpha1.CordonedAnnotation]
	n.lifted = marked && (n.lifted || state.CordonOf(o) == state.Open)
	n.noteIdle(now)
	return changed
}

// written records that Muster has written the node: its cordon is Muster's.
func (ns *nodes) written(name string) {
	if n := ns.byName[name]; n != nil && n.object != nil && state.CordonOf(n.object) != state.Open {
		n.lifted = false
	}
}

func (ns *nodes) remove(name string) effect {
	n := ns.byName[name]
	if n == nil {
		return unchanged
	}
	n.object = nil
	ns.forgetEnded(name, n, func(ended) bool { return true })
	maps.DeleteFunc(n.pods, func(_ types.UID, p *state.Pod) bool { return p.Deleted })
	if len(n.pods) == 0 {
		delete(ns.byName, name)
	}
	delete(ns.leaving, name)
	return changed
}

// setPod stores a version of a pod. EndedAt is when it ended, if the end is new. It returns the node that keeps less capacity from now on,
// if any.
func (ns *nodes) setPod(uid types.UID, p *state.Pod, endedAt, now time.Time) (keepsLess string) {
	if charge := ns.claimable.chargeOf(uid); charge != nil {
		p.Claim(charge)
	}
	old := ns.pods[uid]
	if old != nil {
		ns.forgetPod(uid, old, now)
	}
	ns.pods[uid] = p
	if p.Node == "" {
		return ""
	}
	n := ns.get(p.Node)
	n.pods[uid] = p
	switch {
	case !p.Finished && p.Bound && (old == nil || !old.Bound):
		keepsLess = ns.replaced(p)
	case !p.Finished:
	case old == nil:
		ns.endedPod(p, endedAt)
	case !old.Finished:
		ns.endedPod(p, now)
	}
	n.noteIdle(now)
	return keepsLess
}

// claim adds the devices of a pod's claims to its requests.
func (ns *nodes) claim(uid types.UID, charge nodegroups.Resources) {
	p := ns.pods[uid]
	if p == nil || charge == nil {
		return
	}
	again := *p
	again.Claim(charge)
	ns.pods[uid] = &again
	if n := ns.byName[p.Node]; n != nil && n.pods[uid] != nil {
		n.pods[uid] = &again
	}
}

// removePod removes a pod. On a booked node it is remembered if it has consumed its part of the booking.
func (ns *nodes) removePod(uid types.UID, now time.Time) {
	old := ns.pods[uid]
	delete(ns.pods, uid)
	ns.forgetPod(uid, old, now)
	n := ns.byName[old.Node]
	if n == nil || n.object == nil {
		return // its node is gone, too
	}
	if !old.Finished {
		ns.endedPod(old, now)
	}
	if old.Succeeded && old.Bound && old.Consumes.Name != "" {
		used := *old
		used.Deleted = true
		n.pods[uid] = &used
	}
}

func (ns *nodes) forgetPod(uid types.UID, p *state.Pod, now time.Time) {
	if p.Node == "" {
		return
	}
	n := ns.get(p.Node)
	delete(n.pods, uid)
	n.noteIdle(now)
	if n.object == nil && len(n.pods) == 0 {
		ns.forgetEnded(p.Node, n, func(ended) bool { return true })
		delete(ns.byName, p.Node)
	}
}

// assume replaces the bookings that are being written for a request.
func (ns *nodes) assume(uid types.UID, before, placements []planner.Placement, now time.Time) {
	for _, p := range before {
		if delete(ns.assumed[p.Node], uid); len(ns.assumed[p.Node]) == 0 {
			delete(ns.assumed, p.Node)
		}
	}
	for _, p := range placements {
		if ns.assumed[p.Node] == nil {
			ns.assumed[p.Node] = map[types.UID]assumedBooking{}
		}
		ns.assumed[p.Node][uid] = assumedBooking{p, now}
	}
}

// leave records whether a node is about to be terminated.
func (ns *nodes) leave(name string, leaving bool) effect {
	if leaving {
		ns.leaving[name] = true
	} else {
		delete(ns.leaving, name)
	}
	return changed
}

// distinguish adds labels that distinguish nodes, and reports whether one is new. A label that would split the nodes into many small
// groups is not used: it slows down all plans that do not select on it. The plans that do select on it filter by themselves.
func (ns *nodes) distinguish(labels []string) bool {
	more := slices.DeleteFunc(ns.set.Lacks(labels), func(key string) bool {
		known := ns.labels[key]
		ns.labels[key] = true
		return known || ns.set.Scatters(key)
	})
	if len(more) > 0 {
		ns.set = ns.set.WithKeys(more)
	}
	return len(more) > 0
}

// judgeLabels selects the labels that distinguish nodes again, each time that the number of nodes has doubled.
func (ns *nodes) judgeLabels() {
	if ns.set.Len() < 2*ns.judged {
		return
	}
	ns.judged = max(1, ns.set.Len())
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(ns.labels)), ns.set.Scatters)
	if again := nodeset.New(keys...); !slices.Equal(again.Keys(), ns.set.Keys()) {
		for n := range ns.set.All() {
			again.Set(n)
		}
		ns.set = again
	}
}

// noteIdle updates idleSince after a change of the node's pods.
func (n *node) noteIdle(now time.Time) {
	switch busy := n.staying() > 0; {
	case busy:
		n.idleSince = time.Time{}
	case n.idleSince.IsZero():
		n.idleSince = now
	}
}

// pauseIdle takes the time while the node is booked out of its idle time. The idle time goes on after the booking instead of starting
// from zero, or a request that books machines for a moment at each attempt would keep them for as long as it waits.
func (n *node) pauseIdle(booked bool, now time.Time) {
	switch {
	case booked && n.bookedSince.IsZero():
		n.bookedSince = now
	case !booked && !n.bookedSince.IsZero():
		if !n.idleSince.IsZero() {
			idle := max(0, n.bookedSince.Sub(n.idleSince))
			n.idleSince = now.Add(-idle)
		}
		n.bookedSince = time.Time{}
	}
}

// staying returns the number of pods that keep the node from being idle.
func (n *node) staying() (count int) {
	devices := n.hasDevices()
	for _, p := range n.pods {
		if stray := devices && p.Movable != nil; p.Counts() && !stray {
			count++
		}
	}
	return count
}

// hasDevices reports whether the node's machine has devices. Capacity is a better source than allocatable, which is zero while a device
// plugin restarts.
func (n *node) hasDevices() bool {
	if n.object == nil {
		return false
	}
	for name, amount := range n.object.Status.Capacity {
		if nodegroups.Extended(name) && !amount.IsZero() {
			return true
		}
	}
	return n.publishes
}
