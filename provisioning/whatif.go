package provisioning

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

// Without is the snapshot as if the pods of these requests were gone, and with them
// their bookings, the room that is kept for them and what they pay. It promises no room
// that is not sure to come: pods that are not known to belong to a request stay, and so
// does whatever they mean to others.
func (s *Snapshot) Without(requests ...types.UID) *Snapshot {
	out := *s
	out.Nodes, out.Upcoming = s.Nodes.Clone(), nil
	for _, uid := range requests {
		for _, node := range slices.Collect(out.Nodes.BookedBy(uid)) {
			n := *node
			n.Free = node.Free.Clone()
			for i := range node.Labelled {
				if b := &node.Labelled[i]; b.UID == uid {
					n.Free.Add(b.leaves(), 1)
					n.Free.Add(b.Kept, 1)
					n.Pods = max(0, n.Pods-b.Running)
				}
			}
			ofOthers := func(bookings []Booking) []Booking {
				return slices.DeleteFunc(slices.Clone(bookings), func(b Booking) bool { return b.UID == uid })
			}
			n.Labelled, n.Bookings = ofOthers(node.Labelled), ofOthers(node.Bookings)
			out.Nodes.Set(&n)
		}
	}
	out.Charges = slices.DeleteFunc(slices.Clone(s.Charges), func(c Charge) bool { return slices.Contains(requests, c.Request) })
	return &out
}

// leaves is the room that comes back at least when the gang's pods leave the node.
// Which of those that came have succeeded is not known, so of each resource the
// smallest amounts count.
func (b *Booking) leaves() nodegroups.Resources {
	amounts := map[corev1.ResourceName][]int64{}
	for _, pod := range b.Came {
		for name, v := range pod {
			amounts[name] = append(amounts[name], v)
		}
	}
	out := nodegroups.Resources{}
	for name, of := range amounts {
		// A pod that came without the resource is among those with the least.
		running := b.Running - (len(b.Came) - len(of))
		slices.Sort(of)
		for _, v := range of[:min(max(0, running), len(of))] {
			out[name] += v
		}
	}
	return out
}

// Taking is the snapshot where what the plan uses is taken for a gang of the given
// owner, so that no other gang is promised it. The tenant pays.
func (s *Snapshot) Taking(owner types.UID, t Tenant, plan *Verdict) *Snapshot {
	out := *s
	out.Nodes, out.Groups = s.Nodes.Clone(), slices.Clone(s.Groups)
	for _, p := range plan.Placement {
		n := *out.Nodes.Find(p.Node)
		b := Booking{UID: owner, Namespace: t.Namespace, Queue: t.Queue, Booked: p.Requests, Remaining: p.Requests, Held: true, Since: s.Now}
		n.Bookings, n.Labelled = append(slices.Clip(n.Bookings), b), append(slices.Clip(n.Labelled), b)
		out.Nodes.Set(&n)
	}
	for _, l := range plan.Launches {
		out.findGroup(l.Group).Machines += l.Count
	}
	if s.Upcoming != nil {
		out.Upcoming = s.Upcoming.after(owner, plan, out.Nodes)
	}
	if len(s.Budgets) > 0 {
		perHour := s.asks(&Gang{UID: owner}, plan)
		out.Charges = append(slices.Clip(s.Charges), Charge{Request: owner, Tenant: t, MicroUSDPerHour: perHour, Runs: plan.Runs})
	}
	return &out
}
