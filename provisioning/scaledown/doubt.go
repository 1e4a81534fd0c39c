package scaledown

import (
	"fmt"
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
	// shows no node of theirs that is Ready: machines fail one by one.
	fewInDoubt = 3
	// doubtfulAfter is how long a node is unready until its machine is in doubt: less than
	// state.LostAfter, so that all that fail together are counted before the first may go.
	doubtfulAfter = time.Minute
)

// Doubt is about the machines of a group whose node has gone or is not Ready. What is true
// of one machine is hardly true of many at once: etcd was restored, Nodes were deleted, or
// the network is down, and the pods run on.
type Doubt struct {
	// Missing have lost their node, Unready have one that is not Ready; Of is how many
	// machines the group has.
	Missing, Unready, Of int
	// Approved is how many may go by the word of a person.
	Approved int
	// At is when one more will be in doubt if its node stays as it is; zero for never.
	At time.Time
}

// InDoubt is what there is of doubt in each group. Missing are the machines that have had a
// node and have none.
func InDoubt(s *planner.Snapshot, missing []cloudprovider.Machine) map[string]Doubt {
	out := map[string]Doubt{}
	for i := range s.Groups {
		out[s.Groups[i].Name] = Doubt{Approved: s.Groups[i].GiveBackAtOnce}
	}
	for n := range s.Nodes.All() {
		if n.Machine == nil {
			continue
		}
		d := out[n.Machine.Group]
		d.Of++
		if isInDoubt(n, s.Now) {
			d.Unready++
		} else if !n.UnreadySince.IsZero() && !n.InFlight && n.Cordon != state.Joining {
			d.At = when.Earliest(d.At, n.UnreadySince.Add(doubtfulAfter))
		}
		out[n.Machine.Group] = d
	}
	for _, m := range missing {
		d := out[m.Group]
		d.Of, d.Missing = d.Of+1, d.Missing+1
		out[m.Group] = d
	}
	return out
}

func isInDoubt(n *state.Node, now time.Time) bool {
	return !n.UnreadySince.IsZero() && !n.InFlight && n.Cordon != state.Joining && !now.Before(n.UnreadySince.Add(doubtfulAfter))
}

// Braked reports whether none of them may go until a person has decided.
func (d Doubt) Braked() bool {
	n := d.Missing + d.Unready
	return n > max(fewInDoubt, d.Of/10) && !d.lost()
}

// lost reports whether a person has said that they are lost.
func (d Doubt) lost() bool { return d.Missing+d.Unready <= d.Approved }

func (d Doubt) String() string {
	n := d.Missing + d.Unready
	return fmt.Sprintf("%d of %s of the group have lost their node, and %d have one that is not Ready. Their pods may run on, so none of these "+
		"machines is terminated. If they are lost, annotate the NodeGroup with %s=%d; if not, restart their kubelets",
		d.Missing, text.Machines(d.Of), d.Unready, v1alpha1.GiveBackAtOnceAnnotation, n)
}
