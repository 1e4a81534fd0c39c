package cost

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
)

// Spend returns the cost of each tenant's machines in millionths of a USD per hour. Price returns the price of one machine of a group.
// Tenant returns the tenant of a request, even if it is gone, and the zero value if it is unknown.
func Spend(f scaledown.Fleet, price func(group string) int64, tenant func(request types.UID) state.Tenant) map[state.Tenant]int64 {
	out := map[state.Tenant]int64{}
	charge := func(m *cloudprovider.Machine, bookings []state.Booking, inFlight bool, leftBy state.Tenant) {
		for _, s := range Shares(m.Launch, bookings, inFlight, leftBy, price(m.Group)) {
			t := s.LeftBy
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
			charge(n.Machine, n.Labelled, n.InFlight || f.InFlight[n.Machine.Launch], n.LeftBy)
		}
	}
	for i := range f.Unregistered {
		if m := &f.Unregistered[i]; m.Counts() {
			charge(m, nil, f.InFlight[m.Launch], state.Tenant{})
		}
	}
	return out
}
