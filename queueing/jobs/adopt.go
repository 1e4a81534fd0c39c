package jobs

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// startPolicy keeps queued jobs from starting by themselves, from its creation on.
const startPolicy = "muster-jobs-start"

// adopt queues a job as it runs: it keeps running, and its usage counts. A Workload is
// created without its status, so it asks first, and is not judged before it is adopted. A
// job that names a prebuilt Workload gets no other one, and runs on. A job that started
// after Muster came is stopped.
func (r *reconciler) adopt(ctx context.Context, job client.Object, w *kueue.Workload) error {
	before, err := r.ranBefore(ctx, job)
	switch {
	case err != nil:
		return err
	case !before:
		if wrote, err := r.withdraw(ctx, job, w); wrote || err != nil {
			return err
		}
		return r.stop(ctx, job, w)
	case w == nil && PrebuiltName(job) != "":
		return nil
	case w == nil:
		w, err := WorkloadFor(ctx, r.client, r.kind, job)
		if err != nil {
			return err
		}
		w.Annotations[workload.AdoptedAnnotation] = "true"
		return r.create(ctx, job, w)
	}
	if _, err := writes.ApplyStatus(ctx, r.client, w, workload.Adopted(w, r.now())); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Adopted",
		"The job was running before Muster could queue it; it keeps running, and its usage counts in its queue")
	return nil
}

// ranBefore reports whether a job ran in its queue before Muster came, and so before
// anything kept it from that. It compares what only the API server writes: when the job
// and the policy were created.
func (r *reconciler) ranBefore(ctx context.Context, job client.Object) (bool, error) {
	if wasStarted(job) {
		return false, nil
	}
	policy := &metav1.PartialObjectMetadata{}
	policy.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"))
	if err := r.live.Get(ctx, client.ObjectKey{Name: startPolicy}, policy); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading ValidatingAdmissionPolicy %s: %w", startPolicy, err)
	}
	created := job.GetCreationTimestamp()
	return created.Before(&policy.CreationTimestamp), nil
}

// excuse deletes the Workload of a job that an administrator lets run outside its queue.
func (r *reconciler) excuse(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if r.isNews(job.GetUID(), BreakGlassAnnotation) {
		r.event(job, corev1.EventTypeWarning, "RunsOutsideQueue", "An administrator lets the job run outside its queue and without quota: %s",
			job.GetAnnotations()[BreakGlassAnnotation])
	}
	return r.dismiss(ctx, job, w)
}
