package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// refresh reads a node again. Where it offers more than before, requests that wait for
// capacity may find it; where it promises less, they may wait in vain.
func (ns *nodes) refresh(name string, losses losses, now time.Time) effect {
	old := ns.set.Find(name)
	var read *state.Node
	if n := ns.byName[name]; n != nil && n.object != nil {
		read = ns.read(name, n, now)
		ns.set.Set(read)
	} else {
		ns.set.Delete(name)
		delete(ns.lapses, name)
	}
	ended := read != nil && ns.machines.ended[read.ProviderID]
	if old != nil && (read == nil || old.Machine != nil && ended) {
		losses.lost(old, ns.requests, now)
	}
	if read != nil && !ended {
		losses.back(read)
	}
	if read != nil && read.OffersMoreThan(old) || read.PromisesLessThan(old) {
		return frees
	}
	return changed
}

// read turns the node into what plans see.
func (ns *nodes) read(name string, n *node, now time.Time) *state.Node {
	o := n.object
	out := &state.Node{
		Name:         name,
		ProviderID:   o.Spec.ProviderID,
		Group:        o.Labels[v1alpha1.NodeGroupLabel],
		Labels:       o.Labels,
		Taints:       o.Spec.Taints,
		Ready:        isReady(o) && !ns.machines.ended[o.Spec.ProviderID],
		Cordon:       cordonOf(o),
		Marked:       o.Annotations[v1alpha1.CordonedAnnotation] != "",
		Kept:         isKept(o),
		Launch:       o.Annotations[v1alpha1.LaunchAnnotation],
		Allocatable:  nodegroups.ResourcesFrom(o.Status.Allocatable),
		Machine:      ns.machines.withID(o.Spec.ProviderID),
		Created:      o.CreationTimestamp.Time,
		ReadySince:   readySince(o),
		UnreadySince: unreadySince(o),
	}
	if ns.leaving[name] {
		out.Cordon = state.GivingBack
	}
	out.Labelled = state.BookingsOn(o.Labels, o.Annotations)
	ns.nameBookings(out.Labelled)
	ns.addAssumed(out, n)
	n.addPods(out)
	ns.addStrays(out, n)
	n.addStrangers(out)
	for i := range out.Labelled {
		n.consume(&out.Labelled[i], ns.createdOf(out.Labelled[i].UID))
	}
	ns.keepRoom(name, n, out, now)
	if owner, _, owned := ns.requests.owner(out.Launch); owned {
		out.InFlight = owner.status == transaction.Pending ||
			!slices.ContainsFunc(out.Labelled, func(b state.Booking) bool { return b.UID == owner.object.UID })
	}
	for _, b := range out.Labelled {
		if ns.requests.live(b.UID) {
			b.Held = isHeld(ns.requests.byUID[b.UID].object)
			out.Bookings = append(out.Bookings, b)
		}
	}
	// A booking keeps a machine from being idle: its time begins when that is over.
	if booked := len(out.Bookings) > 0; booked != n.booked {
		if n.booked = booked; !booked && !n.idleSince.IsZero() {
			n.idleSince = now
		}
	}
	out.IdleSince = n.idleSince
	return out
}

// nameBookings tells the queues that their requests are of now, and the namespaces of
// those that are not open yet.
func (ns *nodes) nameBookings(bookings []state.Booking) {
	for i := range bookings {
		b := &bookings[i]
		e := ns.requests.byUID[b.UID]
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
func (ns *nodes) addAssumed(out *state.Node, n *node) {
	for uid, p := range ns.assumed[out.Name] {
		if slices.ContainsFunc(out.Labelled, func(b state.Booking) bool { return b.UID == uid }) {
			continue
		}
		b := state.Booking{UID: uid, Booked: p.Requests, Remaining: p.Requests.Clone(), Since: p.since}
		if e := ns.requests.byUID[uid]; e != nil {
			t := e.tenant()
			b.Key, b.Namespace, b.Queue = state.BookingKey(e.object.Name), t.Namespace, t.Queue
			b.Earlier = n.boundFor(b.Namespace, b.Key)
		}
		out.Labelled = append(out.Labelled, b)
	}
	state.SortBookings(out.Labelled)
}

// addPods takes what the node's pods have off its room.
func (n *node) addPods(out *state.Node) {
	out.Free = out.Allocatable.Clone()
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		p := n.pods[uid]
		if p.deleted && len(out.Labelled) == 0 {
			delete(n.pods, uid) // what it has had of a booking does not matter any more
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
func (ns *nodes) createdOf(uid types.UID) (created time.Time) {
	if e := ns.requests.byUID[uid]; e != nil {
		created = e.object.CreationTimestamp.Time
	}
	return created
}

// consume takes off a booking what the gang's pods on the node have had of it.
// Pods that were bound before its request was created, or are on record as earlier
// ones, belong to an earlier request of that name.
func (n *node) consume(b *state.Booking, created time.Time) {
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
		if p.consumes.namespace == namespace && state.BookingKey(p.consumes.name) == key {
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

// addStrays adds those of the node's pods that may be moved away from it.
func (ns *nodes) addStrays(out *state.Node, n *node) {
	if !n.hasDevices() {
		return
	}
	for _, p := range n.pods {
		if p.counts() && p.movable != nil {
			out.Strays = append(out.Strays, state.NewStray(p.movable, ns.objects.lookup()))
		}
	}
	slices.SortFunc(out.Strays, func(a, b state.Stray) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i := range out.Strays {
		ns.distinguish(out.Strays[i].Keys())
	}
}

// addStrangers names the pods that have slipped past the cordon of a node that Muster holds.
func (n *node) addStrangers(out *state.Node) {
	if out.Cordon != state.Joining && out.Cordon != state.Held {
		return
	}
	for _, p := range n.pods {
		if !p.counts() || !p.bound || p.terminating || slices.ContainsFunc(out.Labelled, func(b state.Booking) bool {
			return b.Namespace == p.consumes.namespace && b.Key == state.BookingKey(p.consumes.name)
		}) {
			continue
		}
		out.Strangers = append(out.Strangers, p.running.Namespace+"/"+p.name)
	}
	slices.Sort(out.Strangers)
}

// isKept reports whether the node bears an annotation of cluster-autoscaler or Karpenter, not
// put there by Muster, against scaling it down.
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

// readySince is when the node's Ready condition became true; zero while it is not.
func readySince(o *corev1.Node) time.Time {
	if c := readyCondition(o); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func readyCondition(o *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &o.Status.Conditions[i]
}

func cordonOf(o *corev1.Node) state.Cordon {
	if !o.Spec.Unschedulable {
		return state.Open
	}
	switch o.Annotations[v1alpha1.CordonedAnnotation] {
	case v1alpha1.CordonJoining:
		return state.Joining
	case v1alpha1.CordonBooked:
		return state.Held
	case v1alpha1.CordonGivingBack:
		return state.GivingBack
	default:
		return state.Foreign
	}
}
