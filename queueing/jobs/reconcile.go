package jobs

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// Reconcile takes one step for a job. Each step is one write, and the event of that write enqueues the next step.
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
		return after(r.letGo(ctx, job))
	}
	if current, err := r.resolve(ctx, job); err != nil || !current {
		return reconcile.Result{}, err // the event of the source enqueues it again
	}
	w, err := r.workloadOf(ctx, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := r.expected(job.GetUID(), w != nil); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if w == nil {
		if managed, err := r.naming().IsManaged(ctx, job.GetNamespace()); !managed || err != nil {
			return reconcile.Result{}, err
		}
	}
	return after(r.advance(ctx, job, w))
}

// after returns when a job is reconciled again.
func after(err error) (reconcile.Result, error) {
	var p *pause
	switch {
	case errors.As(err, &p):
		return reconcile.Result{RequeueAfter: p.Duration}, nil
	case writes.IsBehind(err):
		// What the cache lacks comes as an event, mostly of the job or of its Workload.
		return reconcile.Result{RequeueAfter: lag}, nil
	}
	return reconcile.Result{}, err
}

// advance does what a job needs next, up to the first write.
func (r *reconciler) advance(ctx context.Context, job client.Object, w *kueue.Workload) error {
	// The annotations of what it is part of may be on it, too, that of a start among them.
	with, err := parts{r}.wholeOf(ctx, job)
	if err != nil {
		return err
	}
	if with != nil {
		return parts{r}.join(ctx, job, w, with)
	}
	if wrote, err := (parts{r}).standAlone(ctx, job); wrote || err != nil {
		return err
	}
	return r.act(ctx, job, w, transitions[stateOf(r.kind, job)][workload.StateOf(w)])
}

// act carries out an action, up to its first write.
func (r *reconciler) act(ctx context.Context, job client.Object, w *kueue.Workload, a action) error {
	switch a {
	case queue, start, evict, restore, release, stop, runRemote, stopRemote:
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
	case runRemote:
		return delegation{r}.runRemote(ctx, job, w)
	case stopRemote:
		return delegation{r}.stopRemote(ctx, job, w)
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
		return r.act(ctx, job, w, transitions[held][workload.StateOf(w)])
	case release:
		if wrote, err := r.restore(ctx, job, w); wrote || err != nil {
			return err
		}
		_, err := writes.ApplyStatus(ctx, r.client, w, workload.Released(w, r.now()))
		return err
	case finish:
		outcome, message := r.kind.Outcome(job)
		if err := r.confirmOver(ctx, job, w); err != nil {
			return err
		}
		reason := kueue.WorkloadFinishedReasonSucceeded
		if outcome == Failed {
			reason = kueue.WorkloadFinishedReasonFailed
		}
		return writes.Finish(ctx, r.client, w, reason, message, r.now())
	case reportEnd:
		r.reportFinished(job, w)
	}
	return nil
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
