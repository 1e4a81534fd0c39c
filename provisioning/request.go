package provisioning

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Request is a ProvisioningRequest as decisions see it.
type Request struct {
	UID       types.UID
	Namespace string
	Name      string
	Created   time.Time
	// Priority of its pods, the highest of them: more comes first.
	Priority int32
	// ValidFor is how long after its creation the request may wait for capacity.
	ValidFor time.Duration
	// NoRetry: a request that cannot be served now fails instead of waiting.
	NoRetry bool
	Gang    Gang
	// Pods is the number of pods of the gang.
	Pods int
	// Missing names the PodTemplates that the request refers to and that do not
	// exist as far as is known: the gang lacks their podSets.
	Missing []string
	// Invalid says what is wrong with the request's parameters, if anything.
	// Since they cannot be changed, it is final.
	Invalid string
	// Lacking says what the request waits for that somebody may still create.
	Lacking string
	Policy  Policy
	Attempt Attempt
	Status  Status
	// ProvisionedAt is when the request became Provisioned.
	ProvisionedAt time.Time
}

// Status is where a request stands, by its conditions.
type Status int

const (
	// Pending requests have no capacity yet.
	Pending Status = iota
	// Provisioned requests have booked capacity that waits for its pods.
	Provisioned
	// Over: Failed, BookingExpired or CapacityRevoked. Nothing is booked or made
	// for the request any more.
	Over
)

// String is the request as people write it.
func (r *Request) String() string { return r.Namespace + "/" + r.Name }

// View is what a request's next step depends on, beside the request.
type View struct {
	*Snapshot
	// Machines that carry the token of the attempt in flight, in any state.
	Machines []cloudprovider.Machine
	// Active is how many of the request's pods have not finished, bound or not.
	Active int
	// KeyTaken names another live request with the same booking key, if any.
	KeyTaken string
}

// Action is what to do for a request.
type Action int

const (
	// Rest: nothing to do until something changes, or the step's time comes.
	Rest Action = iota
	// LookUp the missing PodTemplates past all caches: only what is missing there
	// fails the request.
	LookUp
	// Report: say in the status why the request waits.
	Report
	// Fail the request for good.
	Fail
	// Book and unbook nodes as the step says.
	Book
	// Provision: all is booked; say so.
	Provision
	// Begin an attempt: record its intent. Nothing has been launched yet.
	Begin
	// LaunchMachines: call the cloud for the attempt's machines.
	LaunchMachines
	// RollBack: record that the attempt has failed.
	RollBack
	// TakeBack the machines that are left of a failed attempt.
	TakeBack
	// Consume: all pods run; lift the cordons and end the booking.
	Consume
	// Expire: the booking was not used in time or is broken; undo it.
	Expire
)

func (a Action) String() string {
	return [...]string{"Rest", "LookUp", "Report", "Fail", "Book", "Provision", "Begin", "LaunchMachines",
		"RollBack", "TakeBack", "Consume", "Expire"}[a]
}

// Step is the next thing to do for a request.
type Step struct {
	Do Action
	// Reason and Message are those of the condition that the step sets.
	Reason, Message string
	// Attempt as it will be recorded.
	Attempt Attempt
	// Book these placements and Unbook these nodes.
	Book   []Placement
	Unbook []string
	// KeepLabels: of the nodes to unbook only the cordon goes, since pods of the
	// gang are there or select them.
	KeepLabels bool
	// TakeBack these machines.
	TakeBack []cloudprovider.Machine
	// At is when to look again even if nothing changes; zero for never.
	At time.Time
}

// Reasons of conditions, as the API's contract has them.
const (
	ReasonAccepted             = "Accepted"
	ReasonCapacityIsFound      = "CapacityIsFound"
	ReasonCapacityProvisioned  = "CapacityIsProvisioned"
	ReasonCapacityIsNotFound   = "CapacityIsNotFound"
	ReasonExpired              = "Expired"
	ReasonFailedToCreatePods   = "FailedToCreatePods"
	ReasonReservationExpired   = "CapacityReservationTimeExpired"
	ReasonBookingConsumed      = "CapacityBookingConsumed"
	ReasonProvisioningUnderway = "ProvisioningInProgress"
)

const (
	// settle is how long a node that was cordoned to be booked is watched before
	// it counts: pods that the scheduler had assumed there may still land.
	settle = time.Second
	// daemonWait bounds how long a young node waits for the pods of its
	// DaemonSets.
	daemonWait = time.Minute
)

