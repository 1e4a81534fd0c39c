package planner

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
)

// Without returns the snapshot as if the pods of these requests were gone, with their bookings, the room that is kept for them and their
// costs. It promises only room that is certain to become free: pods that may not belong to a request stay, and so do their effects on
// others.
func (s *Snapshot) Without(requests ...types.UID) *Snapshot {
	out := *s
	out.Nodes, out.Upcoming = s.unkept().Nodes.Clone(), nil
	for _, uid := range requests {
		for _, node := range slices.Collect(out.Nodes.BookedBy(uid)) {
			n := *node
			n.Free = node.Free.Clone()
			for i := range node.Labelled {
				if b := &node.Labelled[i]; b.UID == uid {
					n.Free.Add(b.Leaves(), 1)
					n.Free.Add(b.Kept, 1)
					n.Pods = max(0, n.Pods-b.Running)
				}
			}
			ofOthers := func(bookings []state.Booking) []state.Booking {
				return slices.DeleteFunc(slices.Clone(bookings), func(b state.Booking) bool { return b.UID == uid })
			}
			n.Labelled, n.Bookings = ofOthers(node.Labelled), ofOthers(node.Bookings)
			out.Nodes.Set(&n)
		}
	}
	out.Charges = slices.DeleteFunc(slices.Clone(s.Charges), func(c spend.Charge) bool { return slices.Contains(requests, c.Request) })
	return &out
}

// Taking returns the snapshot in which a gang of the given owner uses the room of the plan, so that no other gang is promised it. The
// tenant pays.
func (s *Snapshot) Taking(owner types.UID, t state.Tenant, plan *Verdict) *Snapshot {
	out := *s
	out.Nodes, out.Groups = s.Nodes.Clone(), slices.Clone(s.Groups)
	for _, p := range plan.Placement {
		n := *out.Nodes.Find(p.Node)
		b := state.Booking{UID: owner, Namespace: t.Namespace, Queue: t.Queue, Booked: p.Requests, Remaining: p.Requests,
			Held: true, Since: s.Now}
		n.Bookings, n.Labelled = append(slices.Clip(n.Bookings), b), append(slices.Clip(n.Labelled), b)
		out.Nodes.Set(&n)
	}
	for _, l := range plan.Launches {
		out.FindGroup(l.Group).Machines += l.Count
	}
	if s.Upcoming != nil {
		out.Upcoming = s.Upcoming.after(owner, plan, out.Nodes)
	}
	if len(s.Budgets) > 0 {
		perHour := s.addedCost(&state.Gang{UID: owner}, plan)
		out.Charges = append(slices.Clip(s.Charges), spend.Charge{Request: owner, Tenant: t, MicroUSDPerHour: perHour, Runs: plan.Runs})
	}
	return &out
}
