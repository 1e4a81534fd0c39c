package provisioning

import (
	"maps"
	"math"
	"math/bits"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
)

// Purpose is what a machine is paid for at a time.
type Purpose int

const (
	// PurposeJoining: an attempt in flight waits for it.
	PurposeJoining Purpose = iota
	// PurposeBooked: it waits for the pods of a gang that has booked or launched it.
	PurposeBooked
	// PurposeUsed: it runs pods that are no strays.
	PurposeUsed
	// PurposeIdle: nobody needs it.
	PurposeIdle
	// PurposeWasted: it never served anyone, since its attempt was rolled back or is
	// gone.
	PurposeWasted
)

// Purposes are all of them.
var Purposes = []Purpose{PurposeJoining, PurposeBooked, PurposeUsed, PurposeIdle, PurposeWasted}

func (p Purpose) String() string {
	return [...]string{"joining", "booked", "used", "idle", "wasted"}[p]
}

// PurposeOf a machine whose launch is in that phase; Done where no attempt owns it.
// The node is nil where it has none.
func PurposeOf(m cloudprovider.Machine, launch AttemptPhase, n *Node) Purpose {
	switch {
	case launch == Launching:
		return PurposeJoining
	case launch == RollingBack || n == nil && m.State < cloudprovider.Running:
		return PurposeWasted
	case n == nil:
		return PurposeIdle
	case n.Pods > len(n.Strays):
		return PurposeUsed
	case len(n.Bookings) > 0 || n.InFlight:
		return PurposeBooked
	case n.Cordon == Joining:
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

// Amount is what stands there.
type Amount struct {
	// Machines that are there now.
	Machines int
	// Milliseconds of machines and their price, in millionths of a USD, since the
	// account was opened.
	Milliseconds, MicroUSD int64
	// UnusedMilliseconds and UnusedMicroUSD are the part of them in which machines
	// were booked for pods that never came. It is known when a booking is over.
	UnusedMilliseconds, UnusedMicroUSD int64
}

// Account adds up how long machines have lived, for what, and what that cost. Each
// stay of a machine, from one change of its purpose to the next, is counted once,
// each part of it at the price that was given last.
//
// The time in which a machine joins is counted when it is over, since only then is
// known what it was good for: nothing, where the attempt fails.
type Account struct {
	stays map[string]stay
	past  map[Post]Amount
}

// stay is the time that a machine spends on a post.
type stay struct {
	Post
	// since is when the price began to hold; sofar is what was spent before.
	since           time.Time
	microUSDPerHour int64
	sofar           Amount
}

// at is the stay at a price that holds from now on.
func (s stay) at(microUSDPerHour int64, now time.Time) stay {
	return stay{s.Post, now, microUSDPerHour, Amount{}.plus(s, now)}
}

// NewAccount is an account without machines.
func NewAccount() *Account {
	return &Account{stays: map[string]stay{}, past: map[Post]Amount{}}
}

// Put says what a machine of a group is for, and what it costs, from now on.
func (a *Account) Put(machine, group string, purpose Purpose, microUSDPerHour int64, now time.Time) {
	s, known := a.stays[machine]
	if known && s.Purpose == purpose {
		if s.microUSDPerHour != microUSDPerHour {
			a.stays[machine] = s.at(microUSDPerHour, now)
		}
		return
	}
	if known {
		if s.Purpose == PurposeJoining && purpose == PurposeWasted {
			s.Purpose = PurposeWasted
		}
		a.close(s, purpose == PurposeUsed, now)
	}
	a.stays[machine] = stay{Post: Post{group, purpose}, since: now, microUSDPerHour: microUSDPerHour}
}

// Remove says that a machine is gone. One that was still joining never served.
func (a *Account) Remove(machine string, now time.Time) {
	s, known := a.stays[machine]
	if !known {
		return
	}
	delete(a.stays, machine)
	if s.Purpose == PurposeJoining {
		s.Purpose = PurposeWasted
	}
	a.close(s, false, now)
}

// close puts down a stay, which the machine's use follows or not.
func (a *Account) close(s stay, used bool, now time.Time) {
	amount := a.past[s.Post].plus(s, now)
	if s.Purpose == PurposeBooked && !used {
		spent := Amount{}.plus(s, now)
		amount.UnusedMilliseconds += spent.Milliseconds
		amount.UnusedMicroUSD += spent.MicroUSD
	}
	a.past[s.Post] = amount
}

// Amounts are all posts as they stand. It costs by the number of machines.
func (a *Account) Amounts(now time.Time) map[Post]Amount {
	out := maps.Clone(a.past)
	for _, s := range a.stays {
		amount := out[s.Post]
		amount.Machines++
		if s.Purpose != PurposeJoining {
			amount = amount.plus(s, now)
		}
		out[s.Post] = amount
	}
	return out
}

// plus is the amount with the stay until now. A clock that was set back adds
// nothing.
func (a Amount) plus(s stay, now time.Time) Amount {
	ms := max(0, now.Sub(s.since).Milliseconds())
	a.Milliseconds += s.sofar.Milliseconds + ms
	a.MicroUSD += s.sofar.MicroUSD + priceOf(ms, s.microUSDPerHour)
	return a
}

// priceOf so many milliseconds, rounded down, in millionths of a USD. The product
// needs more than 64 bits: a year at 100 USD an hour is 3×10^18.
func priceOf(milliseconds, microUSDPerHour int64) int64 {
	hi, lo := bits.Mul64(uint64(milliseconds), uint64(max(0, microUSDPerHour)))
	if hi >= hourMilliseconds {
		return math.MaxInt64
	}
	price, _ := bits.Div64(hi, lo, hourMilliseconds)
	return int64(min(price, math.MaxInt64))
}
