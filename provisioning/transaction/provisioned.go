package transaction

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

// unreadyGrace is how long a booked node may be unready before its room counts as lost: a restart of the kubelet is no reason to move a
// gang.
const unreadyGrace = 30 * time.Second

// devicesGrace is how long a booked node may offer fewer devices than are booked before they count as lost: it offers none while its
// kubelet or device plugin restarts.
const devicesGrace = 2 * time.Minute

// nextProvisioned handles a booking until its pods have arrived or its time is over. The request stays Provisioned in the meantime,
// whatever happens to its machines: pods may have been created, and their controller takes that condition for final. Lost capacity is
// booked elsewhere or launched again.
func nextProvisioned(r *Request, v View) Step {
	rest, came := remaining(r, v.Snapshot)
	since := r.bookingSince()
	until := r.bookedUntil(since)
	until = r.bookedUntil(v.countingOnce(since, until.Sub(since)))
	isShort := r.Provisioned.Reason == ReasonBookingIsShort
	switch {
	case came >= r.Pods:
		return Step{Do: Consume, Attempt: r.Attempt, Unbook: bookedNodes(r, v), KeepLabels: true,
			Condition: over(ReasonBookingConsumed, fmt.Sprintf("All %s have been bound to booked nodes", text.Pods(r.Pods)))}
	case !v.Now.Before(until) && r.Repair != nil:
		return outOfTime(r, v, rest, came, until.Sub(since))
	case !v.Now.Before(until):
		why := fmt.Sprintf("%d of %s were bound within %s", came, text.Pods(r.Pods), until.Sub(since))
		if isShort {
			v := v.counting(nil)
			if plan := v.plan(r, rest); plan.Outcome == planner.Wait || plan.Outcome == planner.Never {
				why += "; " + shortage(r, v, rest, &plan)
			}
		}
		return expire(r, v, why)
	case len(r.Missing) > 0:
		return Step{Do: Rest, At: until} // the pods that have yet to arrive are no longer known
	}
	undoing := r.Attempt.Phase == RollingBack
	if undoing {
		s, undone := undo(r, v)
		if !undone {
			return s
		}
		r = closed(r)
		rest.Launch = ""
	}
	own, again := ownNodes(r, v)
	if s := open(r, v, own, rest); s.Do != Rest || !s.At.IsZero() {
		return s
	}
	if r.Attempt.Phase == Launching {
		s, joined := launching(r, v)
		if !joined {
			s.At = when.Earliest(s.At, until)
			return s
		}
		if all, _ := ownNodes(r.joined(), v); !suffice(v, all, rest) {
			if s, apart := gatherAgain(r, v); apart {
				return s
			}
		}
		return provision(r, v, r.provisionedBy())
	}
	switch {
	case !suffice(v, own, rest):
		return repair(r, v, own, rest, until)
	case isShort || undoing: // all lost capacity is back
		s := provision(r, v, r.provisionedBy())
		s.Do = Report
		return s
	}
	return Step{Do: Rest, At: when.Earliest(until, again)}
}

// ownNodes returns the nodes that the request has booked, or launched with success. It includes nodes that have been unready, or have
// lacked devices, only for a short time; again is when the first such grace period ends.
func ownNodes(r *Request, v View) (own *nodeset.Set, again time.Time) {
	own = nodeset.New()
	add := func(n *state.Node) {
		if grace := v.Counting(n.UnreadySince).Add(unreadyGrace); !n.Ready && !n.UnreadySince.IsZero() && v.Now.Before(grace) {
			again = when.Earliest(again, grace)
			patient := *n
			patient.Ready = true
			n = &patient
		}
		if grace := v.Counting(n.DevicesSince).Add(devicesGrace); !n.DevicesSince.IsZero() && v.Now.Before(grace) {
			if back := withDevices(n, r, v); back != nil {
				again = when.Earliest(again, grace)
				n = back
			}
		}
		own.Set(n)
	}
	for n := range v.Nodes.BookedBy(r.UID) {
		add(n)
	}
	if !r.Attempt.InFlight() && r.Attempt.Owned(r.Status) {
		for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
			add(n)
		}
	}
	return own, again
}

