package jobs

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

// startPolicy keeps Jobs in queues from running by themselves, from its creation
// on.
const startPolicy = "muster-jobs-start"

// stepRunning looks at a Job that is not suspended. Those that never were in a
// queue's hands are left alone.
func (r *reconciler) stepRunning(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if w != nil && queueing.HasQuota(w) && queueing.IsAdmitted(w) && !queueing.IsEvicted(w) {
		return r.keepUp(ctx, job, w)
	}
	// Only on Jobs that name a queue is it an admin's word.
	if reason := job.Annotations[BreakGlassAnnotation]; reason != "" && job.Labels[QueueLabel] != "" {
		if r.firstTime(job.UID, BreakGlassAnnotation) {
			r.event(job, corev1.EventTypeWarning, "RunsOutsideQueue", "An admin lets the Job run outside its queue, without quota: %s", reason)
		}
		return r.dismiss(ctx, job, w)
	}
	if isEnding(job) || w != nil && queueing.IsAdopted(w) {
		return nil
	}
	// A Job that names no queue ran before its namespace was told to queue all.
	if w == nil && job.Labels[QueueLabel] == "" {
		return nil
	}
	if w == nil || queueing.AsksAdoption(w) {
		adopts, err := r.adopts(ctx, job)
		if err != nil {
			return err
		}
		if adopts {
			return r.adopt(ctx, job, w)
		}
	}
	if wrote, err := r.withdraw(ctx, job, w); wrote || err != nil {
		return err
	}
	return r.stop(ctx, job, w)
}

// keepUp does what there is to do for a Job that runs as it should.
func (r *reconciler) keepUp(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (later error) {
	for _, step := range []func(context.Context, *batchv1.Job, *kueue.Workload) (bool, error){
		r.prioritize, r.tellReady, r.scale, r.reclaim, r.tellRefused,
	} {
		wrote, err := step(ctx, job, w)
		if errors.Is(err, errTooEarly) {
			// What comes after it need not wait for that.
			later = err
			continue
		}
		if wrote || err != nil {
			return err
		}
	}
	return later
}

// prioritize follows another priority class. It reports whether it wrote.
func (r *reconciler) prioritize(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if PrebuiltName(job) != "" {
		return false, nil
	}
	want := &kueue.Workload{}
	if why, err := setPriority(ctx, r.client, job, &want.Spec); why != "" || err != nil {
		return false, err
	}
	return r.change(ctx, w, func(w *kueue.Workload) bool { return followReserved(w, want) })
}

// adopts reports whether a Job was running in its queue before Muster came, and so
// before there was anything to keep it from it. It goes by what only the API server
// writes: when Job and policy were created.
func (r *reconciler) adopts(ctx context.Context, job *batchv1.Job) (bool, error) {
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
	return job.CreationTimestamp.Before(&policy.CreationTimestamp), nil
}

// adopt queues a Job as it runs: it keeps running, and its usage counts. A Workload
// is created without its status, so that it asks first, and is not judged before it
// is adopted. A Job that names a Workload gets no other one, and runs on.
func (r *reconciler) adopt(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if w == nil && PrebuiltName(job) != "" {
		return nil
	}
	if w == nil {
		w, err := WorkloadFor(ctx, r.client, job)
		if err != nil {
			return err
		}
		w.Annotations[queueing.AdoptedAnnotation] = "true"
		return r.create(ctx, job, w)
	}
	if _, err := writer.ApplyStatus(ctx, r.client, w, queueing.Adopted(w, r.now())); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Adopted", "The Job was running before Muster could queue it; it is left running, and its usage counts in its queue")
	return nil
}

// stop suspends the Job. Its template is restored and its quota given back once
// no pod is left.
func (r *reconciler) stop(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
		return err
	}
	why := "its Workload is gone"
	if w != nil {
		why = "its Workload is not admitted"
		for _, c := range w.Status.Conditions {
			if c.Type == kueue.WorkloadEvicted && c.Status == metav1.ConditionTrue {
				why = c.Message
			}
		}
	}
	if err := r.patchJob(ctx, job, func(j *batchv1.Job) error { j.Spec.Suspend = new(true); return nil }); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Stopped", "Suspended: %s", why)
	return nil
}
