package provisioning

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Charge is what somebody pays for a machine, in millionths of a USD per hour.
type Charge struct {
	// UID of the request that pays; empty where a booking is of a request that nobody
	// knows, or where nobody pays.
	UID types.UID
	// Booking is that of the request on the machine's node; nil where the request only
	// launched the machine, or where nobody pays.
	Booking         *Booking
	MicroUSDPerHour int64
}

// Over is what the charge comes to in a time, in millionths of a USD.
func (c Charge) Over(d time.Duration) int64 {
	return priceOf(max(0, d.Milliseconds()), c.MicroUSDPerHour)
}

// Charges says who pays for a machine of that launch and price: those who have booked
// its node, in equal parts, until their pods have ended; while it is in flight and nobody
// has booked it, the request that it was launched for; else nobody. The node is nil where
// it has none. The charges add up to the price.
func (f *Fleet) Charges(launch string, n *Node, microUSDPerHour int64) []Charge {
	inFlight := f.InFlight[launch]
	var bookings []Booking
	if n != nil {
		inFlight, bookings = inFlight || n.InFlight, n.Labelled
	}
	switch {
	case len(bookings) > 0:
	case inFlight:
		return []Charge{{UID: TokenUID(launch), MicroUSDPerHour: microUSDPerHour}}
	default:
		return []Charge{{MicroUSDPerHour: microUSDPerHour}}
	}
	out := make([]Charge, len(bookings))
	for i, left := range parts(microUSDPerHour, len(bookings)) {
		out[i] = Charge{UID: bookings[i].UID, Booking: &bookings[i], MicroUSDPerHour: left}
	}
	return out
}

// parts are n parts of an amount that differ by one at most, the larger ones first.
func parts(amount int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = amount / int64(n)
		if int64(i) < amount%int64(n) {
			out[i]++
		}
	}
	return out
}