// withDevices returns the node with all devices that are booked there for pods that have not arrived, or that machines of its NodeGroup
// have; nil if it offers them now.
func withDevices(n *state.Node, r *Request, v View) *state.Node {
	wanted, has := nodegroups.Resources{}, n.Free
	if n.BookingOf(r.UID) != nil {
		for i := range n.Bookings {
			wanted.Add(n.Bookings[i].Remaining, 1)
		}
	} else if g := v.FindGroup(n.Group); g != nil {
		wanted, has = g.Allocatable, n.Allocatable
	}
	var out *state.Node
	for _, name := range wanted.Names() {
		lacks := wanted[name] - has[name]
		if !nodegroups.Extended(name) || lacks <= 0 {
			continue
		}
		if out == nil {
			patient := *n
			patient.Allocatable, patient.Free = n.Allocatable.Clone(), n.Free.Clone()
			patient.Published, patient.Claimable = fit.AnyDevices{}, fit.AnyDevices{}
			out = &patient
		}
		out.Allocatable[name] += lacks
		out.Free[name] += lacks
	}
	return out
}

// open opens the gang's nodes for its pods, and terminates launched machines that it does not need.
func open(r *Request, v View, own *nodeset.Set, rest state.Gang) Step {
	opened := true
	for n := range own.All() {
		b := n.BookingOf(r.UID)
		opened = opened && b != nil && b.Open
	}
	if opened {
		return Step{Do: Rest}
	}
	stay := staying(own, r)
	plan, ok := planner.Place(stay, rest)
	if !ok && stay != own {
		plan, ok = planner.Place(own, rest)
	}
	if !ok {
		return Step{Do: Rest}
	}
	if s := rebook(r, v, plan); s.Do != Rest || !s.At.IsZero() {
		s.Early = v.Active == 0
		return s
	}
	return release(r, own, func(*state.Node) bool { return true })
}

// staying returns the nodes without those that were closed for the gang to leave them. The write that unbooks them may fail after the
// others have been opened.
func staying(own *nodeset.Set, r *Request) *nodeset.Set {
	out, left := nodeset.New(), false
	for n := range own.All() {
		if b := n.BookingOf(r.UID); b == nil || b.Closed.IsZero() {
			out.Set(n)
		} else {
			left = true
		}
	}
	if !left {
		return own
	}
	return out
}

// release terminates matching machines that were launched for the gang, if it does not use them because it has room on its other nodes.
func release(r *Request, own *nodeset.Set, such func(*state.Node) bool) Step {
	s := Step{Do: Rest, Attempt: r.Attempt}
	for n := range own.All() {
		if n.Machine != nil && n.Machine.State < cloudprovider.Terminated && n.Cordon == state.Joining && n.Pods == 0 &&
			n.BookingOf(r.UID) == nil && such(n) {
			s.Do = Terminate
			s.Terminate = append(s.Terminate, *n.Machine)
		}
	}
	return s
}

// elsewhere reports whether the node is outside of the domain that all remaining pods require, because other pods arrived there while the
// node was launched.
func elsewhere(rest *state.Gang, v View, n *state.Node) bool {
	return !slices.ContainsFunc(rest.PodSets, func(ps state.PodSet) bool {
		p, _ := ps.Read(rest.Namespace, v.Objects)
		if p == nil {
			return true
		}
		for key, value := range p.Selects() {
			if is := n.Labels[key]; is != "" && is != value {
				return false
			}
		}
		return true
	})
}

