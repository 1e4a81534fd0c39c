package scaledown

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// A machine that stands idle is terminated in steps, each decided from a new look:
//
//	         idle for idleTimeout        settled, nothing but strays        nothing left
//	idle ────────────────────────▶ cordoned ─────────────────▶ being drained ─────────▶ terminated
//	 ▲                                │ a pod that must stay came    │
//	 └────────────────────────────────┴──── held up for drainBound ──┘
//
// An idle machine that Muster has launched is held until then: requests may book it, and no pod without a booking comes to it, which
// would keep it at the expense of no budget. The minimum of a group stays open.
//
// Idle is a machine that no request has booked, that no launch under way may have made, that runs no pod but those of
// DaemonSets, static ones and strays, and that keeps no room for pods to come again.
// No cordon but Muster's own is touched, no group goes below its minimum, and no
// machine goes whose node is annotated to be kept. An empty machine goes
// before one with strays, also where that one is being drained already.
const (
	// labelLinger is how long a node keeps the label of a gang that has ended and whose request is gone: a failed pod may be recreated,
	// and selects the label.
	labelLinger = time.Minute
	// onOffer is the minimum time for which a machine stays idle, whatever its group specifies: a queued job that gets the quota of the
	// ended one has its request by then.
	onOffer = 2 * time.Second
	// offerBound is how long undecided requests stop the scale-down of idle machines. By then, each of them has been decided once with
	// these machines available, even in a cluster where there are always undecided requests.
	offerBound = 10 * time.Second
	// offerAgain is the interval between two checks of undecided requests.
	offerAgain = 500 * time.Millisecond
	// unregisteredBound is how long a machine that no attempt waits for may be without a node. MissingBound is the time for a machine
	// that has had a node: people delete a node and restart its kubelet as a remedy, while its pods still run.
	unregisteredBound = 20 * time.Second
	MissingBound      = 10 * time.Minute
	// haltedBound is how long a machine that its cloud has stopped is kept: clouds stop machines to maintain their hardware, and start
	// them again.
	haltedBound = 10 * time.Minute
	// unbookedBound is how long a node that was created cordoned waits until the cloud lists its machine as launched by Muster: lists lag
	// behind. After that, the node of any other machine is uncordoned.
	unbookedBound = 2 * time.Minute
	// mostDrains is how many machines are drained at the same time. Of one group, it is at most the number that may be in doubt at once.
	mostDrains = 10
	// drainBound is how long the drain of a machine may take before it counts as held up. Then its cordon is lifted, and it is left alone
	// for drainPause.
	drainBound = 5 * time.Minute
	drainPause = 30 * time.Minute
	// evictAgain is the interval between two evictions of the same pod.
	evictAgain = 10 * time.Second
	// remainsFor is how long the Node of an ended machine is left to others, such as the cloud controller manager, after its kubelet has
	// become silent.
	remainsFor = time.Minute
	// roomAgain is the interval between two checks whether strays fit elsewhere, unless a node joins before.
	roomAgain = time.Minute
)

// Fleet is the input of scale-down.
type Fleet struct {
	*planner.Snapshot
	// Requests that exist.
	Requests map[types.UID]bool
	// InFlight are the tokens of attempts in flight, whose requests manage their machines themselves.
	InFlight map[string]bool
	// Unregistered machines have not ended and have no node, by group and name.
	Unregistered []cloudprovider.Machine
	// Missing are the running machines that have had a node, as far as is known, and that no attempt in flight waits for.
	Missing []Missing
	// Halted machines of launches are stopped, by group and name.
	Halted []Halted
	// Undecided reports whether some request that waits for capacity is about to be
	// decided.
	Undecided bool
	// Consumers returns how many unfinished pods consume the request with that namespace and booking key, and when the last of them, or
	// the request itself, ended.
	Consumers func(namespace, key string) (active int, ended time.Time)
	// Evictions that were tried recently, by pod.
	Evictions map[types.UID]Eviction
	// Past is what the previous pass recorded.
	Past Past
}

