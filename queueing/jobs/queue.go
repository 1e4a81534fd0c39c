package jobs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
		return false, r.dismiss(ctx, job, w)
	case PrebuiltName(job) != "":
		return r.queuePrebuilt(ctx, job, w)
	}
	want, err := WorkloadFor(ctx, r.client, r.kind, job)
	switch {
	case err != nil:
		return false, err
	case w == nil:
		if left, err := r.leave(ctx, job, nil); left || err != nil {
			return false, err
		}
		return false, r.create(ctx, job, want)
	case workload.HasQuota(w):
		if !samePods(w, want) || w.Spec.QueueName != want.Spec.QueueName ||
			want.Spec.Priority != nil && !sameKind(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef) {
			// What was reserved is not what the job asks for now: it queues again.
			return false, r.delete(ctx, w)
		}
		wrote, err := r.patchWorkload(ctx, w, func(w *kueue.Workload) bool { return followReserved(w, want) })
		return !wrote, err
	case len(w.Status.ReclaimablePods) > 0:
		// They are pods of an attempt that is over; the next has only those that are left.
		return false, r.setReclaimable(ctx, w, nil)
	}
	refused := w.Annotations[workload.RefusedAnnotation]
	wrote, err := r.patchWorkload(ctx, w, func(w *kueue.Workload) bool { return follow(w, want) })
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
		return errBehind
	}
	if err := r.delete(ctx, w); err != nil {
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
	owned := client.MatchingFields{controllerIndex: string(job.GetUID())}
	err := r.client.List(ctx, &list, client.InNamespace(job.GetNamespace()), owned, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Workloads of %s: %w", r.name(job), err)
	}
	for i := range list.Items {
		w := &list.Items[i]
		if keep != nil && w.UID == keep.UID || workload.IsFinished(w) || !w.DeletionTimestamp.IsZero() {
			continue
		}
		return true, r.dismiss(ctx, job, w)
	}
	return false, nil
}

// dismiss ends a Workload by which a job is not to run; nil is none. It is deleted only if
// Muster has created it.
func (r *reconciler) dismiss(ctx context.Context, job client.Object, w *kueue.Workload) error {
	switch {
	case w == nil:
		return nil
	case IsElastic(job) || w.Name == WorkloadName(r.kind.GroupVersionKind(), job):
		return r.delete(ctx, w)
	}
	return r.outOfSync(ctx, job, w, "the "+r.kind.GroupVersionKind().Kind+" no longer queues by it")
}
