package lifecycle

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Orphaned finishes a Workload whose job is gone and that has no owner, as after a deletion with --cascade=orphan.
// Otherwise it would keep its quota forever. A Workload whose pods may run keeps its quota until they have ended;
// package orphans handles that.
func (s Rules) Orphaned(w *cache.Workload) *Verdict {
	if !workload.IsOrphan(w.Object) || !w.Object.DeletionTimestamp.IsZero() || workload.HasQuota(w.Object) && workload.IsAdmitted(w.Object) {
		return nil
	}
	const message = "The workload's owner no longer exists"
	return &Verdict{Workload: w, Action: Finish, Reason: kueue.WorkloadFinishedReasonOwnerNotFound, Message: message,
		Status: workload.Finished(w.Object, kueue.WorkloadFinishedReasonOwnerNotFound, message, s.now)}
}
