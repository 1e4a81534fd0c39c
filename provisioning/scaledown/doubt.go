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
	// fewInDoubt machines of a group, or a tenth of them, may be terminated at once even though they have no Ready node or their cloud
	// has stopped them: machines fail one by one.
	fewInDoubt = 3
	// doubtfulAfter is how long a node is unready before its machine is in doubt. It is less than state.LostAfter, so that machines that
	// fail together are all counted before the first is terminated.
	doubtfulAfter = time.Minute
	// settleFor is how long after a node was deleted while its machine runs no gang is stopped or moved because of it. If many nodes are
	// deleted one after another, enough of them are gone by then to be in doubt.
	settleFor = 10 * time.Second
)

// easedFor is how long the last few machines stay in doubt after most of many have returned.
const easedFor = 10 * time.Minute

// Missing is a machine that runs according to its cloud, and has lost its node.
type Missing struct {
	cloudprovider.Machine
	// Since is when its node was deleted; zero if this was not seen.
	Since time.Time
}

// SettledAt returns the time from which on the loss of its node counts, unless many nodes are gone.
func (m Missing) SettledAt() time.Time { return m.Since.Add(settleFor) }

// Vanished are the nodes that are gone while their machines run according to the cloud. Their kubelets may register them again, and their
// pods may still run. No gang is stopped or moved because of such a node for now.
type Vanished struct {
	// Machines by provider ID. False: it is too early to decide. True: so many machines of the group are in doubt that a person has to
	// decide.
	Machines map[string]bool
	// Many reports whether some are true. A node that was gone before this process started may be one of them.
	Many bool
}

// VanishedOf returns the vanished nodes of a fleet. Gone are the provider IDs of nodes that are gone, even if the fleet still has them.
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

// Doubt counts the machines of a group whose node is gone or not Ready, those that are stopped, and idle ones that Muster has not
// launched. If many machines fail at once, the cause is more likely elsewhere: etcd was restored, Nodes were deleted, or the network is
// down while the pods still run; or a person has stopped the machines for the night.
type Doubt struct {
	// Missing have lost their node. Unready have a node that is not Ready, even if their cloud no longer lists them. Stopped have had a
	// node and are stopped. Of is the number of machines of the group.
	Missing, Unready, Stopped, Of int
	// Denied have ended according to their cloud, while their kubelets still report. For machines that have really ended this lasts less
	// than a minute. A cloud that is queried with the credentials of another account denies all of them.
	Denied int
	// Idle are empty machines whose idle time is over and that no request has launched: they were there before Muster, or a person has
	// resized the group.
	Idle int
	// Spare is the number of machines above the group's minimum, without those that are leaving.
	Spare int
	// Approved is the number of machines that a person has approved for termination.
	Approved int
	// Until is how long the last few machines of many stay in doubt, since machines return one by one. Zero if there were not many.
	Until time.Time
	// At is when the next machine will be in doubt if its node stays as it is; zero for never.
	At time.Time
}

// InDoubt returns the doubt about each group.
func InDoubt(f *Fleet) map[string]Doubt {
	out := newDoubts(f)
	for n := range f.Nodes.All() {
		out.count(f, n)
	}
	return out
}

// doubts by group.
type doubts map[string]Doubt

// count counts a node.
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

// unrequestedAt returns when an empty machine that no request has launched may be terminated as idle; zero for never, or if a request has
// launched it.
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

// isPaid reports whether the termination of machines saves no money. After the end of its reservation, a group's Max is zero.
func isPaid(g *planner.Group) bool { return g.CapacityType == v1alpha1.Reserved && g.Max > 0 }

// idleAt returns when a machine without pods may be terminated.
func idleAt(n *state.Node, timeout time.Duration) time.Time {
	at := n.IdleSince.Add(max(timeout, onOffer))
	for i := range n.Labelled {
		at = when.Latest(at, n.Labelled[i].KeptUntil)
	}
	return at
}

