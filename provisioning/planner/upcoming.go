package planner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// If a queue admits pods, they are expected after all their nodes are booked and the request is Provisioned: the first pod of a gang within
// StartsWithin, the others within ComesWithin. Other admission checks or a failing controller may delay them. A gang that counts on the
// room beside them then has waited in vain, so StartsWithin is far shorter than the boot of a machine.
const (
	StartsWithin = 20 * time.Second
	ComesWithin  = time.Minute
)

// counts reports whether the pods of the booking are expected soon, so that its room counts as used.
func (r *root) counts(b *state.Booking) bool { return r.now.Now.Before(r.comesBy[b.UID]) }

// comesBy returns until when the pods of a gang are expected. An attempt may book existing nodes long before its machines have joined.
func comesBy(nodes *nodeset.Set, uid types.UID) time.Time {
	var since time.Time
	within := StartsWithin
	for n := range nodes.BookedBy(uid) {
		b := n.BookingOf(uid)
		if b == nil {
			continue
		}
		since = when.Latest(since, when.Latest(b.Since, b.Provisioned))
		if len(b.Came) > 0 {
			within = ComesWithin
		}
	}
	return since.Add(within)
}

// NewUpcoming returns the upcoming room on the nodes of a snapshot, which the list owns. The attempts are those in flight, in the order of
// their start.
func NewUpcoming(s *Snapshot, attempts []UpcomingAttempt) *Upcoming {
	r := &root{now: s, flying: map[types.UID]bool{}, comesBy: map[types.UID]time.Time{}}
	var book, wait []UpcomingAttempt
	for _, a := range attempts {
		r.flying[a.Gang.UID] = true
		if s.Nodes.HasBookings(a.Gang.UID) && !state.Lacks(&a.Gang, s.Objects, s.Nodes.BookedBy(a.Gang.UID)) {
			book = append(book, a)
		} else {
			wait = append(wait, a)
		}
	}
	for n := range s.Nodes.OwnedBy(nodeset.Awaiting) {
		for i := range n.Bookings {
			b := &n.Bookings[i]
			if _, known := r.comesBy[b.UID]; b.Held && !r.flying[b.UID] && !known {
				r.comesBy[b.UID] = comesBy(s.Nodes, b.UID)
			}
			if r.counts(b) {
				r.until = when.Earliest(r.until, r.comesBy[b.UID])
			}
		}
	}
	out := &Upcoming{root: r}
	for _, a := range slices.Concat(book, wait) {
		out = out.With(a)
	}
	return out
}

// With returns the list with one more attempt, which starts after all others.
func (s *Upcoming) With(a UpcomingAttempt) *Upcoming {
	return &Upcoming{before: s, attempt: a, root: s.root, shares: s.shares || a.Shares}
}

// Until returns how long the list is valid if nothing changes; zero for ever.
func (s *Upcoming) Until() time.Time { return s.until }

// attempts returns all attempts of the list, in order.
func (s *Upcoming) attempts() (out []UpcomingAttempt) {
	for ; s.before != nil; s = s.before {
		out = append(out, s.attempt)
	}
	slices.Reverse(out)
	return out
}

// after returns the list after a request with that UID has started to carry out a plan, on nodes where it has booked what the plan uses of
// them.
func (s *Upcoming) after(uid types.UID, plan *Verdict, nodes *nodeset.Set) *Upcoming {
	var begins []UpcomingAttempt
	if plan.Outcome == Launch {
		a := UpcomingAttempt{Gang: *plan.Gang, Policy: *plan.Policy, Launches: plan.Launches, Shares: len(plan.Shares) > 0, Held: true}
		a.Gang.UID, a.Gang.Launch = uid, state.Token(uid, 1)
		begins = append(begins, a)
	}
	if len(plan.Placement) > 0 {
		now := *s.now
		now.Nodes = nodes.Clone()
		return NewUpcoming(&now, append(s.attempts(), begins...))
	}
	for _, a := range begins {
		s = s.With(a)
	}
	return s
}

// Without returns the list without the attempt of that request.
func (s *Upcoming) Without(uid types.UID) *Upcoming {
	switch s.Of(uid) {
	case nil:
		return s
	case s:
		return s.before
	default:
		return s.before.Without(uid).With(s.attempt)
	}
}

// idle reports whether no request is getting machines, and no pods are expected.
func (s *Upcoming) idle() bool { return s.before == nil && s.until.IsZero() }

