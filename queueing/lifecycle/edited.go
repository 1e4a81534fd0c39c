package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// ReasonAdmissionEdited is the reason of Evicted if the admission of a running Workload does not match its podSets, for
// example after a manual edit. Kueue's webhooks reject such edits, so Kueue has no reason for it.
const ReasonAdmissionEdited = "AdmissionEdited"

// editedAdmission requeues a Workload whose admission is not one that a cycle can decide.
func (s Rules) editedAdmission(w *cache.Workload) *Verdict {
	why := s.invalidAdmission(w)
	switch {
	case why == "":
		return nil
	case workload.IsAdmitted(w.Object):
		return s.Evict(w, ReasonAdmissionEdited, "status.admission was edited: "+why+"; the workload is queued again",
			kueue.WorkloadQuotaReservedReasonPendingEvaluation, time.Time{})
	}
	return s.Release(w, kueue.WorkloadQuotaReservedReasonMisconfigured, "status.admission was edited: "+why+"; the workload is queued again")
}

// invalidAdmission returns what is invalid in an admission; empty if nothing is. A deleted flavor is no reason to stop
// running pods.
func (s Rules) invalidAdmission(w *cache.Workload) string {
	admission := w.Object.Status.Admission
	if have, want := len(admission.PodSetAssignments), len(w.Object.Spec.PodSets); have != want {
		return fmt.Sprintf("it has %d podSetAssignments for %d podSets", have, want)
	}
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		assignment := workload.FindAssignment(w.Object, ps.Name)
		switch count := assignment.Count; {
		case assignment.Name != ps.Name || count == nil:
			return fmt.Sprintf("it has no count for podSet %s", ps.Name)
		case *count < 0 || *count > ps.Count && !workload.IsElastic(w.Object):
			return fmt.Sprintf("the count of podSet %s is %d, where spec.podSets has %d", ps.Name, *count, ps.Count)
		}
		for _, name := range workload.AssignedFlavors(admission) {
			if s.cache.Flavors[name] == nil && !workload.IsAdmitted(w.Object) {
				return fmt.Sprintf("ResourceFlavor %q does not exist", name)
			}
		}
	}
	return ""
}

// PartialReservation removes the rest of an incomplete reservation, such as an admission without its condition.
func (s Rules) PartialReservation(w *cache.Workload) *Verdict {
	if w.Object.Status.Admission == nil && !workload.IsTrue(w.Object, kueue.WorkloadQuotaReserved) && !workload.IsAdmitted(w.Object) {
		return nil
	}
	return s.Release(w, kueue.WorkloadQuotaReservedReasonPendingEvaluation,
		"Status was edited: status.admission and the conditions QuotaReserved and Admitted contradict each other; the workload is queued again")
}
