package jobs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/owned"
	"github.com/muster-dev/muster/queueing/workload"
)

// queue makes the Workload of a held job the one that the job should have. It reports
// whether it was already.
func (r *reconciler) queue(ctx context.Context, job client.Object, w *kueue.Workload) (ready bool, err error) {
	queued, err := r.isQueued(ctx, job)
	switch {
	case err != nil:
		return false, err
	case !queued:
		if w != nil {
			r.event(job, corev1.EventTypeNormal, "LeftQueue", "The label %s names no queue any more, so the job waits for none, and stays "+
				"suspended; set the label to a LocalQueue to queue it again, or resume the job", QueueLabel)
		}
		return false, r.dismiss(ctx, job, w)
	case PrebuiltName(job) != "":
		return r.queuePrebuilt(ctx, job, w)
	}
	want, err := WorkloadFor(ctx, r.client, r.kind, job, w)
	switch {
	case err != nil:
		return false, err
	case w == nil:
		if left, err := r.leave(ctx, job, nil); left || err != nil {
			return false, err
		}
		return false, r.create(ctx, job, want)
	case workload.HasQuota(w):
		if !SamePods(w, want) || w.Spec.QueueName != want.Spec.QueueName ||
			want.Spec.Priority != nil && !workload.SameClassKind(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef) {
			// The reservation is for other pods than the job has now, so it queues again.
			return false, r.discard(ctx, job, w)
		}
		wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool { return FollowReserved(w, want) })
		return !wrote, err
	case len(w.Status.ReclaimablePods) > 0:
		// The reclaimable pods belong to an attempt that is over. The next attempt has only the remaining pods.
		return false, SetReclaimable(ctx, r.client, w, nil)
	}
	refused := w.Annotations[workload.RefusedAnnotation]
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool { return Follow(w, want) })
	if why := want.Annotations[workload.RefusedAnnotation]; wrote && err == nil && why != refused {
		r.reportRefusal(job, why)
	}
	return !wrote, err
}

// create creates the Workload of a job.
func (r *reconciler) create(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if IsElastic(job) {
		w.Annotations[kueue.WorkloadSliceNameAnnotation] = sliceName(w)
	}
	for _, key := range r.labelsToCopy {
		if value, ok := job.GetLabels()[key]; ok && key != JobUIDLabel {
			w.Labels[key] = value
		}
	}
	if err := r.client.Create(ctx, w); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return r.deleteOrphan(ctx, job, w.Name)
		}
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return errNotServed
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			r.event(job, corev1.EventTypeWarning, "FailedCreate", "The job cannot be queued, since its Workload is refused: %v", err)
		}
		return fmt.Errorf("creating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	r.remember(job.GetUID(), func(m *memory) { m.created = r.now() })
	r.metrics.Created(r.kind.GroupVersionKind().Kind, job, w)
	r.event(job, corev1.EventTypeNormal, "CreatedWorkload", "Created Workload: %s/%s", w.Namespace, w.Name)
	r.reportRefusal(job, w.Annotations[workload.RefusedAnnotation])
	return nil
}

// deleteOrphan makes way for the Workload of a job where an orphan has its name. The end
// of the orphan comes as no event of the job.
func (r *reconciler) deleteOrphan(ctx context.Context, job client.Object, name string) error {
	w := &kueue.Workload{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: name}, w); err != nil {
		return fmt.Errorf("reading Workload %s/%s: %w", job.GetNamespace(), name, err)
	}
	if !isOrphanOf(w, job) {
		return writes.ErrBehind
	}
	if err := writes.Delete(ctx, r.client, w); err != nil {
		return err
	}
	return errTooEarly
}

// reportRefusal reports on the job why its Workload is refused, if it is.
func (r *reconciler) reportRefusal(job client.Object, why string) {
	if why != "" {
		r.event(job, corev1.EventTypeWarning, "Refused", "The job cannot be queued as specified: %s", why)
	}
}

// leave ends the Workloads that a job has and does not run by: it named another one than
// keep before. It reports whether it wrote.
func (r *reconciler) leave(ctx context.Context, job client.Object, keep *kueue.Workload) (bool, error) {
	var list kueue.WorkloadList
	controlled := client.MatchingFields{owned.Index: string(job.GetUID())}
	err := r.client.List(ctx, &list, client.InNamespace(job.GetNamespace()), controlled, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Workloads of %s: %w", r.name(job), err)
	}
	for i := range list.Items {
		w := &list.Items[i]
		if keep != nil && w.UID == keep.UID || workload.IsFinished(w) || !w.DeletionTimestamp.IsZero() {
			continue
		}
		if name := PrebuiltName(job); w.Name == name || name == "" && r.isOwn(job, w) {
			return false, writes.ErrBehind // it was created since the caller read the cache
		}
		return true, r.dismiss(ctx, job, w)
	}
	return false, nil
}

// discard deletes a Workload that does not fit its job. The job in the cache may be one from before its start or before its
// user changed it, as a first list has it; then the pods that are there may run by the quota of this one.
func (r *reconciler) discard(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if workload.HasQuota(w) {
		if err := r.confirmNewest(ctx, job); err != nil {
			return err
		}
	}
	return writes.Delete(ctx, r.client, w)
}

// dismiss ends a Workload by which a job is not to run; nil is none. It is deleted only if
// Muster has created it.
func (r *reconciler) dismiss(ctx context.Context, job client.Object, w *kueue.Workload) error {
	switch {
	case w == nil:
		return nil
	case r.isOwn(job, w):
		return writes.Delete(ctx, r.client, w)
	}
	return r.outOfSync(ctx, job, w, "the "+r.kind.GroupVersionKind().Kind+" no longer queues by it")
}

// isOwn reports whether a Workload of the job is one that Muster has created for it.
func (r *reconciler) isOwn(job client.Object, w *kueue.Workload) bool {
	return IsElastic(job) || w.Name == WorkloadName(r.kind.GroupVersionKind(), job)
}