// Next says what to do for a request now. It is called again after every change
// until it answers Rest, so each step is small and may be repeated.
func Next(r *Request, v View) Step {
	switch {
	case r.Status == Over:
		return Step{Do: Rest}
	case r.Status == Provisioned:
		return nextProvisioned(r, v)
	case r.Attempt.Phase == RollingBack:
		return nextRollingBack(r, v)
	case r.Attempt.Phase == Launching:
		return nextLaunching(r, v)
	default:
		return nextPending(r, v)
	}
}

func nextPending(r *Request, v View) Step {
	deadline := r.Created.Add(r.ValidFor)
	if !v.Now.Before(deadline) {
		return endWith(r, v, Step{Do: Fail, Reason: ReasonExpired, Message: fmt.Sprintf(
			"No capacity was found within %s of the request's creation (parameter ValidUntilSeconds)", r.ValidFor)})
	}
	switch {
	case len(r.Missing) > 0:
		return endWith(r, v, Step{Do: LookUp})
	case r.Invalid != "":
		return endWith(r, v, Step{Do: Fail, Reason: ReasonCapacityIsNotFound, Message: "The request cannot be served: " + r.Invalid})
	case r.Lacking != "":
		return endWith(r, v, Step{Do: Report, Reason: ReasonCapacityIsNotFound, At: deadline, Message: "The request cannot be served yet: " + r.Lacking})
	case v.KeyTaken != "":
		return endWith(r, v, Step{Do: Report, Reason: ReasonCapacityIsNotFound, At: deadline, Message: fmt.Sprintf(
			"Request %s is booked under the same key %s; this one is served when that one has ended", v.KeyTaken, BookingKey(r.Name))})
	}
	plan := Plan(v.Snapshot, r.Gang, r.Policy)
	switch {
	case plan.Outcome == Fits:
		return book(r, v, plan, ReasonCapacityIsFound)
	case plan.Outcome == Launch:
		a := Attempt{Number: r.Attempt.Number + 1, Phase: Launching, Launches: plan.Launches, Started: v.Now}
		return Step{Do: Begin, Attempt: a, Book: plan.Placement, Reason: ReasonProvisioningUnderway, Message: launchMessage(a, plan)}
	case plan.Outcome == Never || r.NoRetry:
		return endWith(r, v, Step{Do: Fail, Reason: ReasonCapacityIsNotFound, Message: sentence("Capacity can not be found", plan)})
	}
	at := deadline
	if !plan.Until.IsZero() && plan.Until.Before(at) {
		at = plan.Until
	}
	return endWith(r, v, Step{Do: Report, Reason: ReasonCapacityIsNotFound, Message: sentence("Capacity is not found now", plan), At: at})
}

// endWith makes sure that nothing stays booked when the request ends or waits.
func endWith(r *Request, v View, s Step) Step {
	if booked := bookedNodes(r, v); len(booked) > 0 {
		return Step{Do: Book, Unbook: booked}
	}
	s.Attempt = r.Attempt
	return s
}

// book compares what should be booked with what is.
func book(r *Request, v View, plan Verdict, reason string) Step {
	want := map[string]bool{}
	s := Step{Do: Book, Reason: reason}
	var ready time.Time
	for _, p := range plan.Placement {
		want[p.Node] = true
		n := v.Nodes.Find(p.Node)
		since, booked := bookingOf(n, r.UID)
		if !booked {
			s.Book = append(s.Book, p)
			continue
		}
		if at := since.Add(settle); n.Cordon == Held && !isLaunchOf(n, &r.Gang) && at.After(ready) {
			ready = at
		}
	}
	for _, name := range bookedNodes(r, v) {
		if !want[name] {
			s.Unbook = append(s.Unbook, name)
		}
	}
	switch {
	case len(s.Book)+len(s.Unbook) > 0:
		return s
	case v.Now.Before(ready):
		return Step{Do: Rest, At: ready}
	}
	a := r.Attempt
	a.Phase = Done
	return Step{Do: Provision, Attempt: a, Reason: reason, Message: fmt.Sprintf(
		"%s booked for %s until %s", nodes(len(plan.Placement)), pods(r.Pods),
		v.Now.Add(r.Policy.BookingTimeout).UTC().Format(time.RFC3339))}
}