// Halted is a machine that its cloud has stopped and may start again.
type Halted struct {
	cloudprovider.Machine
	// HadNode reports whether it has had a node, as far as is known.
	HadNode bool
}

// Eviction is the result of an eviction.
type Eviction struct {
	At time.Time
	// Refusal is empty if it was granted.
	Refusal string
}

// Past is what a pass records for the next one. A process starts with an empty one, and measures its times from its first pass.
type Past struct {
	// Leaving is since when a node has been seen cordoned for termination.
	Leaving map[string]time.Time
	// Spared nodes are not terminated before their time.
	Spared map[string]time.Time
	// Cramped nodes run strays that had no room elsewhere. They stay until that time, or until more nodes take pods than Schedulable, the
	// number at that time.
	Cramped     map[string]time.Time
	Schedulable int
	// Unregistered is since when running machines have been without a node, by group/name.
	Unregistered map[string]time.Time
	// Halted is since when machines have been stopped, by group/name.
	Halted map[string]time.Time
	// Deferred is since when idle machines have been kept for requests that are about
	// to be decided; zero if they are not.
	Deferred time.Time
}

// Decision is the result of a pass.
type Decision struct {
	// Adopt these nodes: their machines were launched by Muster, and they are not marked yet.
	Adopt []Adoption
	// Lift the cordon of these nodes, which has Muster's mark and serves no request, and remove the mark if others have lifted the
	// cordon.
	Lift []string
	// Disown the cordon of these nodes: it has Muster's mark, and others count on it.
	Disown []string
	// Noticed nodes have an interruption notice of their cloud's agents.
	Noticed []*state.Node
	// Hold these idle nodes for requests that may book them, until their machines are terminated.
	Hold []string
	// Cordon these nodes to give them back: they have been idle for too long.
	Cordon []string
	// Unlabel these nodes of these booking keys.
	Unlabel []Label
	// Evict these pods from machines that leave.
	Evict []state.Stray
	// Terminate terminates these machines: orphans, those that are cordoned and still idle, and those that have been stopped for long.
	Terminate []Return
	// Delete these nodes: their machines were launched by Muster and have ended.
	Delete []string
	// HeldUp machines could not be terminated; their nodes are in Lift.
	HeldUp []HeldUp
	// Doubts has the doubts by group that stop terminations until a person decides.
	Doubts map[string]Doubt
	// Past is for the next pass.
	Past Past
	// At is the time of the next pass even if nothing changes; zero for never.
	At time.Time
}

// Adoption is the node of a machine of Muster that is not marked yet.
type Adoption struct {
	Node    string
	Machine cloudprovider.Machine
	// Cordon: the attempt that launched it is in flight.
	Cordon bool
}

// Return is a machine to terminate; Node is empty if it has none.
type Return struct {
	cloudprovider.Machine
	Node string
}

// Label is the booking label of a key on a node.
type Label struct{ Node, Key string }

// HeldUp is a machine that no request needs and that cannot be terminated.
type HeldUp struct {
	Machine cloudprovider.Machine
	// Message names the pods that hold it, and why.
	Message string
}

