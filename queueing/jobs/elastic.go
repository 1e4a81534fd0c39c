package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/growth"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

// The pods of an elastic job are created with a scheduling gate, which is removed from as
// many of them as have quota; so the Workload that the job runs by may change while its
// template, which must not change, stays:
//
//	fewer pods ──▶ their quota is released as they go, see reclaim
//	more pods ───▶ a second Workload, the next slice, requests all pods and is admitted for
//	               the difference; the gates of the new pods are removed, and the queues
//	               finish the slice before it as WorkloadSliceReplaced

// elasticOf is a kind whose jobs may change their number of pods.
func elasticOf(kind Source) (Elastic, bool) {
	elastic, ok := kind.(Elastic)
	return elastic, ok && elastic.CanScale()
}

// sliceKey is how the annotations of slices name a Workload.
func sliceKey(w *kueue.Workload) string { return w.Namespace + "/" + w.Name }

// sliceName is that of the first slice, which all slices of a job and all its pods bear.
func sliceName(w *kueue.Workload) string {
	if name := w.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return name
	}
	return w.Name
}

// otherSlices are the slices beside w that are not over.
func (r *reconciler) otherSlices(ctx context.Context, job client.Object, w *kueue.Workload) ([]*kueue.Workload, error) {
	all, err := slicesOf(ctx, r.client, job)
	return slices.DeleteFunc(all, func(o *kueue.Workload) bool {
		return o.UID == w.UID || workload.IsFinished(o) || !o.DeletionTimestamp.IsZero()
	}), err
}

// withdraw deletes the slices beside w. It reports whether it wrote.
func (r *reconciler) withdraw(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if !IsElastic(job) || w == nil {
		return false, nil
	}
	others, err := r.otherSlices(ctx, job, w)
	if len(others) == 0 || err != nil {
		return false, err
	}
	return true, r.discard(ctx, job, others[0])
}

// scale follows the number of pods of an elastic job that runs. It reports whether it
// wrote.
func (r *reconciler) scale(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	kind, ok := elasticOf(r.kind)
	if !ok || !IsElastic(job) {
		return false, nil
	}
	others, err := r.otherSlices(ctx, job, w)
	if err != nil {
		return false, err
	}
	grows, have := false, podcounts.Granted(w)
	for i, c := range countsOf(kind, job, w) {
		grows = grows || c.Needed > have[i]
	}
	var next *kueue.Workload
	for _, o := range others {
		switch {
		case sliceKey(o) == w.Annotations[workload.ReplacementAnnotation]:
			// The queues finish it.
		case grows && next == nil && o.Annotations[workload.ReplacementAnnotation] == sliceKey(w):
			next = o
		default:
			return true, r.discard(ctx, job, o)
		}
	}
	if grows {
		if wrote, err := r.grow(ctx, job, w, next); wrote || err != nil {
			return wrote, err
		}
	}
	return r.ungate(ctx, kind, job, w)
}

// grow requests all pods of a job that has quota for fewer. next is the slice that requests
// them already, or nil.
func (r *reconciler) grow(ctx context.Context, job client.Object, w, next *kueue.Workload) (bool, error) {
	want, err := WorkloadFor(ctx, r.client, r.kind, job, next)
	if err != nil {
		return false, err
	}
	// The templates of the job are as it was started.
	podSets := w.DeepCopy().Spec.PodSets
	for i := range podSets {
		podSets[i].Count = want.Spec.PodSets[i].Count
	}
	want.Spec.PodSets = podSets
	want.Annotations[workload.ReplacementAnnotation] = sliceKey(w)
	switch {
	case next != nil && (workload.HasQuota(next) || !workload.IsActive(next)) && !SamePods(next, want):
		return true, r.discard(ctx, job, next)
	case next != nil && workload.HasQuota(next):
		return writes.Patch(ctx, r.client, next, func(next *kueue.Workload) bool { return FollowReserved(next, want) })
	case next != nil:
		return writes.Patch(ctx, r.client, next, func(next *kueue.Workload) bool { return Follow(next, want) })
	}
	want.Annotations[kueue.WorkloadSliceNameAnnotation] = sliceName(w)
	return true, r.create(ctx, job, want)
}

// ungate lets as many pods be scheduled as have quota, where the admission checks of their
// slice say. Quota that the slice has released since the cache saw it counts no more. It
// reports whether it wrote.
func (r *reconciler) ungate(ctx context.Context, kind Elastic, job client.Object, w *kueue.Workload) (bool, error) {
	if may, err := (pods{r}).mayHaveGated(ctx, kind, job); !may || err != nil {
		return false, err
	}
	open, gated, err := pods{r}.running(ctx, job)
	if err != nil {
		return false, err
	}
	room, have := podcounts.Granted(w), perPodSet(w, open)
	for i := range room {
		room[i] -= have[i]
	}
	// The pods that the job deletes first when it shrinks are ungated last.
	slices.SortFunc(gated, func(a, b *corev1.Pod) int { return cmp.Or(kind.Compare(a, b), cmp.Compare(a.Name, b.Name)) })
	gated = slices.DeleteFunc(gated, func(pod *corev1.Pod) bool {
		room[podSetOf(w, pod)]--
		return room[podSetOf(w, pod)] < 0
	})
	if len(gated) == 0 {
		return false, nil
	}
	if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
		return behind, err
	}
	all, err := slicesOf(ctx, r.client, job)
	if err != nil {
		return false, err
	}
	to := growth.New(growth.Chain(w, all, podcounts.Granted), open, func(pod *corev1.Pod) int { return podSetOf(w, pod) })
	for _, pod := range gated {
		ungated := pod.DeepCopy()
		ungated.Spec.SchedulingGates = slices.DeleteFunc(ungated.Spec.SchedulingGates, templates.IsElasticGate)
		templates.Send(ungated, to.Take(podSetOf(w, pod)))
		if err := r.client.Patch(ctx, ungated, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, fmt.Errorf("removing the gate of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		r.metrics.Ungated(kueue.ElasticJobSchedulingGate, w, r.now())
	}
	return true, nil
}
