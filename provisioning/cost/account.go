package cost

import (
	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Purpose is the purpose that a machine is paid for at a time.
type Purpose int

const (
	// PurposeJoining: an attempt in flight waits for it.
	PurposeJoining Purpose = iota
	// PurposeBooked: it waits for the pods of a gang that has booked or launched it.
	PurposeBooked
	// PurposeUsed: it runs pods that are no strays.
	PurposeUsed
	// PurposeIdle: no request needs it, or its cloud holds it on its way out.
	PurposeIdle
	// PurposeWasted: it never served anyone, since its attempt was rolled back or is
	// gone, or none of its pods can start.
	PurposeWasted
)

// Purposes are all purposes.
var Purposes = []Purpose{PurposeJoining, PurposeBooked, PurposeUsed, PurposeIdle, PurposeWasted}

func (p Purpose) String() string {
	return [...]string{"joining", "booked", "used", "idle", "wasted"}[p]
}

// PurposeOf returns the purpose of a machine whose launch is in that phase; Done if no attempt owns it. The node is nil if it has none.
func PurposeOf(m cloudprovider.Machine, launch transaction.AttemptPhase, n *state.Node) Purpose {
	switch {
	case !m.Counts() && launch != transaction.Done:
		return PurposeWasted
	case !m.Counts():
		return PurposeIdle
	case launch == transaction.Launching:
		return PurposeJoining
	case launch == transaction.RollingBack || n == nil && m.State < cloudprovider.Running:
		return PurposeWasted
	case n == nil:
		return PurposeIdle
	case n.Pods > 0 && n.Blocked == n.Pods:
		return PurposeWasted
	case n.Pods > len(n.Strays):
		return PurposeUsed
	case len(n.Bookings) > 0 || n.InFlight:
		return PurposeBooked
	case n.Cordon == state.Joining:
		return PurposeWasted
	default:
		return PurposeIdle
	}
}

// Post is a line of an account.
type Post struct {
	Group   string
	Purpose Purpose
}

// Amount is the amount of a post.
type Amount struct {
	// Machines that are there now.
	Machines int
	// Milliseconds of machines and their price, in millionths of a USD, since the
	// ledger's account was opened.
	Milliseconds, MicroUSD int64
	// UnusedMilliseconds and UnusedMicroUSD are the part in which machines were booked for pods that never arrived. It is known when a
	// booking is over.
	UnusedMilliseconds, UnusedMicroUSD int64
}
