package metrics

import (
	"cmp"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
)

// tenants has the tenants of requests. The tenant of a deleted request is kept as long as a machine is attributed to it.
type tenants struct {
	mu    sync.Mutex
	byUID map[types.UID]state.Tenant
	ended map[types.UID]bool
	// spent is the total of each tenant in millionths of a USD.
	spent map[state.Tenant]int64
}

func newTenants() *tenants {
	return &tenants{byUID: map[types.UID]state.Tenant{}, ended: map[types.UID]bool{}, spent: map[state.Tenant]int64{}}
}

// set records a request. Its queue is kept when its job is gone.
func (t *tenants) set(r *provreq.ProvisioningRequest, queue string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if queue == "" {
		queue = t.byUID[r.UID].Queue
	}
	t.byUID[r.UID] = state.Tenant{Namespace: r.Namespace, Queue: queue}
}

// gone records that a request has been deleted.
func (t *tenants) gone(r *provreq.ProvisioningRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[r.UID] = true
}

// add adds the spend since the last call, and returns the total of each tenant.
func (t *tenants) add(spent []cost.Spent) map[state.Tenant]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range spent {
		tenant := s.Tenant
		if known, ok := t.byUID[s.Request]; ok {
			tenant.Queue = cmp.Or(known.Queue, tenant.Queue)
			tenant.Namespace = cmp.Or(tenant.Namespace, known.Namespace)
		}
		t.spent[tenant] += s.MicroUSD
	}
	return maps.Clone(t.spent)
}

// spend returns the cost of each tenant's machines in millionths of a USD per hour.
func (t *tenants) spend(f scaledown.Fleet, price func(group string) int64) map[state.Tenant]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	needed := map[types.UID]bool{}
	out := cost.Spend(f, price, func(uid types.UID) state.Tenant {
		needed[uid] = true
		return t.byUID[uid]
	})
	for uid := range t.ended {
		if !needed[uid] {
			delete(t.ended, uid)
			delete(t.byUID, uid)
		}
	}
	return out
}