// Plan decides about the cordons and labels that no request needs, the machines that no attempt owns, and idle machines.
func Plan(f Fleet) Decision {
	t := scaleDown{Fleet: &f, doubts: newDoubts(&f), missing: map[string]bool{}, spare: map[string]int{}, strained: map[string]bool{}}
	t.u.Doubts = map[string]Doubt{}
	t.u.Past = Past{Leaving: map[string]time.Time{}, Spared: map[string]time.Time{}, Cramped: map[string]time.Time{},
		Unregistered: map[string]time.Time{}, Halted: map[string]time.Time{}}
	for _, m := range f.Missing {
		t.missing[m.Group+"/"+m.Name] = true
	}
	for _, n := range t.walk() {
		t.node(n)
	}
	for _, m := range f.Unregistered {
		t.unregistered(m)
	}
	for _, m := range f.Halted {
		t.halted(m)
	}
	for group, d := range t.doubts {
		if !d.At.IsZero() {
			t.again(d.At)
		}
		if d.Keeps() && !d.Until.IsZero() {
			t.again(d.Until)
		}
		if (d.Braked() || d.KeepsIdle()) && !t.isForeign(group) {
			t.u.Doubts[group] = d
		}
	}
	t.offer()
	t.relieve()
	t.drain()
	t.retire()
	t.hold()
	return t.u
}

// scaleDown is one pass over the fleet.
type scaleDown struct {
	*Fleet
	u Decision
	// doubts are the doubts about each group; missing has the Missing by group/name.
	doubts  doubts
	missing map[string]bool
	// spare is the number of machines of each group above its minimum after those that are leaving.
	spare map[string]int
	// idle machines whose time has come; unused ones will be, and draining ones still run strays.
	idle, unused, draining []*state.Node
	// held are the nodes that no request has booked.
	held []*state.Node
	// strained are the groups with leaving machines that still run pods: an empty machine may be terminated instead of one of them.
	strained map[string]bool
	// shelter are the nodes that strays may move to, after the moves that were planned before; nil until it is needed.
	shelter *nodeset.Set
}

// isLaunching reports whether the node's machine belongs, or may belong, to a launch in flight, whose request manages it.
func isLaunching(n *state.Node) bool { return n.InFlight || n.IsUnattributed() }

// walk visits every node once. It counts the machines of each group that have joined and are not leaving. Machines of launches in flight
// do not count, since they may be rolled back. It returns the nodes that may need a change: in most fleets, most nodes are in use.
func (t *scaleDown) walk() (out []*state.Node) {
	for i := range t.Groups {
		t.spare[t.Groups[i].Name] = -t.Groups[i].Min
	}
	for n := range t.Nodes.All() {
		t.doubts.count(t.Fleet, n)
		if n.Notice != "" && n.Ready {
			t.u.Noticed = append(t.u.Noticed, n)
		}
		if n.Cordon == state.Open && n.Ready {
			t.u.Past.Schedulable++
		}
		t.labels(n)
		if t.adopt(n) {
			continue // until it is marked, nothing else of it can be judged
		}
		switch leaves := n.Leaves(t.Now); {
		case n.Machine == nil:
		case !isLaunching(n) && !leaves:
			t.spare[n.Machine.Group]++
		case leaves && n.Pods > 0:
			t.strained[n.Machine.Group] = true
		}
		if inUse := n.Cordon == state.Open && !n.Marked && n.Pods > len(n.Strays) && n.UnreadySince.IsZero(); !inUse {
			out = append(out, n)
		}
	}
	return out
}

// isForeign reports whether a cluster-autoscaler scales the group. Then only that autoscaler terminates machines there, even those that
// never join.
func (t *scaleDown) isForeign(group string) bool {
	g := t.FindGroup(group)
	return g != nil && g.Foreign
}

// again schedules the next pass at that time or earlier.
func (t *scaleDown) again(at time.Time) {
	if t.u.At.IsZero() || at.Before(t.u.At) {
		t.u.At = at
	}
}

// labels takes those of gangs off that have ended.
func (t *scaleDown) labels(n *state.Node) {
	for _, b := range n.Labelled {
		if !b.KeptUntil.IsZero() {
			t.again(b.KeptUntil) // then others may have the room
		}
		active, ended := t.Consumers(b.Namespace, b.Key)
		if t.Requests[b.UID] || active > 0 {
			continue
		}
		if at := ended.Add(labelLinger); t.Now.Before(at) {
			t.again(at)
		} else {
			t.u.Unlabel = append(t.u.Unlabel, Label{n.Name, b.Key})
		}
	}
}

