package jobs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// mark labels the pods of an adopted job that run, which no start has labelled: the policies bind pods with these labels to what they are
// counted with, and the pods are found by them when the job is deleted without its pods. The template of a job that runs does not change,
// so the pods that its controller creates later are labelled here, too. It never reports a write, since none is to its Workload.
func (r *reconciler) mark(ctx context.Context, job client.Object, w *kueue.Workload) (wrote bool, err error) {
	if !workload.IsAdopted(w) {
		return false, nil
	}
	all, err := pods{r}.in(ctx, r.client, job)
	if err != nil {
		return false, err
	}
	for i := range all {
		pod := &all[i]
		if !lacksMarks(pod) {
			continue
		}
		marked := pod.DeepCopy()
		metav1.SetMetaDataLabel(&marked.ObjectMeta, JobUIDLabel, string(job.GetUID()))
		if len(w.Spec.PodSets) == 1 {
			metav1.SetMetaDataLabel(&marked.ObjectMeta, PodSetLabel, string(w.Spec.PodSets[0].Name))
		}
		err := r.client.Patch(ctx, marked, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("labelling pod %s/%s of an adopted job: %w", pod.Namespace, pod.Name, err)
		}
	}
	return false, nil
}

// lacksMarks reports whether a pod runs below another object and has no label of a start. A pod with a gate does not run: with the label,
// the policies would let its user take the gate off.
func lacksMarks(pod *corev1.Pod) bool {
	return metav1.GetControllerOf(pod) != nil && len(pod.Spec.SchedulingGates) == 0 && !IsOver(pod) && pod.DeletionTimestamp.IsZero() &&
		pod.Labels[JobUIDLabel] == "" && pod.Labels[PodSetLabel] == "" && pod.Labels[workload.ManagedLabel] == ""
}
