package jobs

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/prebuilt"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

// A job may name a Workload that something else has created for it:
//
//	no such Workload ──created──▶ nothing owns it ──take──▶ owned by the job ──admitted──▶ start
//	                                                              │
//	                                                              └─ for other pods ──▶ Finished, OutOfSync

// queuePrebuilt does as queue for a job that names a Workload; w is nil until the job has
// taken it.
func (r *reconciler) queuePrebuilt(ctx context.Context, job client.Object, w *kueue.Workload) (ready bool, err error) {
	if left, err := r.leave(ctx, job, w); left || err != nil {
		return false, err
	}
	if w == nil {
		return false, r.take(ctx, job)
	}
	// It was created for the whole job, whatever of that has ended.
	want, err := NewWorkload(ctx, r.client, r.kind, job, nil)
	if err != nil {
		return false, err
	}
	if field, err := prebuilt.Differs(ctx, r.client, w, want); field != "" || err != nil {
		if err != nil {
			return false, err
		}
		return false, r.outOfSync(ctx, job, w, "they differ in "+field)
	}
	refused := want.Annotations[workload.RefusedAnnotation]
	if workload.HasQuota(w) {
		if refused != "" && r.isNews(job.GetUID(), refused) {
			r.reportRefusal(job, refused)
		}
		return refused == "", nil
	}
	// Its podSets stay as they were created, so pods that are over by now are taken off
	// here.
	if counts := countsOf(r.kind, job, w); counts != nil {
		over := make([]int32, len(counts))
		for i, c := range counts {
			over[i] = w.Spec.PodSets[i].Count - c.Needed
		}
		if !slices.Equal(over, podcounts.Reclaimable(w)) {
			return false, SetReclaimable(ctx, r.client, w, over)
		}
	}
	before := w.Annotations[workload.RefusedAnnotation]
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool { return prebuilt.Follow(w, want) })
	if wrote && err == nil && refused != before {
		r.reportRefusal(job, refused)
	}
	return !wrote, err
}

// take makes a suspended job the owner of the Workload that it names, as Kueue does. No object may control that Workload, and it must not
// have the UID of a deleted job. The queues finish a Workload of a deleted job, and the job reports that then.
func (r *reconciler) take(ctx context.Context, job client.Object) error {
	name := PrebuiltName(job)
	w := &kueue.Workload{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: name}, w); err != nil {
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Workload %s/%s: %w", job.GetNamespace(), name, err)
		}
		if r.isNews(job.GetUID(), name) {
			r.event(job, corev1.EventTypeNormal, "WaitingForWorkload",
				"Workload %s, which %s names, doesn't exist; the job starts once it is created and admitted", name, PrebuiltLabel)
		}
		return nil
	}
	if owner := metav1.GetControllerOf(w); owner != nil {
		whose := fmt.Sprintf("%s %s", owner.Kind, owner.Name)
		if r.isNews(job.GetUID(), whose) {
			r.event(job, corev1.EventTypeWarning, "ForeignWorkload",
				"Workload %s, which %s names, belongs to %s; name one that belongs to no other job", name, PrebuiltLabel, whose)
		}
		return nil
	}
	_, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		w.OwnerReferences = append(w.OwnerReferences, *metav1.NewControllerRef(job, r.kind.GroupVersionKind()))
		metav1.SetMetaDataLabel(&w.ObjectMeta, JobUIDLabel, string(job.GetUID()))
		return true
	})
	return err
}

// outOfSync finishes a Workload that is of a job and not for it, and reports so once.
func (r *reconciler) outOfSync(ctx context.Context, job client.Object, w *kueue.Workload, why string) error {
	if workload.IsFinished(w) {
		return nil
	}
	message, err := prebuilt.Finish(ctx, r.client, w, why, r.now())
	if err != nil {
		return err
	}
	r.remember(job.GetUID(), func(m *memory) { m.reported = string(w.UID) })
	r.event(job, corev1.EventTypeWarning, kueue.WorkloadFinishedReasonOutOfSync,
		"Workload %s is finished: %s; name a Workload that matches the job", w.Name, message)
	return nil
}

// reportFinished reports on a suspended job that its prebuilt Workload has finished for good.
func (r *reconciler) reportFinished(job client.Object, w *kueue.Workload) {
	if PrebuiltName(job) != "" && r.isNews(job.GetUID(), string(w.UID)) {
		c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		r.event(job, corev1.EventTypeNormal, "FinishedWorkload",
			"Workload %s is finished, so the job can never start with it: %s; name another one", w.Name, c.Message)
	}
}
