package jobs

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// letGo does what a job needs that is being deleted, which a finalizer may put off for as long as its user likes. Its pods run on, and
// hold quota and machines: it stops where its Workload is evicted. Once none of its pods is left, and at once where it never started,
// its Workloads are over. The job's status does not show it, because most controllers ignore a job that is being deleted.
func (r *reconciler) letGo(ctx context.Context, job client.Object) error {
	w, err := r.workloadOf(ctx, job)
	if w == nil || err != nil || IsDelegated(r.kind, job) {
		return err // with the job goes its copy in another cluster
	}
	switch state := stateOf(r.kind, job); {
	case state == ended && !workload.IsFinished(w):
		return r.act(ctx, job, w, finish)
	case state == held || state == stopped:
		if err := r.confirmNewest(ctx, job); err != nil {
			return err
		}
		if err := (pods{r}).confirmNone(ctx, job); errors.Is(err, errPodsLeft) {
			return r.sweep(ctx, job)
		} else if err != nil {
			return err
		}
		return r.finishAll(ctx, job, w)
	case workload.StateOf(w) == evicted:
		return r.stop(ctx, job, w)
	}
	return nil
}

// sweep has the garbage collector delete the pods of a suspended job that is being deleted, and all else that it controls. To suspend it
// does not stop them: the controllers of Jobs, JobSets and Kubeflow leave such a job alone.
func (r *reconciler) sweep(ctx context.Context, job client.Object) error {
	if controllerutil.ContainsFinalizer(job, metav1.FinalizerDeleteDependents) || controllerutil.ContainsFinalizer(job,
		metav1.FinalizerOrphanDependents) {
		return errPodsLeft
	}
	uid := job.GetUID()
	err := r.client.Delete(ctx, job, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("deleting the pods of %s: %w", r.name(job), err))
	}
	r.event(job, corev1.EventTypeNormal, "PodsDeleted",
		"The job is suspended and being deleted, and finalizers keep it: %v. Its pods are deleted, since it has no quota for them",
		job.GetFinalizers())
	return errPodsLeft
}

// finishAll finishes the Workloads of a job that will not run any more: an elastic one may have several.
func (r *reconciler) finishAll(ctx context.Context, job client.Object, w *kueue.Workload) error {
	all := []*kueue.Workload{w}
	if IsElastic(job) {
		var err error
		if all, err = slicesOf(ctx, r.client, job); err != nil {
			return err
		}
	}
	for _, w := range all {
		if workload.IsFinished(w) {
			continue
		}
		if err := writes.Finish(ctx, r.client, w, kueue.WorkloadFinishedReasonOwnerNotFound, "The job is being deleted, and has no pods",
			r.now()); err != nil {
			return err
		}
	}
	return nil
}
