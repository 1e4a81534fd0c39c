package lifecycle

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// retention deletes a Workload after the time in objectRetentionPolicies: a finished one alone, because its job is
// finished too; a deactivated one together with its job, which would be queued again otherwise. A finished copy is for its
// manager to delete, which would start the job a second time if it had not seen the end.
func (s Rules) retention(w *cache.Workload) *Verdict {
	policies := s.cache.Config.ObjectRetentionPolicies
	if policies == nil || policies.Workloads == nil || !w.Object.DeletionTimestamp.IsZero() {
		return nil
	}
	keep := policies.Workloads
	switch {
	case workload.IsFinished(w.Object) && workload.IsCopy(w.Object):
		return nil
	case workload.IsFinished(w.Object):
		return s.removed(w, kueue.WorkloadFinished, keep.AfterFinished, nil)
	case !workload.IsActive(w.Object) && workload.DeactivatedByUs(w.Object):
		return s.removed(w, kueue.WorkloadEvicted, keep.AfterDeactivatedByKueue, metav1.GetControllerOf(w.Object))
	}
	return nil
}

// removed returns the verdict once the time after a condition is over. Before that, the Workload is evaluated again
// then.
func (s Rules) removed(w *cache.Workload, condition string, keep *metav1.Duration, job *metav1.OwnerReference) *Verdict {
	if keep == nil {
		return nil
	}
	c := apimeta.FindStatusCondition(w.Object.Status.Conditions, condition)
	if over := c.LastTransitionTime.Add(keep.Duration); s.now.Before(over) {
		s.cache.Wake(w, over)
		return nil
	}
	return &Verdict{Workload: w, Action: Remove, Job: job, Reason: "Deleted", Message: fmt.Sprintf(
		"Deleted %s after it was %s, by objectRetentionPolicies", keep.Round(time.Second), strings.ToLower(condition))}
}
