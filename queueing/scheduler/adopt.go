package scheduler

import (
	"fmt"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// AdoptBeyondNominalAnnotation on a ClusterQueue, if it is "true", is an administrator's word that jobs which ran before Muster came
// count there however much they use.
const AdoptBeyondNominalAnnotation = "muster.dev/adopt-beyond-nominal"

// adoptAgain is how soon it is looked again whether running pods are within the nominal quota.
const adoptAgain = 10 * time.Second

// adopt admits a Workload whose pods run already: without a look at what is free or at
// the checks, since what it uses it uses (promise P4 excepts it), on the first
// flavors that suit its pods. Resources without quota are not counted. How much a job uses that Muster has not started is its user's
// word: beyond the nominal quota it counts only by that of an administrator, since all others in the queue would wait for it.
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
	if fr, over := overNominal(q, a.assumed); over && !workload.WasStartedBefore(w.Object) &&
		q.Object.Annotations[AdoptBeyondNominalAnnotation] != "true" {
		s.cache.Wake(w, s.now.Add(adoptAgain))
		return s.rules.Wait(w, kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
			"The job is already running, and with it ClusterQueue %s would use more than its nominal quota of %s in flavor %s, so its usage is not "+
				"counted; an administrator can raise the quota, or set the annotation %s of the ClusterQueue to \"true\"",
			q.Object.Name, fr.Resource, fr.Flavor, AdoptBeyondNominalAnnotation))
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

// overNominal is the first of the amounts by which a ClusterQueue would use more than its nominal quota.
func overNominal(q *cache.ClusterQueue, usage quota.Amounts) (fr quota.FlavorResource, over bool) {
	for _, fr := range usage.Keys() {
		if nodegroups.Plus(q.Node.Usage(fr), usage[fr]) > q.Node.Quota(fr).Nominal {
			return fr, true
		}
	}
	return fr, false
}
