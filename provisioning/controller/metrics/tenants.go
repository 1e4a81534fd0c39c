package metrics

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning"
)

// tenant is who pays; the zero value is nobody.
type tenant struct{ namespace, queue string }

// tenants remember who requests were made for: also of those that are gone, as long
// as a machine is theirs.
type tenants struct {
	mu    sync.Mutex
	byUID map[types.UID]tenant
	ended map[types.UID]bool
}

func newTenants() *tenants {
	return &tenants{byUID: map[types.UID]tenant{}, ended: map[types.UID]bool{}}
}

// set notes a request. A queue that was known stays so when its job has gone.
func (t *tenants) set(r *provreq.ProvisioningRequest, queue string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if queue == "" {
		queue = t.byUID[r.UID].queue
	}
	t.byUID[r.UID] = tenant{r.Namespace, queue}
}

// gone notes that a request has been deleted.
func (t *tenants) gone(r *provreq.ProvisioningRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[r.UID] = true
}

// spend is what the machines of each tenant cost, in USD per hour. A machine is paid
// for by those who have booked it, in equal parts, until their pods have ended; one
// that is in flight by the request that it was launched for; all others by nobody.
func (t *tenants) spend(f provisioning.Fleet, price func(group string) float64) map[tenant]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, needed := map[tenant]float64{}, map[types.UID]bool{}
	payer := func(uid types.UID) tenant {
		needed[uid] = true
		return t.byUID[uid]
	}
	charge := func(m *cloudprovider.Machine, bookings []provisioning.Booking, inFlight bool) {
		if inFlight && len(bookings) == 0 {
			out[payer(provisioning.TokenUID(m.Launch))] += price(m.Group)
			return
		}
		for i := range bookings {
			b := &bookings[i]
			out[tenant{b.Namespace, payer(b.UID).queue}] += price(m.Group) / float64(len(bookings))
		}
		if len(bookings) == 0 {
			out[tenant{}] += price(m.Group)
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
	for uid := range t.ended {
		if !needed[uid] {
			delete(t.ended, uid)
			delete(t.byUID, uid)
		}
	}
	return out
}
