package loop

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/queueing/cache"
)

// adviceAge is how old advice may be when Workloads are judged: bookings and backoffs expire
// by themselves.
const adviceAge = time.Second

// advisor brings the provisioner's picture of the nodes to the State.
type advisor struct {
	source Capacity
	// stale: the nodes have changed since.
	stale bool
	taken time.Time
	keys  []string
	// gone are the provider IDs of the nodes that were deleted at the last check for vanished nodes.
	gone   []string
	looked time.Time
	// checks are the UIDs of AdmissionChecks that book nodes.
	checks map[types.UID]bool
}

func (a *advisor) follow(object client.Object) {
	ac, ok := object.(*kueue.AdmissionCheck)
	if ok && (ac.Spec.ControllerName == cache.CapacityController || ac.Spec.ControllerName == cache.ProvisioningRequestController) {
		if a.checks == nil {
			a.checks = map[types.UID]bool{}
		}
		a.checks[ac.UID] = true
	}
}

func (a *advisor) forget(object client.Object) { delete(a.checks, object.GetUID()) }

// advise reads the capacity snapshot again where it could matter: a Workload waits for nodes that have changed, or has become able to
// request nodes, because of an event or a timer.
func (l *Loop) advise(now time.Time, news bool) {
	a := l.capacity
	if a == nil {
		return
	}
	if keys := l.state.SelectedKeys(); !slices.Equal(keys, a.keys) {
		a.keys = keys
		a.source.Distinguish(keys...)
	}
	if l.state.UsesTopologies() {
		a.reportVanished(&l.state.Nodes, now, news)
	}
	if len(a.checks) == 0 {
		return
	}
	if a.stale && (news || l.state.WantsCapacity()) || news && now.Sub(a.taken) >= adviceAge {
		// Changes from here on count again.
		a.stale, a.taken = false, now
		l.state.SetCapacity(a.source.Snapshot(now))
	}
}

// reportVanished finds out which nodes may come back that have gone: at once where one has that pods are assigned to, else now and then.
func (a *advisor) reportVanished(nodes *cache.Nodes, now time.Time, news bool) {
	gone := slices.Sorted(maps.Values(nodes.DeletedNodes()))
	if slices.Equal(gone, a.gone) && (now.Sub(a.looked) < adviceAge || len(gone) == 0 && !news) {
		return
	}
	a.looked, a.gone = now, gone
	f := a.source.Fleet(now)
	nodes.Vanished = scaledown.VanishedOf(&f, gone)
}
