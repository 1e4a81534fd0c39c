package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/controller/writer"
)

// stepSuspended looks at a Job that waits: for its turn, for a start that is
// due, or for its pods to go after a stop.
func (r *reconciler) stepSuspended(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if wrote, err := r.withdraw(ctx, job, w); wrote || err != nil {
		return err
	}
	reserved := w != nil && queueing.HasQuota(w)
	evicted := reserved && queueing.IsEvicted(w)
	if wasStarted(job) && reserved && !evicted {
		return r.suspendedByHand(ctx, job, w)
	}
	if wasStarted(job) || evicted {
		if err := r.confirmStopped(ctx, job); err != nil {
			return err
		}
		if done, err := r.restore(ctx, job, w); done || err != nil {
			return err
		}
	}
	if evicted {
		_, err := writer.ApplyStatus(ctx, r.client, w, queueing.Released(w, r.now()))
		return err
	}
	queued, err := r.isQueued(ctx, job)
	if err != nil {
		return err
	}
	if !queued {
		return r.dismiss(ctx, job, w)
	}
	if PrebuiltName(job) != "" {
		return r.stepPrebuilt(ctx, job, w)
	}
	want, err := WorkloadFor(ctx, r.client, job)
	if err != nil {
		return err
	}
	if w == nil {
		if left, err := r.leave(ctx, job, nil); left || err != nil {
			return err
		}
		return r.create(ctx, job, want)
	}
	if reserved {
		if !samePods(w, want) || w.Spec.QueueName != want.Spec.QueueName ||
			want.Spec.Priority != nil && !sameKind(w.Spec.PriorityClassRef, want.Spec.PriorityClassRef) {
			// What was reserved is not what the Job asks for now: it queues anew.
			return r.forget(ctx, w)
		}
		if wrote, err := r.change(ctx, w, func(w *kueue.Workload) bool { return followReserved(w, want) }); wrote || err != nil {
			return err
		}
		if queueing.IsAdmitted(w) && queueing.IsActive(w) {
			return r.start(ctx, job, w)
		}
		return nil
	}
	if len(w.Status.ReclaimablePods) > 0 {
		// They are pods of an attempt that is over; the next has only those that are
		// left.
		return r.setReclaimed(ctx, w, nil)
	}
	refused := w.Annotations[queueing.RefusedAnnotation]
	if wrote, err := r.change(ctx, w, func(w *kueue.Workload) bool { return follow(w, want) }); !wrote || err != nil {
		return err
	}
	if why := want.Annotations[queueing.RefusedAnnotation]; why != refused {
		r.tellRefusal(job, why)
	}
	return nil
}

