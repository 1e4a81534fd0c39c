package lifecycle

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// FinishReplaced finishes a Workload once the slice that replaces it is admitted.
func (s Rules) FinishReplaced(w, by *cache.Workload) *Verdict {
	if by.Assumed != nil || !workload.IsAdmitted(by.Object) {
		return nil
	}
	message := fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s): Workload %s has taken over its quota and pods",
		by.Object.UID, metav1.GetControllerOf(by.Object).UID, by.Object.Name)
	return &Verdict{Workload: w, Action: Finish, Reason: kueue.WorkloadSliceReplaced, Message: message,
		Status: workload.Finished(w.Object, kueue.WorkloadSliceReplaced, message, s.now)}
}

// scaleDown releases the quota of pods that an elastic job no longer needs.
func (s Rules) scaleDown(w *cache.Workload) *Verdict {
	if !workload.IsElastic(w.Object) {
		return nil
	}
	e := workload.Edit(w.Object, s.now)
	var less []string
	for i := range e.Status.Admission.PodSetAssignments {
		ps := &e.Status.Admission.PodSetAssignments[i]
		want, have := workload.FindPodSet(w.Object, ps.Name).Count, workload.CountOf(ps)
		if want >= have {
			continue
		}
		usage := nodegroups.ResourcesFrom(ps.ResourceUsage)
		for name, v := range usage {
			usage[name] = v / int64(have) * int64(max(0, want))
		}
		ps.Count, ps.ResourceUsage = new(max(0, want)), usage.List()
		less = append(less, fmt.Sprintf("%s has %d pods instead of %d", ps.Name, want, have))
	}
	if len(less) == 0 {
		return nil
	}
	return &Verdict{Workload: w, Action: Advance, Reason: "QuotaShrunk",
		Message: "The job shrinks: podSet " + strings.Join(less, ", podSet "), Status: e.Status}
}
