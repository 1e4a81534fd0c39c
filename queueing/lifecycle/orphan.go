package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Orphaned ends a Workload of a job that is gone, as a deletion with --cascade=orphan
// leaves it: without an owner. It would hold its quota for ever. The owners of a group of pods do
// not control its Workload; Kueue names a StatefulSet or LeaderWorkerSet among them as its job.
func (s Rules) Orphaned(w *cache.Workload) *Verdict {
	isOwned := metav1.GetControllerOf(w.Object) != nil || workload.IsGroup(w.Object) && len(w.Object.OwnerReferences) > 0
	if w.Object.Labels[workload.JobUIDLabel] == "" || isOwned || !w.Object.DeletionTimestamp.IsZero() {
		return nil
	}
	const message = "The workload's owner no longer exists"
	return &Verdict{Workload: w, Action: Finish, Reason: kueue.WorkloadFinishedReasonOwnerNotFound, Message: message,
		Status: workload.Finished(w.Object, kueue.WorkloadFinishedReasonOwnerNotFound, message, s.now)}
}
