package scheduler

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// adopt admits a Workload whose pods run already: without a look at the quota or
// the checks, since what it uses it uses (promise P4 excepts it), on the first
// flavors that suit its pods. Resources without quota are not counted.
func (s *Cycle) adopt(q *cache.ClusterQueue, w *cache.Workload) *lifecycle.Verdict {
	a := &assigner{s: s, queue: q, w: w, running: true, counts: cache.PodCounts(w), assumed: quota.Amounts{}}
	a.split()
	for i := range a.slots {
		flavors := a.slots[i].flavors
		suits := slices.IndexFunc(flavors, func(f kueue.FlavorQuotas) bool {
			return s.cache.Flavors[f.Name] != nil && a.unsuitable(i, f.Name) == ""
		})
		if suits < 0 {
			return s.rules.Wait(w, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, fmt.Sprintf(
				"The job is already running, but no flavor of ClusterQueue %s matches the pods of podSet %s, so their usage is not counted",
				q.Object.Name, w.Object.Spec.PodSets[a.slots[i].podSet].Name))
		}
		a.Chosen = append(a.Chosen, option{Flavor: flavors[suits].Name})
		a.assumed.Add(a.use(i, flavors[suits].Name))
	}
	e := workload.Edit(w.Object, s.now)
	admission := a.admission()
	e.Reserve(admission, nil)
	s.cache.Assume(w, q, a.assumed, nil)
	s.cache.ExpectPods(w, admission)
	w.Reason, w.Message = "", ""
	return &lifecycle.Verdict{Workload: w, Action: lifecycle.Reserve, Reason: "QuotaReserved", Status: e.Status,
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s for running pods", q.Object.Name)}
}