// doubtedUntil returns until when the last few machines of the group stay in doubt, according to the condition of the group; zero if there
// were not many.
func doubtedUntil(g *planner.Group, now time.Time) time.Time {
	if g.Doubted {
		return now.Add(easedFor)
	}
	if at := g.DoubtEnded.Add(easedFor); !g.DoubtEnded.IsZero() && now.Before(at) {
		return at
	}
	return time.Time{}
}

// IsDoubted reports whether so many machines of the group are or were in doubt that a machine without a node may have had one before this
// process started. The condition of the group survives a restart.
func IsDoubted(g *planner.Group, now time.Time) bool { return !doubtedUntil(g, now).IsZero() }

// newDoubts returns the doubts before any node was counted.
func newDoubts(f *Fleet) doubts {
	out := doubts{}
	for i := range f.Groups {
		g := &f.Groups[i]
		out[g.Name] = Doubt{Approved: g.TerminateAtOnce, Spare: -g.Min, Until: doubtedUntil(g, f.Now)}
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

// mayBeStarted reports whether a stopped machine may be started again and serve its pods. A machine without a node has failed to boot, and
// a cloud does not restart a Spot machine that it has reclaimed.
func (f *Fleet) mayBeStarted(m Halted) bool {
	g := f.FindGroup(m.Group)
	return m.HadNode && (g == nil || g.CapacityType != v1alpha1.Spot)
}

func isInDoubt(n *state.Node, now time.Time) bool {
	return !n.UnreadySince.IsZero() && !n.InFlight && n.Cordon != state.Joining && !now.Before(n.UnreadySince.Add(doubtfulAfter))
}

// few is how many machines of the group may be terminated at once without a request for it.
func (d Doubt) few() int { return max(fewInDoubt, d.Of/10) }

// Braked reports whether no machine in doubt is terminated until a person has decided.
func (d Doubt) Braked() bool { return d.Machines() > d.few() && !d.lost() }

// Keeps reports whether no machine in doubt is terminated for now: either they are braked, or the last few of many have time to return.
func (d Doubt) Keeps() bool { return d.Braked() || !d.Until.IsZero() && d.Machines() > 0 && !d.lost() }

// Spares reports whether no gang is stopped for the loss of such machines until a person has decided, or until the kubelets of ended
// machines are silent, too. The last few of many have time to return.
func (d Doubt) Spares() bool {
	many := d.Machines() + d.Denied
	return (many > d.few() || !d.Until.IsZero() && many > 0) && many > d.Approved
}

// KeepsIdle reports whether no idle machine that Muster has not launched is terminated until a person has decided.
func (d Doubt) KeepsIdle() bool { return min(d.Idle, d.Spare) > d.few() && d.Idle > d.Approved }

// SayIdle describes the idle machines.
func (d Doubt) SayIdle() string {
	return fmt.Sprintf("%d of %s of the group are idle, and no request has launched them: they were there before Muster, or others made "+
		"the group larger. So many are not terminated at once by themselves. If they are to go, annotate the NodeGroup with %s=%d; "+
		"if they are to stay, raise spec.minNodes, or annotate their nodes with %s=true", d.Idle, text.Machines(d.Of),
		v1alpha1.TerminateAtOnceAnnotation, d.Idle, v1alpha1.ScaleDownDisabledAnnotation)
}

// Machines is the number of machines in doubt.
func (d Doubt) Machines() int { return d.Missing + d.Unready + d.Stopped }

// lost reports whether a person has declared the machines lost.
func (d Doubt) lost() bool { return d.Machines() <= d.Approved }

func (d Doubt) String() string {
	return fmt.Sprintf("%d of %s of the group have lost their node, %d have one that is not Ready, and %d are stopped. Their pods may run "+
		"on, or go on, so none of these machines is terminated, and no gang is stopped for them. If they are lost, annotate the NodeGroup "+
		"with %s=%d; if not, restart their kubelets, or start them", d.Missing, text.Machines(d.Of), d.Unready, d.Stopped,
		v1alpha1.TerminateAtOnceAnnotation, d.Machines())
}
