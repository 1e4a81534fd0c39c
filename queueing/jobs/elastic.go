package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// isElastic says that a Job may change its parallelism while it runs. Its pods are
// made with a scheduling gate, which is taken off as many of them as have quota; so
// what it runs by may change without its template, which must not:
//
//	parallelism falls ──▶ its quota falls with the pods, see reclaim
//	parallelism rises ──▶ a second Workload, the next slice, asks for all pods and is admitted
//	                      for the difference; the gates of the new pods go, and the queue
//	                      finishes the slice before it, as WorkloadSliceReplaced
//
// One that names a Workload has that alone.
func isElastic(job *batchv1.Job) bool { return saysElastic(job) && PrebuiltName(job) == "" }

func saysElastic(job *batchv1.Job) bool { return job.Annotations[queueing.ElasticAnnotation] == "true" }

// slicesOf are the Workloads of an elastic Job, the oldest first.
func slicesOf(ctx context.Context, c client.Reader, job *batchv1.Job) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{JobUIDLabel: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("listing the Workloads of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	var out []*kueue.Workload
	for i := range list.Items {
		if w := &list.Items[i]; metav1.IsControlledBy(w, job) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *kueue.Workload) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// current is the slice that the Job runs by, or is to: the newest that is admitted,
// else the newest that holds quota, else the oldest that waits. Only if all are over
// is it one of those, the newest. A slice that was replaced is none: if the one in its
// place is gone, the Job has no Workload.
func current(slices []*kueue.Workload) (out *kueue.Workload) {
	const waits = 2
	rank := func(w *kueue.Workload) int {
		switch {
		case w == nil:
			return 0
		case queueing.IsFinished(w):
			return 1
		case !queueing.HasQuota(w):
			return waits
		case queueing.IsEvicted(w):
			return 3
		case !queueing.IsAdmitted(w):
			return 4
		}
		return 5
	}
	for _, w := range slices {
		if isReplaced(w) {
			continue
		}
		if mine, best := rank(w), rank(out); mine > best || mine == best && mine != waits {
			out = w
		}
	}
	return out
}

func isReplaced(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == kueue.WorkloadSliceReplaced
}

func keyOf(w *kueue.Workload) string { return w.Namespace + "/" + w.Name }

// others are the slices beside w that are not over.
func (r *reconciler) others(ctx context.Context, job *batchv1.Job, w *kueue.Workload) ([]*kueue.Workload, error) {
	all, err := slicesOf(ctx, r.client, job)
	return slices.DeleteFunc(all, func(o *kueue.Workload) bool {
		return o.UID == w.UID || queueing.IsFinished(o) || !o.DeletionTimestamp.IsZero()
	}), err
}

// withdraw deletes the slices beside w: a Job that does not run has nothing to grow
// from. It reports whether it wrote.
func (r *reconciler) withdraw(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if !isElastic(job) || w == nil {
		return false, nil
	}
	others, err := r.others(ctx, job, w)
	if len(others) == 0 || err != nil {
		return false, err
	}
	return true, r.forget(ctx, others[0])
}

// scale follows the parallelism of an elastic Job that runs. It reports whether it
// wrote.
func (r *reconciler) scale(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if !isElastic(job) {
		return false, nil
	}
	others, err := r.others(ctx, job, w)
	if err != nil {
		return false, err
	}
	grows := podCount(job) > granted(w)
	var next *kueue.Workload
	for _, o := range others {
		switch {
		case keyOf(o) == w.Annotations[queueing.ReplacementAnnotation]:
			// The queue finishes it.
		case grows && next == nil && o.Annotations[queueing.ReplacementAnnotation] == keyOf(w):
			next = o
		default:
			return true, r.forget(ctx, o)
		}
	}
	if grows {
		if wrote, err := r.grow(ctx, job, w, next); wrote || err != nil {
			return wrote, err
		}
	}
	return r.ungate(ctx, job, w)
}

// granted is how many pods of a Workload with quota have it now.
func granted(w *kueue.Workload) int32 { return assignedCount(w) - reclaimed(w) }

// grow asks for all pods of a Job that has quota for fewer. Next is the slice that
// asks already, or nil.
func (r *reconciler) grow(ctx context.Context, job *batchv1.Job, w, next *kueue.Workload) (bool, error) {
	want, err := WorkloadFor(ctx, r.client, job)
	if err != nil {
		return false, err
	}
	// The Job's own template is as it was started.
	want.Spec.PodSets = w.DeepCopy().Spec.PodSets
	want.Spec.PodSets[0].Count = podCount(job)
	want.Annotations[queueing.ReplacementAnnotation] = keyOf(w)
	switch {
	case next != nil && queueing.HasQuota(next) && !samePods(next, want):
		return true, r.forget(ctx, next)
	case next != nil && queueing.HasQuota(next):
		return r.change(ctx, next, func(next *kueue.Workload) bool { return followReserved(next, want) })
	case next != nil:
		return r.change(ctx, next, func(next *kueue.Workload) bool { return follow(next, want) })
	}
	want.Annotations[kueue.WorkloadSliceNameAnnotation] = sliceName(w)
	return true, r.create(ctx, job, want)
}

// sliceName is that of the first slice, which all of a Job and all its pods tell.
func sliceName(w *kueue.Workload) string {
	if name := w.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return name
	}
	return w.Name
}

// ungate lets as many pods be scheduled as have quota, where the checks of their
// slice say. Quota that the slice has given back since the cache saw it counts no more.
// It reports whether it wrote.
func (r *reconciler) ungate(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	if job.Status.Active == valueOr(job.Status.Ready, 0) {
		return false, nil
	}
	open, gated, err := r.livePods(ctx, job)
	if err != nil {
		return false, err
	}
	// The Job controller takes the highest indexes first when the Job shrinks.
	slices.SortFunc(gated, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(completionIndex(a), completionIndex(b)), cmp.Compare(a.Name, b.Name))
	})
	gated = gated[:min(len(gated), int(max(0, granted(w)-open)))]
	if len(gated) == 0 {
		return false, nil
	}
	if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
		return behind, err
	}
	for _, pod := range gated {
		ungated := pod.DeepCopy()
		ungated.Spec.SchedulingGates = slices.DeleteFunc(ungated.Spec.SchedulingGates, isElasticGate)
		place(ungated, updatesOf(w))
		if err := r.client.Patch(ctx, ungated, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, fmt.Errorf("taking the gate off pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		r.metrics.Ungated(kueue.ElasticJobSchedulingGate, w, r.now())
	}
	return true, nil
}

// livePods are the pods of an elastic Job that are not over: how many may be scheduled,
// and those that may not.
func (r *reconciler) livePods(ctx context.Context, job *batchv1.Job) (open int32, gated []*corev1.Pod, err error) {
	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return 0, nil, err
	}
	for i := range pods {
		switch pod := &pods[i]; {
		case isOver(pod):
		case !slices.ContainsFunc(pod.Spec.SchedulingGates, isElasticGate):
			open++
		case pod.DeletionTimestamp.IsZero():
			gated = append(gated, pod)
		}
	}
	return open, gated, nil
}

// completionIndex of a pod; 0 for those of a Job that is not Indexed.
func completionIndex(pod *corev1.Pod) int {
	index, _ := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return index
}

func isElasticGate(g corev1.PodSchedulingGate) bool { return g.Name == kueue.ElasticJobSchedulingGate }

// place sends a gated pod where checks have prepared for it.
func place(pod *corev1.Pod, updates []kueue.PodSetUpdate) {
	for _, u := range updates {
		pod.Spec.NodeSelector = merge(pod.Spec.NodeSelector, u.NodeSelector)
		pod.Spec.Tolerations = queueing.AddTolerations(pod.Spec.Tolerations, u.Tolerations)
		pod.Labels = merge(pod.Labels, u.Labels)
		pod.Annotations = merge(pod.Annotations, u.Annotations)
	}
}

func merge(values, more map[string]string) map[string]string {
	if values == nil {
		return maps.Clone(more)
	}
	maps.Copy(values, more)
	return values
}
