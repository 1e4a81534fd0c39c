package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model/losses"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// refresh derives a node again. If it offers more than before, requests that wait for capacity may find it; if it promises less, they may
// wait in vain.
func (ns *nodes) refresh(name string, lost losses.Losses, now time.Time) effect {
	old := ns.set.Find(name)
	var read *state.Node
	if n := ns.byName[name]; n != nil && n.object != nil {
		read = ns.read(name, n, now)
		ns.set.Set(read)
		ns.judgeLabels()
	} else {
		ns.set.Delete(name)
		delete(ns.lapses, name)
	}
	ended := read != nil && ns.machines.ended[read.ProviderID]
	if old != nil && (read == nil || old.Machine != nil && ended) {
		lost.Lost(old, ns.requests.concerns, now)
	}
	if read != nil && !ended {
		lost.Back(read)
	}
	if read != nil && read.OffersMoreThan(old) || read.PromisesLessThan(old) {
		return frees
	}
	return changed
}

// read returns the node in the planner's form.
func (ns *nodes) read(name string, n *node, now time.Time) *state.Node {
	o := n.object
	out := &state.Node{
		Name:         name,
		ProviderID:   o.Spec.ProviderID,
		Group:        o.Labels[v1alpha1.NodeGroupLabel],
		Labels:       o.Labels,
		Taints:       o.Spec.Taints,
		Ready:        state.IsReady(o) && !ns.machines.ended[o.Spec.ProviderID],
		Notice:       state.NoticeOf(o, now),
		Ended:        ns.machines.over(o.Spec.ProviderID),
		Forgotten:    o.Spec.ProviderID != "" && ns.machines.keys[o.Spec.ProviderID] == (machineKey{}) && !ns.machines.ended[o.Spec.ProviderID],
		Cordon:       state.CordonOf(o),
		Marked:       o.Annotations[v1alpha1.CordonedAnnotation] != "",
		Kept:         state.IsKept(o),
		Launch:       o.Annotations[v1alpha1.LaunchAnnotation],
		LeftBy:       state.TenantNamed(o.Annotations[v1alpha1.LeftByAnnotation]),
		Allocatable:  nodegroups.ResourcesFrom(o.Status.Allocatable),
		Machine:      ns.machines.withID(o.Spec.ProviderID),
		Created:      o.CreationTimestamp.Time,
		ReadySince:   state.ReadySince(o),
		UnreadySince: state.UnreadySince(o),
		DevicesSince: n.devicesSince,
	}
	if n.lifted && out.Cordon != state.Open {
		out.Cordon = state.Foreign
	}
	if ns.leaving[name] {
		out.Cordon = state.ScalingDown
	}
	out.Labelled = state.BookingsOn(o.Labels, o.Annotations)
	ns.nameBookings(out.Labelled)
	ns.addAssumed(out, n)
	n.addPods(out)
	ns.claimable.add(out, o)
	n.publishes = out.Published != nil
	if before := ns.set.Find(name); before != nil && publishesLess(out, before) {
		n.devicesSince, out.DevicesSince = now, now
	}
	ns.addStrays(out, n)
	n.addUnbooked(out)
	for i := range out.Labelled {
		n.consume(&out.Labelled[i], ns.createdOf(out.Labelled[i].UID))
	}
	ns.awaitClaimers(out)
	ns.keepRoom(name, n, out, now)
	if owner, a, owned := ns.requests.owner(out.Launch); owned {
		booked := slices.ContainsFunc(out.Labelled, func(b state.Booking) bool { return b.UID == owner.object.UID })
		joining := a.InFlight() || o.Annotations[v1alpha1.CordonedAnnotation] == v1alpha1.CordonJoining
		out.InFlight = owner.status == transaction.Pending || !booked && joining // otherwise it has left the node
	}
	if out.IsUnattributed() && len(out.Labelled) == 0 {
		out.InFlight = true
	}
	for _, b := range out.Labelled {
		if ns.requests.waits(&b) {
			r := ns.requests.byUID[b.UID].object
			b.Held, b.Provisioned = transaction.IsHeld(r), transaction.ProvisionedAt(r)
			out.Bookings = append(out.Bookings, b)
		}
	}
	n.pauseIdle(len(out.Bookings) > 0, now)
	out.IdleSince = n.idleSince
	return out
}

// publishesLess reports whether drivers publish fewer devices of some class than before: a driver restarts, or devices have failed.
func publishesLess(n, before *state.Node) bool {
	if before.Published == nil {
		return false
	}
	for name, amount := range before.Published.Amounts() {
		if n.Allocatable[name] < amount {
			return true
		}
	}
	return false
}

// nameBookings sets the current queues of the bookings' requests, and the namespaces of the bookings that are not open yet.
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

