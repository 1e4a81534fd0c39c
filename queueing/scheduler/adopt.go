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

// AdoptBeyondNominalAnnotation on a ClusterQueue, if it is "true", allows jobs that ran before Muster was installed to
// be adopted beyond the nominal quota.
const AdoptBeyondNominalAnnotation = "muster.dev/adopt-beyond-nominal"

// adoptRetryInterval is how often the usage of running pods is compared with the nominal quota again.
const adoptRetryInterval = 10 * time.Second

// adopt admits a Workload whose pods already run, on the first flavors that match its pods. It ignores free quota and
// admission checks, because the usage exists in any case (promise P4 excepts it). It does not count resources without
// quota. The user of the job decides how much it requests, and Muster did not start it. So it counts beyond the nominal
// quota only if an administrator allows that; otherwise all others in the queue would wait for it.
func (s *Cycle) adopt(q *cache.ClusterQueue, w *cache.Workload) *lifecycle.Verdict {
	a := &assigner{s: s, queue: q, w: w, adopting: true, counts: cache.PodCounts(w), assumed: quota.Amounts{}}
	a.splitRequests()
	for i := range a.groupRequests {
		flavors := a.groupRequests[i].flavors
		suits := slices.IndexFunc(flavors, func(f kueue.FlavorQuotas) bool {
			return s.cache.Flavors[f.Name] != nil && a.flavorMismatch(i, f.Name) == ""
		})
		if suits < 0 {
			return s.rules.Wait(w, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, fmt.Sprintf(
				"The job is already running, but no flavor of ClusterQueue %s matches the pods of podSet %s, so their usage is not counted",
				q.Object.Name, w.Object.Spec.PodSets[a.groupRequests[i].podSet].Name))
		}
		a.Chosen = append(a.Chosen, flavorCandidate{Flavor: flavors[suits].Name})
		a.assumed.Add(a.usageOf(i, flavors[suits].Name))
	}
	if fr, over := overNominal(q, a.assumed); over && !workload.WasStartedBefore(w.Object) &&
		q.Object.Annotations[AdoptBeyondNominalAnnotation] != "true" {
		s.cache.Wake(w, s.now.Add(adoptRetryInterval))
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

// overNominal returns the first resource whose usage would exceed the nominal quota of the ClusterQueue.
func overNominal(q *cache.ClusterQueue, usage quota.Amounts) (fr quota.FlavorResource, over bool) {
	for _, fr := range usage.Keys() {
		if nodegroups.Plus(q.Node.Usage(fr), usage[fr]) > q.Node.Quota(fr).Nominal {
			return fr, true
		}
	}
	return fr, false
}