// adopt marks the node of a cloud's machine, unless it is marked. A simulated node is created with its mark.
func (t *scaleDown) adopt(n *state.Node) bool {
	if n.Machine == nil || n.Machine.Launch == "" || n.Launch != "" {
		return false
	}
	t.u.Adopt = append(t.u.Adopt, Adoption{n.Name, *n.Machine, t.InFlight[n.Machine.Launch]})
	return true
}

func (t *scaleDown) node(n *state.Node) {
	switch {
	case t.vanished(n):
		t.u.Delete = append(t.u.Delete, n.Name)
	case n.Ended && n.Launch != "":
		t.remains(n)
	case n.Cordon == state.Open && n.Marked:
		t.u.Lift = append(t.u.Lift, n.Name)
	case n.Cordon == state.Foreign && n.Marked:
		t.u.Disown = append(t.u.Disown, n.Name)
	case n.Cordon == state.Foreign || len(n.Bookings) > 0 || isLaunching(n):
	case n.Cordon == state.Held && n.Machine == nil && n.Launch != "" && !n.Ready:
		// Its machine has ended, or is stopped.
	case n.Cordon == state.Held:
		t.held = append(t.held, n)
		if n.Machine != nil && !n.Kept {
			t.open(n)
		}
	case n.Cordon == state.Joining:
		t.orphan(n)
	case n.Cordon == state.ScalingDown:
		t.leaving(n)
	case n.Machine != nil && !n.Kept:
		t.open(n)
	}
}

// remains handles a node whose machine has ended. Without a cloud controller manager, nothing else deletes it. If its kubelet still
// reports, the cloud's list is wrong.
func (t *scaleDown) remains(n *state.Node) {
	if n.UnreadySince.IsZero() {
		return
	}
	if at := t.Counting(n.UnreadySince).Add(remainsFor); t.Now.Before(at) {
		t.again(at)
		return
	}
	t.u.Delete = append(t.u.Delete, n.Name)
}

// vanished reports whether the machine of the node is gone and no longer listed by its cloud: a process that was started since has never
// seen the machine. The only evidence is a long silence of the kubelet, and it counts only for a few machines at once.
func (t *scaleDown) vanished(n *state.Node) bool {
	if !n.Forgotten || n.Launch == "" || n.UnreadySince.IsZero() || t.FindGroup(n.Group) == nil {
		return false
	}
	if at := t.Counting(n.UnreadySince).Add(state.LostAfter); t.Now.Before(at) {
		t.again(at)
		return false
	}
	return !t.doubts[n.Group].Keeps()
}

// orphan handles a young node whose attempt is over, or that others have launched beside an attempt.
func (t *scaleDown) orphan(n *state.Node) {
	stranger := n.Launch == "" && (n.Machine == nil || n.Machine.Launch == "")
	switch bound := n.Created.Add(unbookedBound); {
	case stranger && t.Now.Before(bound):
		t.again(bound)
	case n.Pods > 0 || stranger || n.Machine != nil && t.isForeign(n.Machine.Group):
		t.keep(n)
	case n.Machine != nil:
		t.terminate(n)
	}
	// A node without a machine needs no termination.
}

// keep opens a node that was to go.
func (t *scaleDown) keep(n *state.Node) {
	t.u.Lift = append(t.u.Lift, n.Name)
	if n.Machine != nil && n.Leaves(t.Now) {
		t.spare[n.Machine.Group]++
	}
}

func (t *scaleDown) terminate(n *state.Node) {
	t.u.Terminate = append(t.u.Terminate, Return{*n.Machine, n.Name})
}