// change changes a Workload as it was read. It reports whether it wrote.
func (r *reconciler) change(ctx context.Context, w *kueue.Workload, change func(*kueue.Workload) bool) (bool, error) {
	changed := w.DeepCopy()
	if !change(changed) {
		return false, nil
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("updating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return true, nil
}

var (
	// errBehind: the cache has an old version of the Job; the newest comes as an
	// event.
	errBehind = errors.New("the cache is behind")
	// errPodsLeft: pods of a stopped Job are not over yet.
	errPodsLeft = errors.New("pods are left")
	// errPodsMissing: pods of a started Job have not come.
	errPodsMissing = errors.New("pods are missing")
	// errTooEarly: there is something to do that may yet turn out to be needless.
	errTooEarly = errors.New("it is too early")
)

// suspendedByHand ends the attempt of a running Job that a person has suspended:
// its booking is used up or will be gone, so that it has to queue for another.
func (r *reconciler) suspendedByHand(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if err := r.confirmNewest(ctx, job); err != nil {
		return err
	}
	const message = "The Job was suspended by hand and queues again; to keep it from starting, set spec.active of its Workload to false"
	_, err := writer.ApplyStatus(ctx, r.client, w, queueing.Evicted(w, queueing.ReasonSuspendedByHand, message, r.now()))
	if err == nil {
		r.event(job, corev1.EventTypeNormal, "Stopped", message)
	}
	return err
}

// confirmStopped fails unless no pod of a suspended Job is left. The status that
// the cache has may be from before the start, and one from the API server too:
// the Job controller writes it after it has made pods. So they are looked at.
func (r *reconciler) confirmStopped(ctx context.Context, job *batchv1.Job) error {
	if !isStopped(job) {
		return errPodsLeft
	}
	if err := r.confirmNewest(ctx, job); err != nil {
		return err
	}
	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return err
	}
	for i := range pods {
		if !isOver(&pods[i]) {
			return errPodsLeft
		}
	}
	return nil
}

// podsOf are all pods of a Job, as the API server has them.
func (r *reconciler) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("listing the pods of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return pods.Items, nil
}

// isOver reports whether a pod has ended.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (r *reconciler) confirmNewest(ctx context.Context, job *batchv1.Job) error {
	live := &batchv1.Job{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(job), live); err != nil {
		return fmt.Errorf("reading Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	if live.UID != job.UID || live.ResourceVersion != job.ResourceVersion {
		return errBehind
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	if isElastic(job) {
		w.Annotations[kueue.WorkloadSliceNameAnnotation] = sliceName(w)
	}
	for _, key := range r.copied {
		if value, ok := job.Labels[key]; ok && key != JobUIDLabel {
			w.Labels[key] = value
		}
	}
	if err := r.client.Create(ctx, w); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return r.removeOrphan(ctx, job, w.Name)
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			r.event(job, corev1.EventTypeWarning, "FailedCreate", "The Job cannot be queued, since its Workload is refused: %v", err)
		}
		return fmt.Errorf("creating Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	r.expect(job.UID)
	r.metrics.Created("Job", job, w)
	r.event(job, corev1.EventTypeNormal, "CreatedWorkload", "Created Workload: %s/%s", w.Namespace, w.Name)
	r.tellRefusal(job, w.Annotations[queueing.RefusedAnnotation])
	return nil
}

// removeOrphan makes way for the Workload of a Job where one that lost its owner has its
// name. Its end comes as no event of the Job.
func (r *reconciler) removeOrphan(ctx context.Context, job *batchv1.Job, name string) error {
	w := &kueue.Workload{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, w); err != nil {
		return fmt.Errorf("reading Workload %s/%s: %w", job.Namespace, name, err)
	}
	if !isOrphanOf(w, job) {
		return errBehind
	}
	if err := r.forget(ctx, w); err != nil {
		return err
	}
	return errTooEarly
}

// tellRefusal says on the Job what its Workload says.
func (r *reconciler) tellRefusal(job *batchv1.Job, why string) {
	if why != "" {
		r.event(job, corev1.EventTypeWarning, "Refused", "The Job cannot be queued as it is: %s", why)
	}
}

// restore gives a stopped Job its template back. It reports whether it wrote.
func (r *reconciler) restore(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	restored := job.DeepCopy()
	changed, err := restore(restored, w)
	if err != nil {
		return r.dropRecord(ctx, job, err)
	}
	if !changed {
		return false, nil
	}
	if job.Status.StartTime != nil {
		// Before Kubernetes 1.36 the template of a Job that has once started is
		// immutable until its start time is taken back.
		fresh := job.DeepCopy()
		fresh.Status.StartTime = nil
		if err := r.client.Status().Patch(ctx, fresh, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, fmt.Errorf("taking back the start time of Job %s/%s: %w", job.Namespace, job.Name, err)
		}
		return true, nil
	}
	err = r.patchJob(ctx, job, func(j *batchv1.Job) error { _, err := restore(j, w); return err })
	if apierrors.IsInvalid(err) {
		r.event(job, corev1.EventTypeWarning, "FailedRestore",
			"The pod template cannot be put back as the annotation %s has it: %v; if no policy is in the way, delete the Job and create it again without the annotation", StartedAnnotation, err)
	}
	return true, err
}

// dropRecord takes a record off a queued Job that no start has written. The template
// stays: the Job goes on as one that never ran.
func (r *reconciler) dropRecord(ctx context.Context, job *batchv1.Job, why error) (bool, error) {
	if queued, err := r.isQueued(ctx, job); !queued || err != nil {
		return false, err
	}
	if err := r.patchJob(ctx, job, func(j *batchv1.Job) error { delete(j.Annotations, StartedAnnotation); return nil }); err != nil {
		return false, err
	}
	r.event(job, corev1.EventTypeWarning, "RecordDropped", "%v; it was taken off, and the pod template is queued as it is", why)
	return true, nil
}

// start lets the Job run, in one write.
func (r *reconciler) start(ctx context.Context, job *batchv1.Job, w *kueue.Workload) error {
	flavors, err := r.flavorsOf(ctx, job, w)
	if err != nil {
		return err
	}
	err = r.patchJob(ctx, job, func(j *batchv1.Job) error { return start(j, w, flavors) })
	if errors.Is(err, errConflict) {
		r.event(job, corev1.EventTypeWarning, failedToStart, "%v", err)
		return r.finish(ctx, w, failedToStart, err.Error())
	}
	if err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Started", "Admitted by clusterQueue %s", w.Status.Admission.ClusterQueue)
	return nil
}

// flavorsOf reads the flavors that the Workload was admitted on.
func (r *reconciler) flavorsOf(ctx context.Context, job *batchv1.Job, w *kueue.Workload) ([]*kueue.ResourceFlavor, error) {
	var names []kueue.ResourceFlavorReference
	for _, assignment := range w.Status.Admission.PodSetAssignments {
		for _, name := range assignment.Flavors {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []*kueue.ResourceFlavor
	for _, name := range slices.Compact(names) {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(name)}, flavor); err != nil {
			if client.IgnoreNotFound(err) == nil {
				err = fmt.Errorf("ResourceFlavor %s, on which the Job was admitted, does not exist any more; create it again", name)
				r.event(job, corev1.EventTypeWarning, "FlavorNotFound", "%v", err)
				return nil, err
			}
			return nil, fmt.Errorf("reading ResourceFlavor %s: %w", name, err)
		}
		out = append(out, flavor)
	}
	return out, nil
}