func nextLaunching(r *Request, v View) Step {
	if len(r.Missing) > 0 {
		return rollBack(r, r.Attempt.Launches[0].Group, v1alpha1.Config, fmt.Sprintf("the PodTemplates %q have been deleted meanwhile", r.Missing))
	}
	made := map[string]int{}
	for _, m := range v.Machines {
		made[m.Group]++
		if m.State == cloudprovider.Terminated {
			return rollBack(r, m.Group, v1alpha1.Lost, fmt.Sprintf("machine %s ended while it started: %s", m.Name, m.Reason))
		}
	}
	joined, waitingFor, at := joining(r, v)
	complete := true
	for _, l := range r.Attempt.Launches {
		g := v.findGroup(l.Group)
		if g == nil {
			return rollBack(r, l.Group, v1alpha1.Config, "the NodeGroup has been deleted")
		}
		if made[l.Group] < l.Count {
			complete = false
			waitingFor = fmt.Sprintf("the cloud has made %d", made[l.Group])
		}
		deadline := r.Attempt.Started.Add(g.JoinTimeout)
		if at.IsZero() || deadline.Before(at) {
			at = deadline
		}
		if asked := r.Attempt.machines(); !v.Now.Before(deadline) && joined < asked {
			return rollBack(r, l.Group, v1alpha1.Timeout, fmt.Sprintf(
				"%d of %s were ready within %s (spec.joinTimeout); %s", joined, machines(asked), g.JoinTimeout, waitingFor))
		}
	}
	if !complete {
		return Step{Do: LaunchMachines, Attempt: r.Attempt, At: at}
	}
	if joined < len(v.Machines) {
		return Step{Do: Rest, At: at}
	}
	look := r.Policy
	look.Class = CheckCapacity
	plan := Plan(v.Snapshot, r.Gang, look)
	if plan.Outcome == Fits {
		return book(r, v, plan, ReasonCapacityProvisioned)
	}
	group, class, why := blame(r, v)
	return rollBack(r, group, class, why+": "+plan.Message())
}

// isLaunchOf says that the node's machine was launched by the gang's attempt in
// flight.
func isLaunchOf(n *Node, g *Gang) bool { return g.Launch != "" && n.Launch == g.Launch }

// blame says why machines that have all joined do not hold the gang: a group's
// template that promised more than its nodes give, or somebody who came first.
func blame(r *Request, v View) (group string, class v1alpha1.ErrorClass, why string) {
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if g := v.findGroup(n.Group); g != nil {
			if name, by, short := n.Allocatable.Short(g.Allocatable); short {
				return g.Name, v1alpha1.Config, fmt.Sprintf("node %s has %s %s less than spec.template of its group promises",
					n.Name, nodegroups.Quantity(name, by), name)
			}
		}
	}
	return r.Attempt.Launches[0].Group, v1alpha1.Lost, "the machines joined, but others took room that was planned for the gang"
}

// joining counts the nodes of the attempt that are ready for pods, and says what
// the first other one waits for.
func joining(r *Request, v View) (joined int, waitingFor string, at time.Time) {
	registered := 0
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		registered++
		why, again := unready(n, v.Snapshot)
		if why == "" {
			joined++
			continue
		}
		if waitingFor == "" {
			waitingFor = fmt.Sprintf("node %s %s", n.Name, why)
		}
		if !again.IsZero() && (at.IsZero() || again.Before(at)) {
			at = again
		}
	}
	if waitingFor == "" && registered < len(v.Machines) {
		waitingFor = fmt.Sprintf("%s have not registered a node", machines(len(v.Machines)-registered))
	}
	return joined, waitingFor, at
}

// unready says what a young node lacks to take the gang's pods, or is empty.
// again is when waiting for it ends.
func unready(n *Node, s *Snapshot) (why string, again time.Time) {
	if !n.Ready {
		return "is not Ready", again
	}
	g := s.findGroup(n.Group)
	if g == nil {
		return "belongs to no NodeGroup", again
	}
	for i := range n.Taints {
		if t := &n.Taints[i]; keepsOff(t) && !slices.ContainsFunc(g.Taints, func(o corev1.Taint) bool {
			return o.Key == t.Key && o.Value == t.Value && o.Effect == t.Effect
		}) {
			return "still has the taint " + t.ToString(), again
		}
	}
	for _, name := range g.Allocatable.Names() {
		if nodegroups.Extended(name) && n.Allocatable[name] < g.Allocatable[name] {
			return fmt.Sprintf("offers %d of %d %s", n.Allocatable[name], g.Allocatable[name], name), again
		}
	}
	if until := n.Created.Add(daemonWait); s.Now.Before(until) {
		for i := range s.DaemonSets {
			d := &s.DaemonSets[i]
			if !n.Daemons[d.UID] && d.RunsOn(n.Name, n.Labels, n.Taints) {
				return "waits for a pod of DaemonSet " + d.Name, until
			}
		}
	}
	return "", again
}

