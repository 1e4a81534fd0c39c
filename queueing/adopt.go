package queueing

import (
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// AdoptedAnnotation, "true" on a Workload, says that its job ran before Muster
// came. Only Muster may set it, since it gives quota that nobody looks at.
const AdoptedAnnotation = "muster.dev/adopted"

// isAdopted says that the pods of a Workload without quota run nevertheless. Once
// it was evicted, it queues like any other.
func isAdopted(w *kueue.Workload) bool {
	return w.Annotations[AdoptedAnnotation] == "true" && apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) == nil
}

// adopt admits a Workload whose pods run already: without a look at the quota or
// the checks, since what it uses it uses (promise P4 excepts it), on the first
// flavors that suit its pods. Resources without quota are not counted. The old one,
// if it is not nil, is the slice whose flavors it goes on with.
func (s *State) adopt(q *queue, w, old *Workload) *Verdict {
	a := &assigner{s: s, queue: q, w: w, old: old, running: true, counts: podCounts(w), assumed: quota.Amounts{}}
	a.split()
	for i := range a.slots {
		flavors := a.slots[i].flavors
		suits := slices.IndexFunc(flavors, func(f kueue.FlavorQuotas) bool {
			return s.flavors[f.Name] != nil && a.unsuitable(i, f.Name) == ""
		})
		if suits < 0 {
			return s.wait(w, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, fmt.Sprintf(
				"The job runs already, but no flavor of ClusterQueue %s suits the pods of podSet %s, so their usage is not counted",
				q.object.Name, w.Object.Spec.PodSets[a.slots[i].podSet].Name))
		}
		a.chosen = append(a.chosen, option{flavor: flavors[suits].Name})
		a.assumed.Add(a.use(i, flavors[suits].Name))
	}
	e := edit(w.Object, s.now)
	admission := a.admission()
	e.reserve(admission, nil)
	w.assume(q, a.assumed)
	s.starts(w)
	s.comes(w, admission)
	w.reason, w.message = "", ""
	return &Verdict{Workload: w, Action: Reserve, Reason: "QuotaReserved", Status: e.status,
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s for pods that run already", q.object.Name)}
}
