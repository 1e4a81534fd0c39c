package transaction

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// strangerPause is how long a gang launches nothing after a pod of others has taken room
// of its attempt: what made that pod may do it again, and each attempt costs money.
const strangerPause = time.Minute

// stranger names a pod that is on one of the nodes without having booked it, and how many
// more there are; empty for none.
func stranger(nodes iter.Seq[*state.Node]) string {
	first, more := "", 0
	for n := range nodes {
		for _, pod := range n.Strangers {
			if first == "" {
				first = fmt.Sprintf("pod %s without a booking runs on the held node %s", pod, n.Name)
			} else {
				more++
			}
		}
	}
	if more > 0 {
		first += fmt.Sprintf(", and so do %d more", more)
	}
	return first
}

// occupied is the node of an attempt's machine where it runs pods, whoever made them: the machine is not terminated for the sake of
// the attempt. It is nil where there is none but pods of DaemonSets and static ones, and those that wait in vain for a kubelet that
// is lost.
func occupied(v View, m cloudprovider.Machine) *state.Node {
	n := v.Nodes.Find(v.Hosts[m.ProviderID])
	if n == nil || n.Pods == 0 || n.Lost(v.Now) && n.Pods == n.Terminating {
		return nil
	}
	return n
}

// sayKept says that the machines of these nodes stay, and why.
func sayKept(nodes []*state.Node) string {
	why := stranger(slices.Values(nodes))
	if why == "" {
		why = fmt.Sprintf("%s run on node %s", text.Pods(nodes[0].Pods), nodes[0].Name)
	}
	return fmt.Sprintf("%s of it will be given back once idle: %s", text.Machines(len(nodes)), why)
}

// parted are those of the machines that may be terminated, and the nodes of those that run pods.
func parted(v View, machines []cloudprovider.Machine) (vacant []cloudprovider.Machine, kept []*state.Node) {
	for _, m := range machines {
		if n := occupied(v, m); n != nil {
			kept = append(kept, n)
		} else {
			vacant = append(vacant, m)
		}
	}
	return vacant, kept
}

// and adds what is known of strangers to a message.
func and(message, stranger string) string {
	if stranger == "" {
		return message
	}
	return message + "; " + stranger
}
