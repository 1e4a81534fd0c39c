package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// pause is the error of an action that has to wait for what may come without an event.
type pause struct {
	time.Duration
	why string
}

func (p *pause) Error() string { return p.why }

var (
	// errPodsLeft: pods of a stopped job are not over yet. Pods are not watched, and the
	// job's status need not change when the last of them goes.
	errPodsLeft = &pause{lag, "pods are left"}
	// errPodsMissing: pods of a started job have not come. That they are refused changes
	// nothing of the job.
	errPodsMissing = &pause{lag, "pods are missing"}
	// errTooEarly: there is something to do that may yet turn out to be needless.
	errTooEarly = &pause{settling, "it is too early"}
	// errBehind: the cache has an old version of an object; the newest comes as an event.
	errBehind = errors.New("the cache is behind")
)

// Reconcile takes one job one step on. Each step is one write, whose event asks for the
// next.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job, err := r.newJob()
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.client.Get(ctx, req.NamespacedName, job); err != nil {
		// The Workload of a deleted job goes by its owner reference.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if job.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	w, err := r.workloadOf(ctx, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := r.expected(job.GetUID(), w != nil); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err = r.act(ctx, job, w, transitions[stateOf(r.kind, job)][stateOfWorkload(w)])
	var p *pause
	switch {
	case errors.As(err, &p):
		return reconcile.Result{RequeueAfter: p.Duration}, nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errBehind):
		// The cache was behind; what it lacks comes as an event.
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// act carries out an action, up to its first write.
func (r *reconciler) act(ctx context.Context, job client.Object, w *kueue.Workload, a action) error {
	switch a {
	case queue, start, evict, restore, release, stop:
		// A job that does not run has nothing to grow from.
		if wrote, err := r.withdraw(ctx, job, w); wrote || err != nil {
			return err
		}
	}
	switch a {
	case queue, start:
		ready, err := r.queue(ctx, job, w)
		if err == nil && ready && a == start && workload.IsActive(w) {
			err = r.start(ctx, job, w)
		}
		return err
	case keep:
		return r.keep(ctx, job, w)
	case adopt:
		return r.adopt(ctx, job, w)
	case excuse:
		return r.excuse(ctx, job, w)
	case stop:
		return r.stop(ctx, job, w)
	case evict:
		return r.evict(ctx, job, w)
	case restore:
		if wrote, err := r.restore(ctx, job, w); wrote || err != nil {
			return err
		}
		// The record is not Muster's, and stays on a job that is not queued.
		return r.act(ctx, job, w, transitions[held][stateOfWorkload(w)])
	case release:
		if wrote, err := r.restore(ctx, job, w); wrote || err != nil {
			return err
		}
		_, err := writes.ApplyStatus(ctx, r.client, w, workload.Released(w, r.now()))
		return err
	case finish:
		outcome, message := r.kind.Outcome(job)
		reason := kueue.WorkloadFinishedReasonSucceeded
		if outcome == Failed {
			reason = kueue.WorkloadFinishedReasonFailed
		}
		return r.finish(ctx, w, reason, message)
	case tell:
		r.tell(job, w)
	}
	return nil
}

// finish finishes a Workload.
func (r *reconciler) finish(ctx context.Context, w *kueue.Workload, reason, message string) error {
	_, err := writes.ApplyStatus(ctx, r.client, w, workload.Finished(w, reason, message, r.now()))
	return err
}

// delete deletes a Workload as it was read, with what it holds.
func (r *reconciler) delete(ctx context.Context, w *kueue.Workload) error {
	if err := r.client.Delete(ctx, w, client.Preconditions{UID: &w.UID, ResourceVersion: &w.ResourceVersion}); err != nil {
		return fmt.Errorf("deleting Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// patch changes a job as it was read, and fails if it has changed since: so a start and
// an edit of the template cannot cross.
func (r *reconciler) patch(ctx context.Context, job client.Object, change func(client.Object) error) error {
	changed := job.DeepCopyObject().(client.Object)
	if err := change(changed); err != nil {
		return err
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching %s: %w", r.name(job), err)
	}
	return nil
}

// patchWorkload changes a Workload as it was read. It reports whether it wrote.
func (r *reconciler) patchWorkload(ctx context.Context, w *kueue.Workload, change func(*kueue.Workload) bool) (bool, error) {
	changed := w.DeepCopy()
	if !change(changed) {
		return false, nil
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("updating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return true, nil
}

// confirmNewest fails unless the cache has the newest version of a job.
func (r *reconciler) confirmNewest(ctx context.Context, job client.Object) error {
	live, err := r.newJob()
	if err != nil {
		return err
	}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(job), live); err != nil {
		return fmt.Errorf("reading %s: %w", r.name(job), err)
	}
	if live.GetUID() != job.GetUID() || live.GetResourceVersion() != job.GetResourceVersion() {
		return errBehind
	}
	return nil
}

// isBehind reports whether the cache lacks the newest version of the job's Workload.
// After a restart it may show one from before the admission.
func (r *reconciler) isBehind(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	live, err := workloadIn(ctx, r.live, r.kind, job)
	if w == nil || live == nil || err != nil {
		return w != live, err
	}
	return w.UID != live.UID || w.ResourceVersion != live.ResourceVersion, nil
}

// expected is how much longer the Workload of a job is expected to appear in the cache.
func (r *reconciler) expected(uid types.UID, appeared bool) (left time.Duration) {
	r.remember(uid, func(m *memory) {
		if left = lag - r.now().Sub(m.created); appeared || left <= 0 {
			left, m.created = 0, time.Time{}
		}
	})
	return left
}

// newJob is an empty job to read one into, of the scheme's type where it has one.
func (r *reconciler) newJob() (client.Object, error) {
	gvk := r.kind.GroupVersionKind()
	if !r.client.Scheme().Recognizes(gvk) {
		job := &unstructured.Unstructured{}
		job.SetGroupVersionKind(gvk)
		return job, nil
	}
	object, err := r.client.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("creating an empty %s: %w", gvk.Kind, err)
	}
	return object.(client.Object), nil
}

// newList is an empty list to read jobs into.
func (r *reconciler) newList() (client.ObjectList, error) {
	gvk := r.kind.GroupVersionKind()
	gvk.Kind += "List"
	if !r.client.Scheme().Recognizes(gvk) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	object, err := r.client.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("creating an empty %s: %w", gvk.Kind, err)
	}
	return object.(client.ObjectList), nil
}

// name is that of a job in errors.
func (r *reconciler) name(job client.Object) string {
	return fmt.Sprintf("%s %s/%s", r.kind.GroupVersionKind().Kind, job.GetNamespace(), job.GetName())
}

func (r *reconciler) event(job client.Object, kind, reason, format string, args ...any) {
	r.recorder.Eventf(job, nil, kind, reason, reason, "%s", provisioning.Clip(fmt.Sprintf(format, args...), provisioning.NoteLimit))
}
