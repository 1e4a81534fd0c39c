package scheduler

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// replacedIsChanging blocks a slice while the Workload that it replaces has quota and cannot be replaced yet: a verdict
// on it is being applied, it is not admitted, its pods are being stopped, or another slice replaces it. Otherwise the
// slice would get quota in addition to that of the replaced one.
func (s *Cycle) replacedIsChanging(w *cache.Workload, p *Assignment) *blocker {
	key := workload.ReplacedKey(w.Object)
	if key.Name == "" || p.replaces != nil {
		return nil
	}
	for _, old := range s.cache.Slices.Beside(w) {
		if workload.KeyOf(old.Object) != key || workload.IsFinished(old.Object) ||
			!workload.HasQuota(old.Object) && old.Assumed == nil {
			continue
		}
		out := &blocker{reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, letsOthersPass: true,
			message: fmt.Sprintf("Workload %s, which this one replaces, is being changed", key.Name)}
		if s.cache.Slices.Await(w); old.Busy {
			out.until = s.now.Add(replacedRetryInterval)
		}
		return out
	}
	return nil
}

// replacedRetryInterval is how long a slice waits for a write to the one that it replaces; a write takes milliseconds.
const replacedRetryInterval = 100 * time.Millisecond

// simulateReplacedRemoval removes the usage of the replaced slice from the tree, and returns the undo.
func (a *assigner) simulateReplacedRemoval() (restore func()) {
	old := a.replaced
	if old == nil {
		return func() {}
	}
	a.queue.Node.Sub(old.Usage)
	// No other Workload may preempt it meanwhile.
	claimed := old.Targeted
	old.Targeted = true
	return func() {
		a.queue.Node.Add(old.Usage)
		old.Targeted = claimed
	}
}

// replacedFlavorMismatch returns why a flavor differs from the one that the pods of the replaced slice use; empty if it
// does not.
func (a *assigner) replacedFlavorMismatch(i int, name kueue.ResourceFlavorReference) string {
	if a.replaced == nil {
		return ""
	}
	slot := a.groupRequests[i]
	have := workload.FindAssignment(a.replaced.Object, a.w.Object.Spec.PodSets[slot.podSet].Name)
	for _, resource := range slot.requests.Names() {
		if flavor, ok := have.Flavors[resource]; ok && flavor != name {
			return fmt.Sprintf("flavor %s: the pods of Workload %s, which this one replaces, run on flavor %s", name, a.replaced.Object.Name, flavor)
		}
	}
	return ""
}