// Of returns the list up to the attempt of that request; nil if it has none in the list.
func (s *Upcoming) Of(uid types.UID) *Upcoming {
	for ; s != nil; s = s.before {
		if s.before != nil && s.attempt.Gang.UID == uid {
			return s
		}
	}
	return nil
}

// Before returns the list up to the attempt of that request, without it; the whole list if it has none.
func (s *Upcoming) Before(uid types.UID) *Upcoming {
	if of := s.Of(uid); of != nil {
		return of.before
	}
	return s
}

// Forecast computes the result of the list, or returns it from the memo.
func (s *Upcoming) Forecast(m *Memo) forecast {
	if f, known := m.forecastOf(s); known {
		return f
	}
	f := forecast{}
	if s.before == nil {
		f.nodes = s.consumed()
	} else {
		before := s.before.Forecast(m)
		f = forecast{nodes: before.nodes.Clone(), kept: before.kept}
		if nodes, placement := s.served(before.nodes.Clone()); nodes != nil {
			f = forecast{nodes: nodes, Fits: true, kept: before.kept, placement: placement}
			if s.attempt.Shares {
				f.kept = s.keeps(before.kept, placement)
			}
		}
	}
	m.keep(s, f)
	return f
}

// consumed returns the nodes as if the expected pods had arrived.
func (s *Upcoming) consumed() *nodeset.Set {
	out := s.now.Nodes.Clone()
	for _, n := range slices.Collect(out.OwnedBy(nodeset.Awaiting)) {
		later := *n
		later.Free, later.Bookings = n.Free.Clone(), nil
		for i := range n.Bookings {
			if b := &n.Bookings[i]; s.counts(b) {
				later.Free.Sub(b.Remaining, 1)
				if later.Claimable != nil {
					later.Claimable = later.Claimable.Less(b.Remaining)
				}
			} else {
				later.Bookings = append(later.Bookings, *b)
			}
		}
		out.Set(&later)
	}
	return out
}

// keeps returns the room that is kept for the attempts before the last one, and for the last one.
func (s *Upcoming) keeps(before map[string]nodegroups.Resources, placement []Placement) map[string]nodegroups.Resources {
	out := map[string]nodegroups.Resources{}
	maps.Copy(out, before)
	for _, p := range placement {
		if n := s.now.Nodes.Find(p.Node); n != nil && !s.has(n) {
			room := p.Requests.Clone()
			room.Add(out[p.Node], 1)
			out[p.Node] = room
		}
	}
	return out
}

// has reports whether the last attempt has the node already.
func (s *Upcoming) has(n *state.Node) bool {
	return n.BookingOf(s.attempt.Gang.UID) != nil || state.IsLaunchOf(n, &s.attempt.Gang)
}

// Idle returns the idle nodes that the last attempt counts on and may book. Without a booking, they would be terminated. Nodes that an
// earlier attempt counts on, too, are left to that attempt first.
func (s *Upcoming) Idle(m *Memo) (out []Placement) {
	for _, p := range s.Forecast(m).placement {
		n := s.now.Nodes.Find(p.Node)
		if n == nil || s.has(n) || n.Machine == nil || n.IdleSince.IsZero() || s.before.Forecast(m).kept[p.Node] != nil {
			continue
		}
		if mayBook(n, &s.attempt.Gang, &p) {
			out = append(out, p)
		}
	}
	return out
}

// unkept returns the snapshot without the room that is kept for attempts in flight.
func (s *Snapshot) unkept() *Snapshot {
	if s.Upcoming == nil || !s.Upcoming.shares {
		return s
	}
	out := *s
	out.Nodes = s.Nodes.Clone()
	for name, room := range s.Upcoming.Forecast(s.Memo).kept {
		if n := s.Nodes.Find(name); n != nil {
			later := *n
			later.Free = n.Free.Clone()
			later.Free.Sub(room, 1)
			if later.Claimable != nil {
				later.Claimable = later.Claimable.Less(room)
			}
			out.Nodes.Set(&later)
		}
	}
	return &out
}