// leaving handles a node that was cordoned for termination.
func (t *scaleDown) leaving(n *state.Node) {
	since, seen := t.Past.Leaving[n.Name]
	if !seen {
		since = t.Now
	}
	t.u.Past.Leaving[n.Name] = since
	settled := since.Add(transaction.Settle)
	switch bound := since.Add(drainBound); {
	case n.Machine == nil:
		// It ends by itself.
	case isInDoubt(n, t.Now) && t.doubts[n.Machine.Group].Keeps():
	case !n.Vacant(t.Now) || n.Kept || t.spare[n.Machine.Group] < 0 || t.isForeign(n.Machine.Group):
		t.keep(n)
	case t.Now.Before(settled):
		t.again(settled) // pods that the scheduler had assumed there may still land
	case n.Pods == 0 || t.isLost(n) && n.Pods == n.Terminating:
		t.terminate(n)
	case !t.Now.Before(bound):
		t.u.HeldUp = append(t.u.HeldUp, HeldUp{*n.Machine, t.heldUp(n)})
		t.u.Past.Spared[n.Name] = t.Now.Add(drainPause)
		t.keep(n)
	default:
		t.again(bound)
		t.draining = append(t.draining, n)
	}
}

// isLost reports whether the kubelet has been silent for so long, while the control plane responded, that the node counts as lost.
func (t *scaleDown) isLost(n *state.Node) bool {
	return n.Lost(t.Now) && !t.Now.Before(t.Counting(n.UnreadySince).Add(state.LostAfter))
}

// open handles a node that any pod and any request may use. Machines of a deleted NodeGroup are terminated only if Muster has launched
// them.
func (t *scaleDown) open(n *state.Node) {
	if isInDoubt(n, t.Now) && t.doubts[n.Machine.Group].Keeps() {
		t.unused = append(t.unused, n)
		return
	}
	timeout, paid := nodegroups.DefaultIdleTimeout, false
	if g := t.FindGroup(n.Machine.Group); g != nil {
		if g.Foreign {
			return
		}
		timeout, paid = g.IdleTimeout, isPaid(g)
	} else if n.Machine.Launch == "" {
		return
	}
	if spared := t.Past.Spared[n.Name]; len(n.Strays) > 0 && t.Now.Before(spared) {
		t.u.Past.Spared[n.Name] = spared
		t.again(spared)
		return
	}
	if until := t.Past.Cramped[n.Name]; len(n.Strays) > 0 && t.Now.Before(until) && t.u.Past.Schedulable <= t.Past.Schedulable {
		t.u.Past.Cramped[n.Name] = until
		t.again(until)
		return
	}
	var at time.Time
	if n.Pods == len(n.Strays) && !paid {
		at = idleAt(n, timeout)
	}
	lost := t.Counting(n.UnreadySince).Add(state.LostAfter)
	if !n.UnreadySince.IsZero() && n.Pods == n.Terminating && (at.IsZero() || lost.Before(at)) {
		at = lost
	}
	mayGo := t.spare[n.Machine.Group] > 0 || len(n.Strays) == 0 && t.strained[n.Machine.Group]
	switch {
	case at.IsZero() || !mayGo:
	case t.Now.Before(at):
		t.again(at)
		t.unused = append(t.unused, n)
	case !t.unrequestedAt(n).IsZero() && t.doubts[n.Machine.Group].KeepsIdle():
	default:
		t.idle = append(t.idle, n)
	}
}

// unregistered handles a machine without a node. If it has never had one and no attempt waits for it, it is an orphan.
func (t *scaleDown) unregistered(m cloudprovider.Machine) {
	if m.Launch == "" || t.InFlight[m.Launch] || t.isForeign(m.Group) {
		return
	}
	if m.State == cloudprovider.Running {
		key := m.Group + "/" + m.Name
		since, seen := t.Past.Unregistered[key]
		if !seen {
			since = t.Now
		}
		t.u.Past.Unregistered[key] = since
		missing := t.missing[key]
		bound := unregisteredBound
		if missing && !t.doubts[m.Group].lost() {
			bound = MissingBound
		}
		if at := t.Counting(since).Add(bound); t.Now.Before(at) {
			t.again(at)
			return
		}
		if missing && t.doubts[m.Group].Keeps() {
			return
		}
	}
	t.u.Terminate = append(t.u.Terminate, Return{Machine: m})
}

