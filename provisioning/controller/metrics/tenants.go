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

// spend is what the machines of each tenant cost, in millionths of a USD per hour.
func (t *tenants) spend(f provisioning.Fleet, price func(group string) int64) map[tenant]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, needed := map[tenant]int64{}, map[types.UID]bool{}
	charge := func(m *cloudprovider.Machine, n *provisioning.Node) {
		for _, c := range f.Charges(m.Launch, n, price(m.Group)) {
			needed[c.UID] = true
			payer := t.byUID[c.UID]
			if c.Booking != nil {
				payer.namespace = c.Booking.Namespace
			}
			out[payer] += c.MicroUSDPerHour
		}
	}
	for n := range f.Nodes.All() {
		if n.Machine != nil {
			charge(n.Machine, n)
		}
	}
	for i := range f.Lone {
		if m := &f.Lone[i]; m.Counts() {
			charge(m, nil)
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
