package lifecycle

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Orphaned ends a Workload of a job that is gone, as a deletion with --cascade=orphan leaves it: without an owner. It would hold its
// quota for ever. One whose pods may run keeps it until they have ended: package orphans looks for them.
func (s Rules) Orphaned(w *cache.Workload) *Verdict {
	if !workload.IsOrphan(w.Object) || !w.Object.DeletionTimestamp.IsZero() || workload.HasQuota(w.Object) && workload.IsAdmitted(w.Object) {
		return nil
	}
	const message = "The workload's owner no longer exists"
	return &Verdict{Workload: w, Action: Finish, Reason: kueue.WorkloadFinishedReasonOwnerNotFound, Message: message,
		Status: workload.Finished(w.Object, kueue.WorkloadFinishedReasonOwnerNotFound, message, s.now)}
}
