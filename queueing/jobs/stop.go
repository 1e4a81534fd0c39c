package jobs

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// stop suspends the job. Its templates are restored and its quota is released once no pod
// is left.
func (r *reconciler) stop(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
		return err
	}
	why := "it is in a queue, and has no Workload yet"
	if w != nil {
		why = "its Workload is not admitted"
		if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted) {
			why = apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Message
		}
	}
	err := r.patch(ctx, job, func(job client.Object) error { r.kind.Suspend(job); return nil })
	switch {
	case err == nil:
		r.event(job, corev1.EventTypeNormal, "Stopped", "Suspended: %s", why)
	case isRefusal(err) && r.isNews(job.GetUID(), "StopRefused"+err.Error()):
		r.event(job, corev1.EventTypeWarning, "StopRefused", "The job is to stop, since %s, but that is refused, so it keeps its quota and its "+
			"machines; correct what the message names, or delete the job: %v", why, err)
	}
	return err
}

// evict evicts the Workload of a job that a user has suspended.
func (r *reconciler) evict(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if err := r.confirmNewest(ctx, job); err != nil {
		return err
	}
	message := fmt.Sprintf("The %s was suspended by hand, or by a change of its pods, and queues again; "+
		"to keep it from starting, set spec.active of its Workload to false", r.kind.GroupVersionKind().Kind)
	_, err := writes.ApplyStatus(ctx, r.client, w, workload.Evicted(w, workload.ReasonSuspendedByHand, message, r.now()))
	if err == nil {
		r.event(job, corev1.EventTypeNormal, "Stopped", "%s", message)
	}
	return err
}

// confirmStopped fails unless no pod of a suspended job is left. The status in the cache
// may be from before the start, and that in the API server too: controllers write it after
// they have created pods. So the pods are read.
func (r *reconciler) confirmStopped(ctx context.Context, job client.Object) error {
	if !r.kind.IsStopped(job) {
		return errPodsLeft
	}
	if err := r.confirmNewest(ctx, job); err != nil {
		return err
	}
	return pods{r}.confirmNone(ctx, job)
}

// restore undoes the start of a job that has no pods left. It reports whether it wrote.
func (r *reconciler) restore(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if err := r.confirmStopped(ctx, job); err != nil {
		return false, err
	}
	record := job.GetAnnotations()[StartedAnnotation]
	var podSets []kueue.PodSet
	if w != nil {
		podSets = w.Spec.PodSets
	}
	changed := false
	undo := func(job client.Object) (err error) {
		if changed, err = r.kind.Restore(job, []byte(record), podSets); err != nil || record == "" {
			return err
		}
		annotate(job, StartedAnnotation, "")
		changed = true
		return nil
	}
	restored := job.DeepCopyObject().(client.Object)
	if err := undo(restored); err != nil {
		return r.dropRecord(ctx, job, fmt.Errorf("the annotation %s is not a record that Muster wrote: %w", StartedAnnotation, err))
	}
	if !changed {
		return false, nil
	}
	if unlocked, err := r.unlock(ctx, job); unlocked || err != nil {
		return unlocked, err
	}
	err := r.patch(ctx, job, undo)
	if isRefusal(err) && r.isNews(job.GetUID(), "FailedRestore"+err.Error()) {
		r.event(job, corev1.EventTypeWarning, "FailedRestore",
			"The pod template cannot be restored from the annotation %s, so the job does not queue again: %v; "+
				"correct what refuses it, or delete the job and create it again without the annotation", StartedAnnotation, err)
	}
	return true, err
}

// unlock takes the start off the status of a job that could not be changed otherwise. It
// reports whether it wrote.
func (r *reconciler) unlock(ctx context.Context, job client.Object) (bool, error) {
	kind, ok := r.kind.(Unlocker)
	if !ok {
		return false, nil
	}
	unlocked := job.DeepCopyObject().(client.Object)
	if !kind.Unlock(unlocked) {
		return false, nil
	}
	if err := r.client.Status().Patch(ctx, unlocked, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("removing the start time of %s: %w", r.name(job), err)
	}
	return true, nil
}

// dropRecord removes a record that no start has written from a queued job. The template
// stays: the job goes on as one that never ran.
func (r *reconciler) dropRecord(ctx context.Context, job client.Object, why error) (bool, error) {
	if queued, err := r.isQueued(ctx, job); !queued || err != nil {
		return false, err
	}
	if err := r.patch(ctx, job, func(job client.Object) error { annotate(job, StartedAnnotation, ""); return nil }); err != nil {
		return false, err
	}
	r.event(job, corev1.EventTypeWarning, "RecordDropped", "%v; it was removed, and the job is queued with its present pod template", why)
	return true, nil
}

// confirmOver fails while pods of a job that has ended are left: they hold its quota and its
// machines. Of most kinds, the status is written before the pods are gone, or leaves them.
func (r *reconciler) confirmOver(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if _, tracked := r.kind.(Tracker); tracked || !workload.HasQuota(w) {
		return nil
	}
	err := pods{r}.confirmNone(ctx, job)
	if errors.Is(err, errPodsLeft) && r.isNews(job.GetUID(), podsLeftReason) {
		r.event(job, corev1.EventTypeNormal, podsLeftReason,
			"The %s has ended, and pods of it still run; its quota and machines are released when they are gone", r.kind.GroupVersionKind().Kind)
	}
	return err
}

const podsLeftReason = "PodsStillRun"
