package jobs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// maxOwners bounds how many owners above a job are looked at, as in Kueue.
const maxOwners = 10

// byGroupKind are the kinds that queue as a whole, with the jobs that their controllers make. A
// CronJob is not one of them: its Jobs queue one by one.
func byGroupKind(kinds []Kind) map[schema.GroupKind]Kind {
	out := map[schema.GroupKind]Kind{}
	for _, kind := range kinds {
		out[kind.GroupVersionKind().GroupKind()] = kind
	}
	return out
}

// whole is an object that queues with all that it makes.
type whole struct {
	kind   Kind
	object client.Object
}

// runs reports whether the parts of the object may run.
func (o whole) runs() bool {
	outcome, _ := o.kind.Outcome(o.object)
	return outcome == Unfinished && !o.kind.IsSuspended(o.object)
}

// wholeOf is the object that a job queues with: the outermost of those above it that is to queue;
// nil if the job is on its own. A user may write any owner into a job, so one that does not exist,
// or is in no queue, excuses nothing.
//
// Whatever makes Jobs for a Job does so beside the pods that the latter has quota for. As in
// Kueue, such a Job has no quota of its own; but where all jobs have to queue it does, since any
// user may say of a Job that another controls it.
func (r *reconciler) wholeOf(ctx context.Context, job client.Object) (out *whole, err error) {
	o := job
	for range maxOwners {
		claimed := metav1.GetControllerOf(o)
		if claimed == nil {
			return out, nil
		}
		kind := r.owners[schema.FromAPIVersionAndKind(claimed.APIVersion, claimed.Kind).GroupKind()]
		if kind == nil {
			return out, nil
		}
		if strict, err := r.allQueue(ctx, job.GetNamespace()); err != nil || strict && isJob(claimed) {
			return out, err
		}
		owner, err := r.newObject(kind)
		if err != nil {
			return nil, err
		}
		err = r.live.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: claimed.Name}, owner)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && owner.GetUID() != claimed.UID:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s %s/%s, the claimed controller of %s: %w", claimed.Kind, job.GetNamespace(), claimed.Name, r.name(job), err)
		}
		named, err := r.isNamed(ctx, owner)
		if err != nil {
			return nil, err
		}
		if named {
			out = &whole{kind, owner}
		}
		o = owner
	}
	return out, nil
}

// isPart reports whether a job queues with another object. That is looked up once for each version
// of the job, since a start or a stop of the other changes the job.
func (r *reconciler) isPart(ctx context.Context, job client.Object) (is bool, err error) {
	known := false
	r.remember(job.GetUID(), func(m *memory) { is, known = m.part.is, m.part.version == job.GetResourceVersion() })
	if known || metav1.GetControllerOf(job) == nil {
		return is, nil
	}
	with, err := r.wholeOf(ctx, job)
	if err != nil {
		return false, err
	}
	r.remember(job.GetUID(), func(m *memory) { m.part.version, m.part.is = job.GetResourceVersion(), with != nil })
	return with != nil, nil
}

// isJob reports whether an owner is a batch/v1 Job, which no operator is behind.
func isJob(owner *metav1.OwnerReference) bool {
	return owner != nil && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() == batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()
}

// join has a job queue with what it is part of.
func (r *reconciler) join(ctx context.Context, job client.Object, w *kueue.Workload, with *whole) error {
	controller, held := metav1.GetControllerOf(job), r.kind.IsSuspended(job)
	alone := job.GetAnnotations()[AloneAnnotation] == string(controller.UID)
	if held && WasStarted(job) && (alone || isJob(controller)) {
		// It has run by itself. What an operator makes has the record of another's start.
		if wrote, err := r.restore(ctx, job, w); wrote || err != nil {
			return err
		}
	}
	if outcome, _ := r.kind.Outcome(job); isJob(controller) && job.GetLabels()[QueueLabel] != "" && outcome == Unfinished && held == with.runs() {
		return r.follow(ctx, job, with)
	}
	if w != nil {
		return r.dismiss(ctx, job, w)
	}
	if !alone {
		return nil
	}
	return r.patch(ctx, job, func(job client.Object) error { annotate(job, AloneAnnotation, ""); return nil })
}

// follow starts or stops a job with what it is part of, as an operator does with what it has made.
func (r *reconciler) follow(ctx context.Context, job client.Object, with *whole) error {
	change, reason, text := r.kind.Resume, "Started", "runs"
	if !with.runs() {
		change, reason, text = r.kind.Suspend, "Stopped", "does not run"
	}
	if err := r.patch(ctx, job, func(job client.Object) error { change(job); return nil }); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, reason, "%s %s, which it is part of, %s", with.kind.GroupVersionKind().Kind, with.object.GetName(), text)
	return nil
}

// standAlone tells the policies that a job queues by itself although something controls it that
// could queue with all that it makes: they let the operator of that start the job otherwise. It
// reports whether it wrote.
func (r *reconciler) standAlone(ctx context.Context, job client.Object) (bool, error) {
	claimed := metav1.GetControllerOf(job)
	if claimed == nil || isJob(claimed) || job.GetAnnotations()[AloneAnnotation] == string(claimed.UID) ||
		r.owners[schema.FromAPIVersionAndKind(claimed.APIVersion, claimed.Kind).GroupKind()] == nil {
		return false, nil
	}
	if named, err := r.isNamed(ctx, job); !named || err != nil {
		return false, err
	}
	err := r.patch(ctx, job, func(job client.Object) error { annotate(job, AloneAnnotation, string(claimed.UID)); return nil })
	if err != nil {
		return false, err
	}
	r.event(job, corev1.EventTypeNormal, "QueuesAlone", "%s %s controls the job, and is in no queue, so that the job queues by itself", claimed.Kind, claimed.Name)
	return true, nil
}

// jobsOf are those of its kind that a Job controls.
func (r watches) jobsOf(ctx context.Context, owner client.Object) []reconcile.Request {
	return r.jobs(ctx, func(client.Object) bool { return true },
		client.InNamespace(owner.GetNamespace()), client.MatchingFields{controllerIndex: string(owner.GetUID())})
}

// startsOrStops passes what the parts of a Job follow.
var startsOrStops = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*batchv1.Job), e.ObjectNew.(*batchv1.Job)
		return (before.Spec.Suspend != nil && *before.Spec.Suspend) != (after.Spec.Suspend != nil && *after.Spec.Suspend) ||
			len(before.Status.Conditions) != len(after.Status.Conditions)
	},
}
