package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// replacedIsChanging holds a slice back while a verdict on the Workload that it replaces is
// being carried out, or another slice takes its place. Judged without it, the slice
// would get quota beside that one's.
func (s *Cycle) replacedIsChanging(w *cache.Workload, p *Proposal) *blocker {
	key := workload.ReplacedKey(w.Object)
	if key.Name == "" || p.replaces != nil {
		return nil
	}
	changes := slices.ContainsFunc(slices.Collect(maps.Values(w.Queue.WithQuota)), func(old *cache.Workload) bool {
		return workload.KeyOf(old.Object) == key && old.Busy && workload.SameJob(old.Object, w.Object)
	})
	if by := s.cache.Replacements[key]; by != nil && by != w {
		old := s.cache.Workloads[by.Replaces]
		changes = changes || old != nil && workload.HasQuota(old.Object) && workload.SameJob(old.Object, w.Object)
	}
	if !changes {
		return nil
	}
	return &blocker{reason: kueue.WorkloadQuotaReservedReasonPendingEvaluation, until: s.now.Add(lookAgain), stepsAside: true,
		message: fmt.Sprintf("Workload %s, which this one replaces, is being changed", key.Name)}
}

// lookAgain is how long a slice waits for the one that it replaces. A write takes
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