// halted is a stopped machine: its disks are billed, and it counts towards the size of its cloud's
// group.
func (t *scaleDown) halted(m Halted) {
	if t.isForeign(m.Group) {
		return
	}
	key := m.Group + "/" + m.Name
	since, seen := t.Past.Halted[key]
	if !seen {
		since = t.Now
	}
	t.u.Past.Halted[key] = since
	doubt := t.doubts[m.Group]
	switch at := t.Counting(since).Add(haltedBound); {
	case t.Now.Before(at):
		t.again(at)
	case t.mayBeStarted(m) && doubt.Keeps():
	default:
		t.u.Terminate = append(t.u.Terminate, Return{Machine: m.Machine})
	}
}

// drain evicts the strays of machines that are leaving, if they all have somewhere
// to go.
func (t *scaleDown) drain() {
	for _, n := range t.draining {
		var evict []state.Stray
		for _, s := range n.Strays {
			last, tried := t.Evictions[s.UID]
			switch at := last.At.Add(evictAgain); {
			case s.Terminating || n.Lost(t.Now):
			case tried && t.Now.Before(at):
				t.again(at)
			default:
				evict = append(evict, s)
			}
		}
		if len(evict) > 0 && t.move(n) {
			t.u.Evict = append(t.u.Evict, evict...)
			t.again(t.Now.Add(evictAgain))
		}
	}
}

// offer keeps idle machines while a request is about to be decided that may want
// them.
func (t *scaleDown) offer() {
	if len(t.idle) == 0 || !t.Undecided {
		return
	}
	since := t.Past.Deferred
	if since.IsZero() {
		since = t.Now
	}
	if t.Now.Before(since.Add(offerBound)) {
		t.u.Past.Deferred = since
		t.again(t.Now.Add(offerAgain))
		t.idle, t.unused = nil, append(t.unused, t.idle...)
	}
}

// relieve opens machines that are being drained where empty ones of their group can
// go in their place: no pod has to move then, and none is paid for in vain while
// another is held up.
func (t *scaleDown) relieve() {
	empty := map[string]int{}
	for _, n := range t.idle {
		if len(n.Strays) == 0 {
			empty[n.Machine.Group]++
		}
	}
	t.draining = slices.DeleteFunc(t.draining, func(n *state.Node) bool {
		relieved := empty[n.Machine.Group] > t.spare[n.Machine.Group]
		if relieved {
			t.keep(n)
		}
		return relieved
	})
}

// nextToGo orders idle machines: those with the fewest strays first, then those that have been idle longest, then by name.
func nextToGo(a, b *state.Node) int {
	return cmp.Or(cmp.Compare(len(a.Strays), len(b.Strays)), a.IdleSince.Compare(b.IdleSince), strings.Compare(a.Name, b.Name))
}

// retire cordons idle machines, the next to go first.
func (t *scaleDown) retire() {
	if len(t.idle) == 0 {
		return
	}
	slices.SortFunc(t.idle, nextToGo)
	if last := t.idle[len(t.idle)-1]; len(last.Strays) > 0 {
		t.findShelter() // while all that may go still count as such
	}
	drains, drained := len(t.draining), map[string]int{}
	for _, n := range t.draining {
		drained[n.Machine.Group]++
	}
	for _, n := range t.idle {
		group := n.Machine.Group
		if t.spare[group] <= 0 {
			continue
		}
		if len(n.Strays) > 0 {
			if drains >= mostDrains || drained[group] >= t.doubts[group].few() {
				t.unused = append(t.unused, n)
				continue
			}
			drains, drained[group] = drains+1, drained[group]+1
			if !t.move(n) {
				at := t.Now.Add(roomAgain)
				t.u.Past.Cramped[n.Name] = at
				t.again(at)
				continue
			}
		}
		t.spare[n.Machine.Group]--
		t.u.Cordon = append(t.u.Cordon, n.Name)
	}
}

