package jobs

import (
	"cmp"
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

// adopt queues a job as it runs: the job keeps running, and its usage counts. A Workload cannot be created with a status, so it requests
// its adoption, and is not judged before it is adopted. A Workload without that request for a job that Muster has started, as from a
// backup, is replaced. A job with a prebuilt Workload gets no other Workload and keeps running. A job that started without Muster after
// Muster was installed is stopped.
func (r *reconciler) adopt(ctx context.Context, job client.Object, w *kueue.Workload) error {
	goesOn, err := r.goesOn(ctx, job, w)
	if err != nil {
		return err
	}
	if !goesOn {
		if wrote, err := r.withdraw(ctx, job, w); wrote || err != nil {
			return err
		}
		return r.stop(ctx, job, w)
	}
	if WasStarted(job) && (w == nil || !workload.RequestsAdoption(w)) {
		if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
			return cmp.Or(err, writes.ErrBehind)
		}
		if r.isNews(job.GetUID(), vanishedReason) {
			r.event(job, corev1.EventTypeWarning, vanishedReason, "The Workload by which the %s was started is gone; it keeps running, and its "+
				"usage counts again once it has another", r.kind.GroupVersionKind().Kind)
		}
	}
	switch {
	case PrebuiltName(job) != "" && (w == nil || !workload.RequestsAdoption(w)):
		return nil
	case w == nil:
		w, err := WorkloadFor(ctx, r.client, r.kind, job, nil)
		if err != nil {
			return err
		}
		w.Annotations[workload.AdoptedAnnotation] = "true"
		return r.create(ctx, job, w)
	case !workload.RequestsAdoption(w):
		return writes.Delete(ctx, r.client, w)
	}
	reason := workload.RanBefore
	if WasStarted(job) {
		reason = workload.StartedBefore
	}
	if _, err := writes.ApplyStatus(ctx, r.client, w, workload.Adopted(w, reason, r.now())); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Adopted",
		"The job was running without a Workload; it keeps running, and its usage counts in its queue")
	return nil
}

// vanishedReason is of the event for a job whose Workload vanished while it ran.
const vanishedReason = "WorkloadVanished"

// goesOn reports whether a running job without an admission keeps running: it ran before Muster was installed, or Muster started it and
// its Workload was lost. Only Muster writes the record of a start. If the job was evicted, its Workload shows that.
func (r *reconciler) goesOn(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	switch {
	case WasStarted(job):
		return w == nil || !workload.WasEvicted(w), nil
	case w != nil && !workload.RequestsAdoption(w):
		return false, nil
	}
	return r.ranBefore(ctx, job)
}

// ranBefore reports whether a job ran in its queue before Muster came, and so before
// anything kept it from that. It compares what only the API server writes: when the job
// and the policy were created.
func (r *reconciler) ranBefore(ctx context.Context, job client.Object) (bool, error) {
	return RanBefore(ctx, r.live, r.kind.StartPolicy(), job)
}

// RanBefore reports whether an object was created before the ValidatingAdmissionPolicy that keeps others like it from starting.
func RanBefore(ctx context.Context, live client.Reader, name string, o client.Object) (bool, error) {
	policy := &metav1.PartialObjectMetadata{}
	policy.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"))
	if err := live.Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading ValidatingAdmissionPolicy %s: %w", name, err)
	}
	created := o.GetCreationTimestamp()
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
