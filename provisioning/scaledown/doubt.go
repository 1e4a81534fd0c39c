package scaledown

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// fewInDoubt machines of a group, or a tenth of them, may go at once though the cluster
	// shows no node of theirs that is Ready, or the cloud has stopped them: machines fail one by
	// one.
	fewInDoubt = 3
	// doubtfulAfter is how long a node is unready until its machine is in doubt: less than
	// state.LostAfter, so that all that fail together are counted before the first may go.
	doubtfulAfter = time.Minute
	// settleFor is how long no gang is stopped, or sent elsewhere, for a node that has gone while its machine runs: where many are
	// deleted, one after another, so many have gone by then that they are in doubt.
	settleFor = 10 * time.Second
)

// easedFor is for how long the last few machines are still in doubt once so many have come back that they are few.
const easedFor = 10 * time.Minute

// Missing is a machine that runs, by word of its cloud, and has lost its node.
type Missing struct {
	cloudprovider.Machine
	// Since is when its node went; zero where this was not seen.
	Since time.Time
}

// SettledAt is from when on the loss of its node counts, unless many have gone.
func (m Missing) SettledAt() time.Time { return m.Since.Add(settleFor) }

// Vanished are nodes that have gone while their machines run, by word of the cloud: their kubelets may register them again, and their
// pods may run on. No gang is stopped, or sent elsewhere, for such a node for now.
type Vanished struct {
	// Machines by provider ID. False are those for which it is too soon to tell; true those of a group of which so many are in
	// doubt that a person has to decide.
	Machines map[string]bool
	// Many: there are some of the latter. A node that went before this process began may be one of them.
	Many bool
}

// VanishedOf is what has vanished of a fleet. Gone are the provider IDs of nodes that the caller knows to have gone: the fleet may still
// show them.
func VanishedOf(f *Fleet, gone []string) Vanished {
	out := Vanished{Machines: map[string]bool{}}
	if len(f.Missing) == 0 && len(gone) == 0 {
		return out
	}
	for n := range f.Nodes.All() {
		if n.Machine != nil && slices.Contains(gone, n.ProviderID) {
			out.Machines[n.ProviderID] = false
		}
	}
	doubts := InDoubt(f)
	for _, m := range f.Missing {
		switch {
		case doubts[m.Group].Spares():
			out.Machines[m.ProviderID], out.Many = true, true
		case f.Now.Before(m.SettledAt()):
			out.Machines[m.ProviderID] = false
		}
	}
	return out
}

// Doubt is about the machines of a group whose node has gone or is not Ready, about those that are stopped, and about those that
// Muster would give back without having launched them. What is true of one machine is hardly true of many at once: etcd was
// restored, Nodes were deleted, or the network is down, and the pods run on; or a person has stopped the machines for the night.
type Doubt struct {
	// Missing have lost their node, Unready have one that is not Ready, be it that their cloud does not know them any more,
	// Stopped have had a node and are stopped; Of is how many machines the group has.
	Missing, Unready, Stopped, Of int
	// Denied have ended by word of their cloud, and their kubelets are heard of. It says so for
	// less than a minute of machines that have really ended, and of all where it is asked with
	// the credentials of another account.
	Denied int
	// Idle are empty machines whose time has come and that no request has launched: they were there before Muster, say, or a person
	// has made the group larger.
	Idle int
	// Spare is by how many machines the group is above its minimum, without those that leave.
	Spare int
	// Approved is how many may go by the word of a person.
	Approved int
	// Until is for how long the last few are treated as the many that there were: machines come back one by one. Zero where there were
	// not many.
	Until time.Time
	// At is when one more will be in doubt if its node stays as it is; zero for never.
	At time.Time
}

// InDoubt is what there is of doubt in each group.
func InDoubt(f *Fleet) map[string]Doubt {
	out := newDoubts(f)
	for n := range f.Nodes.All() {
		out.count(f, n)
	}
	return out
}

// doubts by group.
type doubts map[string]Doubt

// count adds what there is about a node.
func (ds doubts) count(f *Fleet, n *state.Node) {
	now, group := f.Now, n.Group
	switch {
	case n.Machine != nil:
		group = n.Machine.Group
	case n.Ended && n.UnreadySince.IsZero():
		d := ds[group]
		d.Of, d.Denied = d.Of+1, d.Denied+1
		ds[group] = d
		return
	case !n.Forgotten || n.Launch == "":
		return
	}
	d := ds[group]
	d.Of++
	if isInDoubt(n, now) {
		d.Unready++
	} else if !n.UnreadySince.IsZero() && !n.InFlight && n.Cordon != state.Joining {
		d.At = when.Earliest(d.At, n.UnreadySince.Add(doubtfulAfter))
	}
	if n.Machine != nil && !isLaunching(n) && !n.Leaves(now) {
		d.Spare++
	}
	switch at := f.unrequestedAt(n); {
	case at.IsZero():
	case now.Before(at):
		d.At = when.Earliest(d.At, at)
	default:
		d.Idle++
	}
	ds[group] = d
}

