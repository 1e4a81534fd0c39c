package scheduler

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// replacedIsChanging holds a slice back while the Workload that it replaces has quota and cannot
// be replaced yet: a verdict on it is being carried out, it is not admitted, its pods are to go, or
// another slice takes its place. Judged without it, the slice would get quota beside that one's.
func (s *Cycle) replacedIsChanging(w *cache.Workload, p *Proposal) *blocker {
	key := workload.ReplacedKey(w.Object)
	if key.Name == "" || p.replaces != nil {
		return nil
	}
	for _, old := range s.cache.Slices.Beside(w) {
		if workload.KeyOf(old.Object) != key || workload.IsFinished(old.Object) ||
			!workload.HasQuota(old.Object) && old.Assumed == nil {
			continue
		}
		out := &blocker{reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, stepsAside: true,
			message: fmt.Sprintf("Workload %s, which this one replaces, is being changed", key.Name)}
		if s.cache.Slices.Await(w); old.Busy {
			out.until = s.now.Add(lookAgain)
		}
		return out
	}
	return nil
}

// lookAgain is how long a slice waits for a write to the one that it replaces, which takes
// milliseconds.
const lookAgain = 100 * time.Millisecond

// withoutReplaced takes the usage of the slice that is to be replaced out of the tree, and
// returns what puts it back.
func (a *assigner) withoutReplaced() (restore func()) {
	old := a.old
	if old == nil {
		return func() {}
	}
	a.queue.Node.Sub(old.Usage)
	// No other Workload may preempt it meanwhile.
	claimed := old.Claimed
	old.Claimed = true
	return func() {
		a.queue.Node.Add(old.Usage)
		old.Claimed = claimed
	}
}

// changesFlavor says that a flavor is another one than that on which the pods of the slice
// to be replaced run; "" if it is not.
func (a *assigner) changesFlavor(i int, name kueue.ResourceFlavorReference) string {
	if a.old == nil {
		return ""
	}
	slot := a.slots[i]
	have := workload.FindAssignment(a.old.Object, a.w.Object.Spec.PodSets[slot.podSet].Name)
	for _, resource := range slot.need.Names() {
		if flavor, ok := have.Flavors[resource]; ok && flavor != name {
			return fmt.Sprintf("flavor %s: the pods of Workload %s, which this one replaces, run on flavor %s", name, a.old.Object.Name, flavor)
		}
	}
	return ""
}
