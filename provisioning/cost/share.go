package cost

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
)

// Share is what a request pays of a machine.
type Share struct {
	// Request by its UID; empty for what no request pays.
	Request types.UID
	// Tenant of the request; without namespace where only the request itself tells it.
	state.Tenant
	// LeftBy is the tenant whose gang was the last on a machine that no request pays for; the zero value where none is known.
	LeftBy state.Tenant
	// MicroUSDPerHour is the part of the price, in millionths of a USD.
	MicroUSDPerHour int64
}

// Over is what the share comes to in a time, in millionths of a USD.
func (s Share) Over(d time.Duration) int64 {
	return spend.PriceOf(max(0, d.Milliseconds()), s.MicroUSDPerHour)
}

func (s *Share) payer() Payer { return Payer{s.Request, s.Tenant, s.LeftBy} }

// Cause is the tenant that pays, or else the one that left the machine.
func (s *Share) Cause() state.Tenant { return s.payer().Cause() }

// Shares of a machine of that price are paid by the requests that have booked it, in equal
// parts, until their pods have ended; one that is in flight by the request that it
// was launched for; all others by none: their cost was caused by the tenant that they are left by. What does not divide by the bookings is
// paid by the first of them. Launch is the machine's token.
func Shares(launch string, bookings []state.Booking, inFlight bool, leftBy state.Tenant, microUSDPerHour int64) []Share {
	if len(bookings) == 0 {
		s := Share{MicroUSDPerHour: microUSDPerHour}
		if inFlight {
			s.Request = state.TokenUID(launch)
		} else {
			s.LeftBy = leftBy
		}
		return []Share{s}
	}
	out := make([]Share, len(bookings))
	part, rest := microUSDPerHour/int64(len(bookings)), microUSDPerHour%int64(len(bookings))
	for i := range bookings {
		out[i] = Share{Request: bookings[i].UID, Tenant: bookings[i].Tenant(), MicroUSDPerHour: part}
		if int64(i) < rest {
			out[i].MicroUSDPerHour++
		}
	}
	return out
}