// keepsOff says that the taint keeps pods off, other than by a cordon.
func keepsOff(t *corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable
}

func rollBack(r *Request, group string, class v1alpha1.ErrorClass, message string) Step {
	a := r.Attempt
	a.Phase = RollingBack
	a.Failure = &AttemptFailure{Group: group, Class: class, Message: message}
	return Step{Do: RollBack, Attempt: a}
}

// Refused is the step after the cloud has refused an attempt's launch in a group.
func Refused(r *Request, group string, got int, refusal *cloudprovider.Error) Step {
	return rollBack(r, group, refusal.Class, fmt.Sprintf("%d of %s came: %s",
		got, machines(r.Attempt.Machines(group)), refusal))
}

func nextRollingBack(r *Request, v View) Step {
	var left []cloudprovider.Machine
	for _, m := range v.Machines {
		if m.State < cloudprovider.Terminated {
			left = append(left, m)
		}
	}
	if len(left) > 0 {
		return Step{Do: TakeBack, Attempt: r.Attempt, TakeBack: left}
	}
	for range v.Nodes.LaunchedBy(r.Gang.Launch) {
		return Step{Do: Rest} // its deletion will be seen
	}
	closed := *r
	closed.Attempt.Phase = Done
	closed.Gang.Launch = ""
	return nextPending(&closed, v)
}

func nextProvisioned(r *Request, v View) Step {
	booked := bookedNodes(r, v)
	bound := boundPods(r, v)
	if bound >= r.Pods {
		return Step{Do: Consume, Attempt: r.Attempt, Unbook: booked, KeepLabels: true, Reason: ReasonBookingConsumed,
			Message: fmt.Sprintf("All %s have been bound to booked nodes", pods(r.Pods))}
	}
	expire := func(message string) Step {
		return Step{Do: Expire, Attempt: r.Attempt, Unbook: booked, KeepLabels: v.Active > 0, Reason: ReasonReservationExpired, Message: message}
	}
	if bound == 0 && len(r.Missing) == 0 {
		own := NewNodes()
		for _, name := range booked {
			own.Set(v.Nodes.Find(name))
		}
		if plan, ok := Place(own, r.Gang); !ok {
			return expire("A booked machine was lost before the pods came: " + plan.Message())
		}
	}
	until := r.ProvisionedAt.Add(r.Policy.BookingTimeout)
	if !v.Now.Before(until) {
		return expire(fmt.Sprintf("%d of %s came within %s", bound, pods(r.Pods), r.Policy.BookingTimeout))
	}
	return Step{Do: Rest, At: until}
}

// bookedNodes are those that the request has booked, by name.
func bookedNodes(r *Request, v View) (names []string) {
	for n := range v.Nodes.BookedBy(r.UID) {
		if _, ok := bookingOf(n, r.UID); ok {
			names = append(names, n.Name)
		}
	}
	return names
}

// boundPods is how many of the request's pods are on the nodes that it has booked,
// those that have succeeded there included.
func boundPods(r *Request, v View) (n int) {
	for node := range v.Nodes.BookedBy(r.UID) {
		for _, b := range node.Labelled {
			if b.UID == r.UID {
				n += b.Pods
			}
		}
	}
	return n
}

func bookingOf(n *Node, uid types.UID) (since time.Time, ok bool) {
	for i := range n.Bookings {
		if n.Bookings[i].UID == uid {
			return n.Bookings[i].Since, true
		}
	}
	return time.Time{}, false
}

func launchMessage(a Attempt, plan Verdict) string {
	parts := make([]string, len(a.Launches))
	for i, l := range a.Launches {
		parts[i] = fmt.Sprintf("%s of group %s", machines(l.Count), l.Group)
	}
	return fmt.Sprintf("Attempt %d launches %s for %s USD per hour", a.Number, strings.Join(parts, " and "), USD(plan.MicroUSDPerHour))
}

// messageLimit is within what conditions hold (32,768 bytes) and people read.
const messageLimit = 4096

func sentence(start string, v Verdict) string {
	return Clip(start+": "+v.Message(), messageLimit)
}

func pods(n int) string     { return plural(n, "pod") }
func nodes(n int) string    { return plural(n, "node") }
func machines(n int) string { return plural(n, "machine") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