// rebook books the nodes of the plan. A gang that must be together, as a whole or in slices, leaves the nodes of another domain first.
// They are closed, and the others are opened when no pod that the scheduler had assumed there can arrive any more and the API server has
// none there.
func rebook(r *Request, v View, plan planner.Verdict) Step {
	s := Step{Do: Book, Open: true, Attempt: r.Attempt}
	if s.Book, s.Unbook = r.difference(v, plan, s.Open); len(s.Book)+len(s.Unbook) == 0 {
		s.Do = Rest
		return s
	}
	open, closed, settled := leaves(r, v, s.Book, s.Unbook)
	switch {
	case len(open) > 0:
		return Step{Do: Book, Attempt: r.Attempt, Close: open}
	case v.Now.Before(settled):
		return Step{Do: Rest, Attempt: r.Attempt, At: settled}
	}
	s.Leave = closed
	return s
}

// leaves returns the nodes to unbook that were closed for it, and those that are open and in another domain than a node to book. settled
// is when the closed ones may be left for good.
func leaves(r *Request, v View, book []planner.Placement, unbook []string) (open, closed []string, settled time.Time) {
	keys := slices.Concat(r.common(), r.Gang.Levels(&r.Policy))
	for _, name := range unbook {
		n := v.Nodes.Find(name)
		switch b := n.BookingOf(r.UID); {
		case b == nil:
		case !b.Closed.IsZero():
			closed = append(closed, name)
			if at := b.Closed.Add(Settle); at.After(settled) {
				settled = at
			}
		case b.Open && slices.ContainsFunc(book, func(p planner.Placement) bool {
			to := v.Nodes.Find(p.Node)
			return slices.ContainsFunc(keys, func(key string) bool { return n.Labels[key] != to.Labels[key] })
		}):
			open = append(open, name)
		}
	}
	return open, closed, settled
}

// suffice reports whether the nodes have room for the pods. If all pods are equal, the remaining bookings show it.
func suffice(v View, own *nodeset.Set, rest state.Gang) bool {
	if len(rest.PodSets) == 1 {
		if p, _ := rest.PodSets[0].Read(rest.Namespace, v.Objects); p != nil && !p.Between() {
			left := p.Count
			for n := range own.All() {
				b := n.BookingOf(rest.UID)
				if free, ok := n.AvailableTo(&rest); ok && b != nil {
					if _, _, short := free.Short(b.Remaining); !short {
						times := b.Remaining.Times(p.Requests, left)
						if p.Claims != nil && n.Claimable != nil {
							times, _ = n.Claimable.Allocate(p.Claims, times)
						}
						left -= times
					}
				}
			}
			if left == 0 {
				return true
			}
		}
	}
	_, ok := planner.Place(own, rest)
	return ok
}

// repair plans again for the pods that have not arrived, and reports the shortage if that fails, until there is room or the booking's time
// is over. A booking that has lost machines and that no pod uses yet ends at once, so that others can use the rest.
func repair(r *Request, v View, own *nodeset.Set, rest state.Gang, until time.Time) Step {
	if s := release(r, own, func(n *state.Node) bool { return elsewhere(&rest, v, n) }); s.Do != Rest {
		return s
	}
	v = v.counting(nil) // a gang whose pods may have arrived has no time to wait for others
	plan, in := v.mend(r, rest)
	switch plan.Outcome {
	case planner.Fits, planner.Launch:
		s := rebook(r, v, plan)
		if len(s.Close) > 0 || !s.At.IsZero() {
			return s
		}
		if plan.Outcome == planner.Launch {
			s.Unbook, s.Leave = nil, nil // lost capacity may return until it is replaced
		}
		if len(s.Book)+len(s.Unbook) > 0 {
			s.Do = Repair
			s.Condition = r.underway("Lost parts of the booking were replaced: %s changed for %s", text.Nodes(len(s.Book)), text.Pods(r.Pods))
			return s
		}
		if plan.Outcome == planner.Launch {
			s := begin(r, v, plan)
			if s.Unbook = nil; s.Do == Begin {
				s.Attempt.Level, s.Attempt.Domain = in.Level, in.Value
			}
			s.At = when.Earliest(s.At, until)
			if s.Do != Begin {
				if keep, ok := keepPart(r, v, own, rest); ok {
					return keep
				}
			}
			return s
		}
	case planner.Wait, planner.Never:
		if r.Repair != nil && !isUnready(&plan) {
			return giveUp(r, plan.Message())
		}
		if v.Active == 0 && state.Lacks(&r.Gang, v.Objects, own.All()) {
			return expire(r, v, "Booked machines were lost before the pods were bound, and cannot be replaced: "+and(plan.Message(),
				unbookedPod(v.Nodes.BookedBy(r.UID))))
		}
	}
	if !isUnready(&plan) {
		if keep, ok := keepPart(r, v, own, rest); ok {
			return keep
		}
	}
	return Step{Do: Report, Attempt: r.Attempt, At: when.Earliest(until, plan.Until), Condition: provisioned(
		ReasonBookingIsShort, "The booking no longer fits: "+shortage(r, v, rest, &plan))}
}