// unrequestedAt is when an empty machine that no request has launched may be given back for standing idle; zero where it may not be, or
// was launched.
func (f *Fleet) unrequestedAt(n *state.Node) time.Time {
	stays := n.Marked || n.Kept || len(n.Bookings) > 0 || isLaunching(n) || !n.UnreadySince.IsZero()
	if n.Machine == nil || n.Machine.Launch != "" || n.Pods > 0 || n.Cordon != state.Open || stays {
		return time.Time{}
	}
	g := f.FindGroup(n.Machine.Group)
	if g == nil || g.Foreign || isPaid(g) {
		return time.Time{}
	}
	return idleAt(n, g.IdleTimeout)
}

// isPaid reports whether nothing is saved by giving machines of a group back, unless their reservation is over: no more are launched
// then.
func isPaid(g *planner.Group) bool { return g.CapacityType == v1alpha1.Reserved && g.Max > 0 }

// idleAt is when a machine without pods may be given back.
func idleAt(n *state.Node, timeout time.Duration) time.Time {
	at := n.IdleSince.Add(max(timeout, onOffer))
	for i := range n.Labelled {
		at = when.Latest(at, n.Labelled[i].KeptUntil)
	}
	return at
}

// doubtedUntil is for how long the last few machines of the group are treated as the many that there were, by the condition of the
// group; zero where there were not many.
func doubtedUntil(g *planner.Group, now time.Time) time.Time {
	if g.Doubted {
		return now.Add(easedFor)
	}
	if at := g.DoubtEnded.Add(easedFor); !g.DoubtEnded.IsZero() && now.Before(at) {
		return at
	}
	return time.Time{}
}

// IsDoubted reports whether so many machines of the group are, or lately were, in doubt that one without a node may have had one before
// this process began: the condition of the group outlives it, and what it has seen does not.
func IsDoubted(g *planner.Group, now time.Time) bool { return !doubtedUntil(g, now).IsZero() }

// newDoubts are those before any node was counted.
func newDoubts(f *Fleet) doubts {
	out := doubts{}
	for i := range f.Groups {
		g := &f.Groups[i]
		out[g.Name] = Doubt{Approved: g.GiveBackAtOnce, Spare: -g.Min, Until: doubtedUntil(g, f.Now)}
	}
	for _, m := range f.Missing {
		d := out[m.Group]
		d.Of, d.Missing = d.Of+1, d.Missing+1
		out[m.Group] = d
	}
	for _, m := range f.Halted {
		if f.mayBeStarted(m) {
			d := out[m.Group]
			d.Of, d.Stopped = d.Of+1, d.Stopped+1
			out[m.Group] = d
		}
	}
	return out
}

// mayBeStarted reports whether a stopped machine may serve its pods again. One that has never had
// a node has failed to boot, and a Spot machine that its cloud has reclaimed is not started again.
func (f *Fleet) mayBeStarted(m Halted) bool {
	g := f.FindGroup(m.Group)
	return m.HadNode && (g == nil || g.CapacityType != v1alpha1.Spot)
}

func isInDoubt(n *state.Node, now time.Time) bool {
	return !n.UnreadySince.IsZero() && !n.InFlight && n.Cordon != state.Joining && !now.Before(n.UnreadySince.Add(doubtfulAfter))
}

// few is how many machines of the group may go at once that no request has asked to go.
func (d Doubt) few() int { return max(fewInDoubt, d.Of/10) }

// Braked reports whether none of them may go until a person has decided.
func (d Doubt) Braked() bool { return d.Machines() > d.few() && !d.lost() }

// Keeps reports whether none of them goes for now: many are braked, and the last few of many have time to come back.
func (d Doubt) Keeps() bool { return d.Braked() || !d.Until.IsZero() && d.Machines() > 0 && !d.lost() }

// Spares reports whether no gang is stopped for the loss of such machines until a person has
// decided, or the kubelets of those that have ended are silent, too. The last few of many have time to come back.
func (d Doubt) Spares() bool {
	many := d.Machines() + d.Denied
	return (many > d.few() || !d.Until.IsZero() && many > 0) && many > d.Approved
}

// KeepsIdle reports whether none of the idle machines that no request has launched may go until a person has decided.
func (d Doubt) KeepsIdle() bool { return min(d.Idle, d.Spare) > d.few() && d.Idle > d.Approved }

// SayIdle tells of them.
func (d Doubt) SayIdle() string {
	return fmt.Sprintf("%d of %s of the group are idle, and no request has launched them: they were there before Muster, or others made "+
		"the group larger. So many are not terminated at once by themselves. If they are to go, annotate the NodeGroup with %s=%d; "+
		"if they are to stay, raise spec.minNodes, or annotate their nodes with %s=true", d.Idle, text.Machines(d.Of),
		v1alpha1.GiveBackAtOnceAnnotation, d.Idle, v1alpha1.ScaleDownDisabledAnnotation)
}

// Machines is how many are in doubt.
func (d Doubt) Machines() int { return d.Missing + d.Unready + d.Stopped }

// lost reports whether a person has said that they are lost.
func (d Doubt) lost() bool { return d.Machines() <= d.Approved }

func (d Doubt) String() string {
	return fmt.Sprintf("%d of %s of the group have lost their node, %d have one that is not Ready, and %d are stopped. Their pods may run "+
		"on, or go on, so none of these machines is terminated, and no gang is stopped for them. If they are lost, annotate the NodeGroup "+
		"with %s=%d; if not, restart their kubelets, or start them", d.Missing, text.Machines(d.Of), d.Unready, d.Stopped,
		v1alpha1.GiveBackAtOnceAnnotation, d.Machines())
}
