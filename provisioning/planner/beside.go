package planner

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// mostBeside limits how many nodes are searched for room beside other gangs. The nodes with the least remaining room come first.
const mostBeside = 8

// beside plans on one node that other gangs have booked and not all of whose pods have arrived. The scheduler keeps a gang to its
// booking on a node if all of its outstanding pods are booked there; so the remaining room can be booked by count, without waiting
// for pods that never arrive.
func (q *query) beside() (v Verdict, ok bool) {
	if q.Upcoming == nil || q.gang.UID == "" || q.apart || q.Nodes.HasBookings(q.gang.UID) {
		return v, false
	}
	all := nodegroups.Resources{}
	for _, p := range q.pods {
		all.Add(p.Requests, p.Count)
	}
	type candidate struct {
		*state.Node
		left int64
	}
	var candidates []candidate
	for n := range q.Nodes.OwnedBy(nodeset.Awaiting) {
		if left, takes := q.leftBeside(n, all); takes {
			candidates = append(candidates, candidate{n, devices(left)})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.left, b.left), strings.Compare(a.Name, b.Name)) })
	for _, c := range candidates[:min(len(candidates), mostBeside)] {
		with := *q.Snapshot
		with.Nodes = q.Nodes.Clone()
		n := *c.Node
		own := state.Booking{UID: q.gang.UID, Key: q.gang.Key} // it comes before other nodes
		n.Bookings, n.Labelled = append(slices.Clip(n.Bookings), own), append(slices.Clip(n.Labelled), own)
		with.Nodes.Set(&n)
		best := newQuery(&with, q.gang, q.pods, q.policy, asItIs).search()
		if best == nil || best.machines() > 0 {
			continue
		}
		if v = best.verdict(); !slices.ContainsFunc(v.Placement, func(p Placement) bool { return p.Node != n.Name }) {
			return v, true
		}
	}
	return v, false
}

// leftBeside returns the room of a node after all outstanding pods of the gangs that have booked it; takes is false if they cannot
// share the node.
func (q *query) leftBeside(n *state.Node, all nodegroups.Resources) (left nodegroups.Resources, takes bool) {
	for i := range n.Bookings {
		if b := &n.Bookings[i]; q.Upcoming.flying[b.UID] || !q.allOn(n, b) {
			return nil, false
		}
	}
	if slices.ContainsFunc(q.pods, func(p *fit.Pod) bool {
		// The devices of the other gangs' claims are not determined yet.
		return !p.Matches(n.Name, n.Labels, n.Taints) || p.Claims != nil && n.Claimable != nil
	}) {
		return nil, false
	}
	left = n.Unbooked()
	if _, _, short := left.Short(all); short {
		return nil, false
	}
	left.Sub(all, 1)
	return left, true
}

// allOn reports whether all pods of the booking's gang that are still to come are booked on the node.
func (q *query) allOn(n *state.Node, b *state.Booking) bool {
	for other := range q.Nodes.BookedBy(b.UID) {
		if other.Name != n.Name && other.BookingOf(b.UID) != nil {
			return false
		}
	}
	return true
}
