package jobs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/owners"
)

// join has a job queue with what it is part of.
func (r parts) join(ctx context.Context, job client.Object, w *kueue.Workload, with *whole) error {
	controller, held := metav1.GetControllerOf(job), r.kind.IsSuspended(job)
	alone := job.GetAnnotations()[AloneAnnotation] == string(controller.UID)
	if held && WasStarted(job) && (alone || owners.IsJob(controller)) {
		// It has run by itself. What an operator makes has the record of another's start.
		if wrote, err := r.restore(ctx, job, w); wrote || err != nil {
			return err
		}
	}
	if outcome, _ := r.kind.Outcome(job); follows(job) && outcome == Unfinished && held == with.runs() {
		return r.follow(ctx, job, with)
	}
	if w != nil || !alone {
		return r.dismiss(ctx, job, w)
	}
	return r.patch(ctx, job, func(job client.Object) error { annotate(job, AloneAnnotation, ""); return nil })
}

// follows reports whether a job starts and stops with what it is part of. What an operator makes is
// started and stopped by that.
func follows(job client.Object) bool {
	return job.GetLabels()[QueueLabel] != "" && owners.IsJob(metav1.GetControllerOf(job))
}

// follow starts or stops a job with what it is part of, as an operator does with what it has made.
func (r parts) follow(ctx context.Context, job client.Object, with *whole) error {
	change, reason, text := r.kind.Resume, "Started", "runs"
	if !with.runs() {
		change, reason, text = r.kind.Suspend, "Stopped", "does not run"
	}
	if err := r.patch(ctx, job, func(job client.Object) error { change(job); return nil }); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, reason, "%s %s, which it is part of, %s", with.kind.GroupVersionKind().Kind,
		with.object.GetName(), text)
	return nil
}

// standAlone marks a job that queues by itself although its controller could queue with all that it creates. Without the mark, the
// policies would let the operator of that controller start the job. It reports whether it wrote.
func (r parts) standAlone(ctx context.Context, job client.Object) (bool, error) {
	claimed := metav1.GetControllerOf(job)
	if claimed == nil || owners.IsJob(claimed) || job.GetAnnotations()[AloneAnnotation] == string(claimed.UID) ||
		r.owners[owners.KindOf(claimed)] == nil {
		return false, nil
	}
	if named, err := r.naming().IsNamed(ctx, job); !named || err != nil {
		return false, err
	}
	err := r.patch(ctx, job, func(job client.Object) error { annotate(job, AloneAnnotation, string(claimed.UID)); return nil })
	if err != nil {
		return false, err
	}
	r.event(job, corev1.EventTypeNormal, "QueuesAlone", "%s %s controls the job, and is in no queue, so that the job queues by itself",
		claimed.Kind, claimed.Name)
	return true, nil
}
