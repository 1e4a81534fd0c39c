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
	// assumed bookings, by node, are being written and may not be seen yet.
	assumed map[string]map[types.UID]assumedBooking
	// leaving nodes are about to be given back.
	leaving map[string]bool
	// gone nodes were not found when they were to be written. Until informers know,
	// what they tell of them is old.
	gone map[string]types.UID
	// lapses is when nodes that keep room for gangs that run have less to keep. endedOn
	// are those on which pods of a booking key have ended lately, and how many.
	lapses  map[string]time.Time
	endedOn map[state.ConsumerKey]map[string]int
	set     *nodeset.Set
	// asked are the labels by which nodes are to be told apart, judged how many nodes there were when
	// it was last decided of all whether they are.
	asked  map[string]bool
	judged int

	// What reading a node depends on beside.
	requests  *requests
	machines  *machines
	claimable *claimable
	lookup    func() fit.Objects
}

func newNodes(r *requests, m *machines, c *claimable, lookup func() fit.Objects) nodes {
	return nodes{
		byName: map[string]*node{}, pods: map[types.UID]*state.Pod{}, assumed: map[string]map[types.UID]assumedBooking{},
		leaving: map[string]bool{}, gone: map[string]types.UID{}, lapses: map[string]time.Time{}, endedOn: map[state.ConsumerKey]map[string]int{},
		set: nodeset.New(), asked: map[string]bool{}, requests: r, machines: m, claimable: c, lookup: lookup,
	}
}

// assumedBooking is one that was decided at that time.
type assumedBooking struct {
	planner.Placement
	since time.Time
}

// node is a node with its pods. The API object may be missing for a moment when
// a pod is heard of before its node.
type node struct {
	object *corev1.Node
	pods   map[types.UID]*state.Pod
	// idleSince is when the last pod left, see provisioning.Node.
	idleSince time.Time
	// devicesSince is when it was last seen to offer fewer devices, or first seen.
	devicesSince time.Time
	// lifted: others have lifted the cordon that still bears Muster's mark. One that they put
	// after that is theirs.
	lifted bool
	// booked reports whether some live request had booked it when it was last read.
	booked bool
	// publishes is set if a DRA driver publishes devices for the node.
	publishes bool
	// ended are pods of gangs that ended here lately.
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

// object is the newest version of a node, or nil.
func (ns *nodes) object(name string) *corev1.Node {
	if n := ns.byName[name]; n != nil {
		return n.object
	}
	return nil
}

// put stores a version of a node, unless it is known to be old.
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

// written notes that Muster has written the node: a cordon that it has is Muster's.
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

// setPod puts a version of a pod in place of the last one. EndedAt is when it ended, if
// it is new here. It returns the node that keeps less room from now on, if one does.
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

// removePod forgets a pod that is gone. On a booked node it is remembered if it has
// had its part of the booking.
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

// assume puts the bookings that are being written for a request in place of those before.
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

// leave notes that a node is about to be given back, or is not any more.
func (ns *nodes) leave(name string, leaving bool) effect {
	if leaving {
		ns.leaving[name] = true
	} else {
		delete(ns.leaving, name)
	}
	return changed
}

// distinguish tells nodes apart by these labels, too, and reports whether it did not yet. Those that would leave few nodes alike make
// the plans slower of all that do not select on them, and are left to the plans that do.
func (ns *nodes) distinguish(labels []string) bool {
	more := slices.DeleteFunc(ns.set.Lacks(labels), func(key string) bool {
		known := ns.asked[key]
		ns.asked[key] = true
		return known || ns.set.Scatters(key)
	})
	if len(more) > 0 {
		ns.set = ns.set.WithKeys(more)
	}
	return len(more) > 0
}

// judgeLabels decides again by which labels nodes are told apart, each time that they have become twice as many.
func (ns *nodes) judgeLabels() {
	if ns.set.Len() < 2*ns.judged {
		return
	}
	ns.judged = max(1, ns.set.Len())
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(ns.asked)), ns.set.Scatters)
	if told := nodeset.New(keys...); !slices.Equal(told.Keys(), ns.set.Keys()) {
		for n := range ns.set.All() {
			told.Set(n)
		}
		ns.set = told
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
		if stray := devices && p.Movable != nil; p.Counts() && !stray {
			count++
		}
	}
	return count
}

// hasDevices reports whether the node's machine is there for its devices. Capacity tells
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
	return n.publishes
}