// keepPart handles machines that were launched for the gang and have no booking because a process ended before it opened them, while other
// machines are lost and cannot be replaced for now. It opens them for as many pods as fit there, and terminates them if none does. ok is
// false if there are no such machines.
func keepPart(r *Request, v View, own *nodeset.Set, rest state.Gang) (s Step, ok bool) {
	unopened := false
	for n := range own.All() {
		unopened = unopened || n.Ready && n.Cordon == state.Joining && n.BookingOf(r.UID) == nil
	}
	if !unopened {
		return s, false
	}
	s = Step{Do: Book, Attempt: r.Attempt, Open: true}
	for _, p := range placePart(v, own, rest) {
		if v.Nodes.Find(p.Node).BookingOf(r.UID) == nil {
			s.Book = append(s.Book, p)
		}
	}
	if len(s.Book) > 0 {
		return s, true
	}
	s = release(r, own, func(n *state.Node) bool { return n.Ready })
	return s, s.Do != Rest
}

// placePart places as many pods of each podSet on the nodes as fit beside the podSets before it.
func placePart(v View, own *nodeset.Set, rest state.Gang) (placed []planner.Placement) {
	part := rest
	part.PodSets = nil
	for _, ps := range rest.PodSets {
		size, take := 1, state.PodSet.Kept
		if p, _ := ps.Read(rest.Namespace, v.Objects); p != nil {
			if slice, ok := p.Slice(ps.Count); ok {
				size, take = slice.Size, state.PodSet.Slices
			}
		}
		with := func(n int) (planner.Verdict, state.Gang, bool) {
			g := part
			kept := ps
			if n*size < ps.Count {
				kept = take(ps, rest.Namespace, v.Objects, n*size, nil)
			}
			g.PodSets = append(slices.Clip(part.PodSets), kept)
			plan, ok := planner.Place(own, g)
			return plan, g, ok
		}
		most := sort.Search(ps.Count/size, func(n int) bool { _, _, ok := with(n + 1); return !ok })
		if most == 0 {
			continue
		}
		plan, g, ok := with(most)
		if ok {
			placed, part = plan.Placement, g
		}
	}
	return placed
}

// shortage returns what the rest of a gang lacks, according to a plan for it.
func shortage(r *Request, v View, rest state.Gang, plan *planner.Verdict) string {
	left := 0
	for i := range rest.PodSets {
		left += rest.PodSets[i].Count
	}
	return fmt.Sprintf("the %s not bound yet do not all fit on the booked nodes: %s",
		text.Pods(left), and(plan.Message(), unbookedPod(v.Nodes.BookedBy(r.UID))))
}

// IsWhole reports whether all capacity of a booking exists. A request stays Provisioned while lost capacity is replaced, for the sake of
// running pods. A gang that has not started should wait: there may be no replacement.
func IsWhole(r *provreq.ProvisioningRequest) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, provreq.Provisioned)
	attempt, err := DecodeAttempt(string(r.Status.ProvisioningClassDetails[AttemptDetail]))
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason != ReasonBookingIsShort && (err != nil || !attempt.InFlight())
}

func expire(r *Request, v View, why string) Step {
	return Step{Do: Expire, Attempt: r.Attempt, Unbook: bookedNodes(r, v), KeepLabels: v.Active > 0,
		Condition: over(ReasonReservationExpired, why)}
}
