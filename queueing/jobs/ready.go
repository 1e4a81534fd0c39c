package jobs

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
)

// reportReady keeps the condition PodsReady of the Workload of a running job, if the
// configuration waits for it. It reports whether it wrote.
//
//	(none) or WaitForStart ──▶ Started ──a pod is lost──▶ WaitForRecovery ──▶ Recovered
//	                                                            ▲                 │
//	                                                            └──another is lost┘
//
// A Workload without the condition says that nothing is ready yet, too, so that costs no
// write.
func (r *reconciler) reportReady(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if !r.podsReady {
		return false, nil
	}
	ready, err := pods{r}.areReady(ctx, job, w, granted(w))
	if err != nil {
		return false, err
	}
	status := ReadyStatus(w, ready, r.now())
	if status == nil {
		return false, nil
	}
	_, err = writes.ApplyStatus(ctx, r.client, w, status)
	return true, err
}

// ReadyStatus is the status of a Workload whose pods are all ready, or not; nil if it says so
// already.
func ReadyStatus(w *kueue.Workload, ready bool, now time.Time) *kueue.WorkloadStatus {
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == (have != nil && have.Status == metav1.ConditionTrue) {
		return nil
	}
	want := metav1.Condition{
		Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted,
		Message:            "All pods are ready or have succeeded",
		ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case !ready:
		want.Status, want.Reason = metav1.ConditionFalse, kueue.WorkloadWaitForRecovery
		want.Message = "At least one pod has failed, waiting for recovery"
	case have != nil && have.Reason == kueue.WorkloadWaitForRecovery:
		want.Reason, want.Message = kueue.WorkloadRecovered, "All pods are ready again or have succeeded"
	}
	status := w.Status.DeepCopy()
	apimeta.SetStatusCondition(&status.Conditions, want)
	return status
}
