package provisioning

import (
	"math"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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

// Share is what a request pays of a machine.
type Share struct {
	// Request by its UID; empty for what no request pays.
	Request types.UID
	// Tenant of the request; without namespace where only the request itself tells it.
	Tenant
	// MicroUSDPerHour is the part of the price, in millionths of a USD.
	MicroUSDPerHour int64
}

// Over is what the share comes to in a time, in millionths of a USD.
func (s Share) Over(d time.Duration) int64 {
	return priceOf(max(0, d.Milliseconds()), s.MicroUSDPerHour)
}

// Shares of a machine of that price are paid by the requests that have booked it, in equal
// parts, until their pods have ended; one that is in flight by the request that it
// was launched for; all others by none. What does not divide by the bookings is
// paid by the first of them. Launch is the machine's token.
func Shares(launch string, bookings []Booking, inFlight bool, microUSDPerHour int64) []Share {
	if len(bookings) == 0 {
		s := Share{MicroUSDPerHour: microUSDPerHour}
		if inFlight {
			s.Request = TokenUID(launch)
		}
		return []Share{s}
	}
	out := make([]Share, len(bookings))
	part, rest := microUSDPerHour/int64(len(bookings)), microUSDPerHour%int64(len(bookings))
	for i := range bookings {
		out[i] = Share{bookings[i].UID, bookings[i].tenant(), part}
		if int64(i) < rest {
			out[i].MicroUSDPerHour++
		}
	}
	return out
}
