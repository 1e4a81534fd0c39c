package jobs

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writer"
)

// tellReady keeps the condition PodsReady of a Workload that runs, if somebody
// waits for it. It reports whether it wrote.
//
//	(none) or WaitForStart ──▶ Started ──a pod is lost──▶ WaitForRecovery ──▶ Recovered
//	                                                            ▲                 │
//	                                                            └──another is lost┘
//
// That nothing is ready yet is what a Workload without the condition says too, so
// it costs no write.
func (r *reconciler) tellReady(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if !r.podsReady {
		return false, nil
	}
	have := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	ready := podsReady(job, w)
	if ready == (have != nil && have.Status == metav1.ConditionTrue) {
		return false, nil
	}
	want := metav1.Condition{Type: kueue.WorkloadPodsReady, ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(r.now())}
	switch {
	case !ready:
		want.Status, want.Reason, want.Message = metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, "At least one pod has failed, waiting for recovery"
	case have != nil && have.Reason == kueue.WorkloadWaitForRecovery:
		want.Status, want.Reason, want.Message = metav1.ConditionTrue, kueue.WorkloadRecovered, "All pods are ready again or have succeeded"
	default:
		want.Status, want.Reason, want.Message = metav1.ConditionTrue, kueue.WorkloadStarted, "All pods are ready or have succeeded"
	}
	status := w.Status.DeepCopy()
	apimeta.SetStatusCondition(&status.Conditions, want)
	_, err := writer.ApplyStatus(ctx, r.client, w, status)
	return true, err
}

// podsReady says that all pods of the Job that should be there are ready. Those
// that have succeeded, counted by the Job controller or not yet, are not missed, nor
// those that have no quota yet.
func podsReady(job *batchv1.Job, w *kueue.Workload) bool {
	ready := valueOr(job.Status.Ready, 0)
	if uncounted := job.Status.UncountedTerminatedPods; uncounted != nil {
		ready += int32(len(uncounted.Succeeded))
	}
	return ready >= min(podCount(job), granted(w))
}
