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
	// Tenant of the request; its namespace is empty if only the request identifies the tenant.
	state.Tenant
	// LeftBy is the tenant whose gang was the last on a machine that no request pays for; the zero value if unknown.
	LeftBy state.Tenant
	// MicroUSDPerHour is the part of the price, in millionths of a USD.
	MicroUSDPerHour int64
}

// Over is the amount of the share in a time, in millionths of a USD.
func (s Share) Over(d time.Duration) int64 {
	return spend.PriceOf(max(0, d.Milliseconds()), s.MicroUSDPerHour)
}

func (s *Share) payer() Payer { return Payer{s.Request, s.Tenant, s.LeftBy} }

// Cause is the tenant that pays, or else the one that left the machine.
func (s *Share) Cause() state.Tenant { return s.payer().Cause() }

// Shares returns the shares in a machine of that price. The requests that have booked it pay equal parts until their pods have ended; the
// first one pays the remainder of the division. The request that it was launched for pays for a machine in flight. No request pays for
// other machines: their cost was caused by the tenant that left them. Launch is the machine's token.
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
