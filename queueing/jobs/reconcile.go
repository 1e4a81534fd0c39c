package jobs

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

// Reconcile takes one Job one step on. Each step is one write, and its change
// comes back as an event that asks for the next.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := r.client.Get(ctx, req.NamespacedName, job); err != nil {
		// The Workload of a deleted Job goes by its owner reference.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !job.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	w, err := r.workloadOf(ctx, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := r.expected(job.UID, w != nil); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err = r.step(ctx, job, w)
	switch {
	case errors.Is(err, errPodsLeft):
		// Pods are not watched, and the Job's status need not change when the last
		// of them goes.
		return reconcile.Result{RequeueAfter: lag}, nil
	case errors.Is(err, errPodsMissing):
		// That they are refused changes nothing of the Job.
		return reconcile.Result{RequeueAfter: lag}, nil
	case errors.Is(err, errTooEarly):
		return reconcile.Result{RequeueAfter: settling}, nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errBehind):
		// The cache was behind; what it lacks will come as an event.
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// workloadOf reads the Job's Workload; nil if there is none.
func (r *reconciler) workloadOf(ctx context.Context, job *batchv1.Job) (*kueue.Workload, error) {
	return workloadIn(ctx, r.client, job)
}

func workloadIn(ctx context.Context, c client.Reader, job *batchv1.Job) (*kueue.Workload, error) {
	if PrebuiltName(job) != "" {
		return prebuiltIn(ctx, c, job)
	}
	if isElastic(job) {
		all, err := slicesOf(ctx, c, job)
		return current(all), err
	}
	w := &kueue.Workload{}
	key := client.ObjectKey{Namespace: job.Namespace, Name: WorkloadName(job)}
	if err := c.Get(ctx, key, w); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Workload %s: %w", key, err)
	}
	switch {
	case isOrphanOf(w, job):
		return nil, nil
	case !metav1.IsControlledBy(w, job):
		return nil, fmt.Errorf("the Workload %s has the name of Job %s's own but another owner; delete it", key, job.Name)
	}
	return w, nil
}

// isOrphanOf reports whether a Workload was the Job's, and has lost its owner. The queue
// finishes it, so the Job may not run by it.
func isOrphanOf(w *kueue.Workload, job *batchv1.Job) bool {
	return metav1.GetControllerOf(w) == nil && w.Labels[JobUIDLabel] == string(job.UID)
}

func (r *reconciler) step(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if reason, message, over := finished(job); over {
		return r.finish(ctx, w, reason, message)
	}
	if w != nil && (!w.DeletionTimestamp.IsZero() || queueing.IsFinished(w)) {
		if PrebuiltName(job) != "" && isSuspended(job) && queueing.IsFinished(w) {
			r.tellFinished(job, w)
		}
		return nil
	}
	if isSuspended(job) {
		return r.stepSuspended(ctx, job, w)
	}
	return r.stepRunning(ctx, job, w)
}

func (r *reconciler) finish(ctx context.Context, w *kueue.Workload, reason, message string) error {
	if w == nil || queueing.IsFinished(w) {
		return nil
	}
	_, err := writer.ApplyStatus(ctx, r.client, w, queueing.Finished(w, reason, message, r.now()))
	return err
}

// forget deletes the Workload of a Job that is not to be queued, with what it
// holds.
func (r *reconciler) forget(ctx context.Context, w *kueue.Workload) error {
	if w == nil {
		return nil
	}
	if err := r.client.Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion}); err != nil {
		return fmt.Errorf("deleting Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// isBehind says that the cache has not the newest version of the Job's Workload.
// After a restart it may show one from before the admission.
func (r *reconciler) isBehind(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	live, err := workloadIn(ctx, r.live, job)
	if w == nil || live == nil || err != nil {
		return w != live, err
	}
	return w.UID != live.UID || w.ResourceVersion != live.ResourceVersion, nil
}

// patchJob changes a Job as it was read, and fails if it has changed since: so a
// start and an edit of the template cannot cross.
func (r *reconciler) patchJob(ctx context.Context, job *batchv1.Job, change func(*batchv1.Job) error) error {
	changed := job.DeepCopy()
	if err := change(changed); err != nil {
		return err
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

func (r *reconciler) event(job *batchv1.Job, kind, reason, format string, args ...any) {
	r.recorder.Eventf(job, nil, kind, reason, reason, "%s", provisioning.Clip(fmt.Sprintf(format, args...), provisioning.NoteLimit))
}
