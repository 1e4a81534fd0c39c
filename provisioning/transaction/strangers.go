package transaction

import (
	"fmt"
	"iter"
	"time"

	"github.com/muster-dev/muster/provisioning/state"
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

// and adds what is known of strangers to a message.
func and(message, stranger string) string {
	if stranger == "" {
		return message
	}
	return message + "; " + stranger
}