// hold keeps pods without a booking off idle machines that will be terminated, and opens the nodes that are no longer held.
func (t *scaleDown) hold() {
	slices.SortFunc(t.unused, nextToGo)
	held := map[string]bool{}
	for _, n := range t.unused {
		if n.Machine.Launch == "" || t.spare[n.Machine.Group] <= 0 || n.Pods > len(n.Strays) || !n.Ready && n.Cordon == state.Open {
			continue
		}
		if at := n.IdleSince.Add(onOffer); t.Now.Before(at) {
			t.again(at)
			continue
		}
		t.spare[n.Machine.Group]--
		held[n.Name] = true
		if n.Cordon == state.Open {
			t.u.Hold = append(t.u.Hold, n.Name)
		}
	}
	for _, name := range t.u.Cordon {
		held[name] = true
	}
	for _, n := range t.held {
		if !held[n.Name] {
			t.u.Lift = append(t.u.Lift, n.Name)
		}
	}
}

// move plans to move the strays of a node to others, and reports whether there is room for all of them.
func (t *scaleDown) move(n *state.Node) bool {
	t.findShelter()
	after := t.shelter.Clone()
	for i := range n.Strays {
		if s := &n.Strays[i]; !s.Terminating && !take(after, s) {
			return false
		}
	}
	t.shelter = after
	return true
}

// findShelter leaves out the nodes on which nothing is scheduled, and the machines that may be terminated next: no pod should move twice.
func (t *scaleDown) findShelter() {
	if t.shelter != nil {
		return
	}
	t.shelter = t.Nodes.Clone()
	for n := range t.Nodes.All() {
		mayGo := n.Machine != nil && !n.Kept && t.spare[n.Machine.Group] > 0 && len(n.Bookings) == 0 && n.Vacant(t.Now)
		if n.Cordon != state.Open || mayGo {
			t.shelter.Delete(n.Name)
		}
	}
}

// take puts the stray on one of the nodes, if one has room.
func take(nodes *nodeset.Set, stray *state.Stray) bool {
	v, ok := planner.Place(nodes, state.Gang{Namespace: stray.Namespace, Name: stray.String(), UID: stray.UID,
		PodSets: []state.PodSet{stray.Replica}})
	if !ok {
		return false
	}
	n := *nodes.Find(v.Placement[0].Node)
	n.Free = n.Free.Clone()
	n.Free.Sub(v.Placement[0].Requests, 1)
	nodes.Set(&n)
	return true
}

// shownPods is how many of the pods that hold a machine up are named.
const shownPods = 3

// heldUp says what stops the drain of the node.
func (t *scaleDown) heldUp(n *state.Node) string {
	var parts []string
	for i := range n.Strays[:min(len(n.Strays), shownPods)] {
		s := &n.Strays[i]
		why := "no other schedulable node that is kept has room for it"
		if last, tried := t.Evictions[s.UID]; tried && last.Refusal != "" {
			why = last.Refusal
		} else if s.Terminating || tried {
			why = "it was evicted and has not terminated yet"
		}
		parts = append(parts, fmt.Sprintf("pod %s: %s", s, why))
	}
	if more := len(n.Strays) - len(parts); more > 0 {
		parts = append(parts, "and "+text.Pods(more)+" more")
	}
	return fmt.Sprintf("Machine %s is idle and could not be terminated within %s, since it runs pods that use none of its devices and "+
		"could not be moved. %s. It stays open and is tried again at %s",
		n.Machine.Name, drainBound, strings.Join(parts, "; "), t.Now.Add(drainPause).UTC().Format(time.RFC3339))
}
