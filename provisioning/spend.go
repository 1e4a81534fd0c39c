package provisioning

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
)

// QueueLabel on a ProvisioningRequest names the LocalQueue of the job that it was made
// for. It is the label by which a job names its queue to Kueue. A policy lets only Muster,
// and those that may update LocalQueues, put it on a request.
const QueueLabel = "kueue.x-k8s.io/queue-name"

// Tenant is who pays for machines; the zero value is nobody.
type Tenant struct {
	Namespace string
	// Queue is the LocalQueue of the job that a request was made for; empty for
	// requests that came from none.
	Queue string
}

// Share is what a request pays of a machine.
type Share struct {
	// Request by its UID; empty for what nobody pays.
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

// Shares says who pays for a machine of that price: those who have booked it, in equal
// parts, until their pods have ended; one that is in flight by the request that it
// was launched for; all others by nobody. What does not divide by the bookings is
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

// Spend is what the machines of each tenant cost, in millionths of a USD per hour.
// Price is that of one machine of a group; tenant says for whom a request was made,
// also where it is gone, and is the zero value where nobody knows.
func Spend(f Fleet, price func(group string) int64, tenant func(request types.UID) Tenant) map[Tenant]int64 {
	out := map[Tenant]int64{}
	charge := func(m *cloudprovider.Machine, bookings []Booking, inFlight bool) {
		for _, s := range Shares(m.Launch, bookings, inFlight, price(m.Group)) {
			var t Tenant
			if s.Request != "" {
				t = tenant(s.Request)
			}
			if s.Namespace != "" {
				t.Namespace = s.Namespace
			}
			out[t] += s.MicroUSDPerHour
		}
	}
	for n := range f.Nodes.All() {
		if n.Machine != nil {
			charge(n.Machine, n.Labelled, n.InFlight || f.InFlight[n.Machine.Launch])
		}
	}
	for i := range f.Lone {
		if m := &f.Lone[i]; m.Counts() {
			charge(m, nil, f.InFlight[m.Launch])
		}
	}
	return out
}
