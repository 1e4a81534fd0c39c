package queueing

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

const (
	// AdoptedAnnotation, "true" on a Workload, asks that it be adopted: its job runs,
	// and ran before Muster came. It gives nothing, since more than Muster may write
	// annotations; the Workload waits until ConditionAdopted says that it is so.
	AdoptedAnnotation = "muster.dev/adopted"
	// ConditionAdopted of a Workload is True where Muster has seen that its job ran
	// before Muster came. It stands in the status beside the admission itself, so
	// that the rights which forge the one forge the other.
	ConditionAdopted = "muster.dev/Adopted"
)

// IsAdopted reports whether the pods of a Workload run even without quota. Once it
// was evicted, it queues like any other.
func IsAdopted(w *kueue.Workload) bool { return isTrue(w, ConditionAdopted) && !wasEvicted(w) }

// AsksAdoption reports whether a Workload waits for the word that its job ran before
// Muster came.
func AsksAdoption(w *kueue.Workload) bool {
	return w.Annotations[AdoptedAnnotation] == "true" && !HasQuota(w) && !IsAdopted(w) && !wasEvicted(w)
}

func wasEvicted(w *kueue.Workload) bool {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil
}

// Adopted is the status of a Workload whose job ran before Muster came.
func Adopted(w *kueue.Workload, now time.Time) *kueue.WorkloadStatus {
	e := edit(w, now)
	e.set(ConditionAdopted, metav1.ConditionTrue, "RanBefore", "The job ran before Muster came; it is left running, and its usage counts")
	return e.status
}

// adopt admits a Workload whose pods run already: without a look at the quota or
// the checks, since what it uses it uses (promise P4 excepts it), on the first
// flavors that suit its pods. Resources without quota are not counted.
func (s *Cycle) adopt(q *queue, w *Workload) *Verdict {
	a := &assigner{s: s, queue: q, w: w, running: true, counts: podCounts(w), assumed: quota.Amounts{}}
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
	s.assume(w, q, a.assumed)
	s.comes(w, admission)
	w.reason, w.message = "", ""
	return &Verdict{Workload: w, Action: Reserve, Reason: "QuotaReserved", Status: e.status,
		Message: fmt.Sprintf("Quota reserved in ClusterQueue %s for pods that run already", q.object.Name)}
}
