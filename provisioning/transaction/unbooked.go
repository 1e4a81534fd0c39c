package transaction

import (
	"fmt"
	"iter"
	"time"

	"github.com/muster-dev/muster/provisioning/state"
)

// unbookedPause is how long a gang launches nothing after a pod without a booking has used room of its attempt: the pod's creator may do
// it again, and each attempt costs money.
const unbookedPause = time.Minute

// unbookedPod names a pod that runs on one of the nodes without a booking, and how many more there are; empty for none.
func unbookedPod(nodes iter.Seq[*state.Node]) string {
	first, more := "", 0
	for n := range nodes {
		for _, pod := range n.UnbookedPods {
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

// and appends the description of unbooked pods to a message.
func and(message, stranger string) string {
	if stranger == "" {
		return message
	}
	return message + "; " + stranger
}