// served changes the nodes as if the attempt had its machines and its pods had arrived, and returns the places of the pods. It returns nil
// if they would not fit, or if that depends on pods that do not exist yet.
func (s *Upcoming) served(nodes *nodeset.Set) (*nodeset.Set, []Placement) {
	a := &s.attempt
	look := *s.now
	look.Nodes = nodes
	pods, refusal := look.read(&a.Gang)
	if refusal != nil {
		return nil, nil
	}
	// Machines that are nodes already are among those that the attempt launches.
	for _, n := range slices.Collect(nodes.LaunchedBy(a.Gang.Launch)) {
		nodes.Delete(n.Name)
	}
	for _, l := range a.Launches {
		g := s.now.FindGroup(l.Group)
		if g == nil {
			return nil, nil
		}
		for i := range l.Count {
			nodes.Set(g.comes(a.Gang.Launch, i))
		}
	}
	policy := a.Policy
	policy.Class = state.CheckCapacity
	q := newQuery(&look, &a.Gang, pods, policy, asItIs)
	if q.apart {
		return nil, nil
	}
	best := q.search()
	if best == nil {
		return nil, nil
	}
	placement := best.placement()
	for _, p := range placement {
		if !a.Held {
			nodes.Delete(p.Node)
			continue
		}
		n := *nodes.Find(p.Node)
		n.Free = n.Free.Clone()
		n.Free.Sub(p.Requests, 1)
		n.Claimable = q.allocated(n.Claimable, p.Pods)
		n.Bookings = slices.DeleteFunc(slices.Clone(n.Bookings), func(b state.Booking) bool { return b.UID == a.Gang.UID })
		nodes.Set(&n)
	}
	return nodes, placement
}

// allocated returns the devices of a node that are left to other gangs after so many pods of each podSet have got theirs.
func (q *query) allocated(devices fit.Devices, podSets []int) fit.Devices {
	if devices == nil {
		return nil
	}
	for i, pods := range podSets {
		if c := q.pods[i].Claims; c != nil {
			_, devices = devices.Allocate(c, pods)
		}
	}
	return devices.ForOthers()
}

// comes returns the i-th machine of a launch in the group as a node.
func (g *Group) comes(token string, i int) *state.Node {
	return &state.Node{
		Name: token + "/" + g.Name + "/" + strconv.Itoa(i), Group: g.Name, Labels: g.Labels, Taints: g.Taints, Ready: true,
		Launch: token, Allocatable: g.Allocatable, Free: g.Usable, Published: g.Published, Claimable: g.Published,
	}
}

// sharing returns a plan that uses upcoming room if it is better than the best one without.
func (q *query) sharing(best *trial) (v Verdict, ok bool) {
	switch {
	case q.Upcoming == nil || q.Upcoming.idle() || q.policy.Class != state.AtomicScaleUp || q.apart || best != nil && best.machines() == 0:
		return v, false
	case q.Nodes.HasBookings(q.gang.UID) && !q.Upcoming.flying[q.gang.UID]:
		return v, false // its own bookings count as bookings of others there
	}
	if q.Alone && best != nil && !best.overPrice() {
		return v, false
	}
	later := *q.Snapshot
	later.Nodes = q.Upcoming.Forecast(q.Memo).nodes.Clone()
	with := newQuery(&later, q.gang, q.pods, q.policy, asItIs).search()
	if with == nil || with.overPrice() || best != nil && !best.overPrice() && with.compare(best) >= 0 {
		return v, false
	}
	v = with.verdict()
	v.Outcome = Launch
	q.share(&v, later.Nodes)
	for _, l := range v.Shares {
		if g := q.FindGroup(l.Group); g != nil {
			v.Chance = max(1, v.Chance*g.Chance(l.Count, q.level(g), q.Now)/full)
		}
	}
	return v, len(v.Shares) > 0
}

// share adds the nodes that the gang cannot book now, or whose room is kept for others, to the shares of the verdict. A booking of the
// latter would block others until the gang's pods have arrived.
func (q *query) share(v *Verdict, nodes *nodeset.Set) {
	kept := q.Upcoming.Forecast(q.Memo).kept
	shares := map[string]int{}
	there := v.Placement[:0:0]
	for _, p := range v.Placement {
		if n := q.Nodes.Find(p.Node); n != nil && kept[p.Node] == nil && mayBook(n, q.gang, &p) {
			there = append(there, p)
		} else {
			shares[nodes.Find(p.Node).Group]++
		}
	}
	v.Placement, v.Shares = there, GroupCounts(shares)
}

// mayBook reports whether the gang may book the placement on the node now.
func mayBook(n *state.Node, g *state.Gang, p *Placement) bool {
	free, ok := n.AvailableTo(g)
	_, _, short := free.Short(p.Requests)
	return ok && !short
}

// SayShares says on whose machines a gang will have room.
func SayShares(shares []GroupCount) (out string) {
	for i, s := range shares {
		if i > 0 {
			out += " and "
		}
		of := "of group " + s.Group
		if s.Group == "" {
			of = "of no group"
		}
		out += fmt.Sprintf("%s %s", text.Machines(s.Count), of)
	}
	return out + " shared with other requests"
}