// addAssumed adds the bookings that are being written and not observed yet.
func (ns *nodes) addAssumed(out *state.Node, n *node) {
	for uid, p := range ns.assumed[out.Name] {
		if slices.ContainsFunc(out.Labelled, func(b state.Booking) bool { return b.UID == uid }) {
			continue
		}
		b := state.Booking{UID: uid, Booked: p.Requests, Remaining: p.Requests.Clone(), Since: p.since}
		if e := ns.requests.byUID[uid]; e != nil {
			t := e.tenant()
			b.Key, b.Namespace, b.Queue, b.Repair = state.BookingKey(e.object.Name), t.Namespace, t.Queue, e.repair.Number
			b.Earlier = n.boundFor(b.Namespace, b.Key)
		}
		out.Labelled = append(out.Labelled, b)
	}
	state.SortBookings(out.Labelled)
}

// addPods subtracts the requests of the node's pods from its free capacity.
func (n *node) addPods(out *state.Node) {
	out.Free = out.Allocatable.Clone()
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		p := n.pods[uid]
		if p.Deleted && len(out.Labelled) == 0 {
			delete(n.pods, uid) // what it has consumed of a booking no longer matters
		}
		if p.Daemon != "" && p.Bound {
			if out.Daemons == nil {
				out.Daemons = map[types.UID]bool{}
			}
			out.Daemons[p.Daemon] = true
		}
		if !p.Finished {
			out.Free.Sub(p.Requests, 1)
			out.Running = append(out.Running, p.Running)
		}
		if p.Counts() {
			out.Pods++
			if p.Terminating {
				out.Terminating++
			}
			if p.Blocked != "" {
				out.Blocked++
			}
		}
	}
}

// createdOf returns when a request was created; zero if it is gone.
func (ns *nodes) createdOf(uid types.UID) (created time.Time) {
	if e := ns.requests.byUID[uid]; e != nil {
		created = e.object.CreationTimestamp.Time
	}
	return created
}

// consume subtracts from a booking what the gang's pods on the node have consumed of it. Pods that were bound before the request was
// created, or are recorded as earlier ones, belong to an earlier request of that name.
func (n *node) consume(b *state.Booking, created time.Time) {
	b.Staying = nodegroups.Resources{}
	for _, uid := range n.consuming(b.Namespace, b.Key) {
		p := n.pods[uid]
		if p.Finished && !p.Succeeded || p.Bound && p.BoundAt.Before(created) || slices.Contains(b.Earlier, uid) {
			continue
		}
		if p.Bound {
			b.Came = append(b.Came, p.Requests)
		}
		if !p.Finished {
			b.Running++
			if p.Bound {
				b.Ran = append(b.Ran, p.Requests)
			}
			if !p.Terminating {
				b.Staying.Add(p.Requests, 1)
			}
		}
		for name, v := range p.Requests {
			b.Remaining[name] = max(0, b.Remaining[name]-v)
		}
	}
}

// consuming returns the pods on the node, or nominated to it, that consume the capacity of a request with that key.
func (n *node) consuming(namespace, key string) (out []types.UID) {
	for uid, p := range n.pods {
		if p.Consumes.Namespace == namespace && state.BookingKey(p.Consumes.Name) == key {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// boundFor returns the consuming pods that are bound; all bound pods if the key is empty.
func (n *node) boundFor(namespace, key string) []types.UID {
	pods := n.consuming(namespace, key)
	if key == "" {
		pods = slices.Collect(maps.Keys(n.pods))
	}
	return slices.DeleteFunc(pods, func(uid types.UID) bool { return !n.pods[uid].Bound })
}

// addStrays adds the node's pods that may be moved to another node.
func (ns *nodes) addStrays(out *state.Node, n *node) {
	if !n.hasDevices() {
		return
	}
	for _, p := range n.pods {
		if p.Counts() && p.Movable != nil {
			out.Strays = append(out.Strays, state.NewStray(p.Movable, ns.lookup()))
		}
	}
	slices.SortFunc(out.Strays, func(a, b state.Stray) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i := range out.Strays {
		ns.distinguish(out.Strays[i].Keys())
	}
}

// addUnbooked adds the pods that run on a node that Muster has cordoned, and belong to no booking of it.
func (n *node) addUnbooked(out *state.Node) {
	if out.Cordon != state.Joining && out.Cordon != state.Held {
		return
	}
	for _, p := range n.pods {
		if !p.MayBeUnbooked() || slices.ContainsFunc(out.Labelled, func(b state.Booking) bool {
			return b.Namespace == p.Consumes.Namespace && b.Key == state.BookingKey(p.Consumes.Name)
		}) {
			continue
		}
		out.UnbookedPods = append(out.UnbookedPods, p.Running.Namespace+"/"+p.Name)
	}
	slices.Sort(out.UnbookedPods)
}
