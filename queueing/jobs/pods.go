package jobs

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// podIndex finds pods by the UID of their job, where a start has given them the label.
const podIndex = "job"

func jobUIDOf(o client.Object) []string {
	if uid := o.GetLabels()[JobUIDLabel]; uid != "" {
		return []string{uid}
	}
	return nil
}

// podChanges passes what a job may depend on: that a pod becomes ready or is not any more,
// ends, or is gone.
var podChanges = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return jobUIDOf(e.Object) != nil },
	DeleteFunc:  func(e event.DeleteEvent) bool { return jobUIDOf(e.Object) != nil },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return jobUIDOf(after) != nil && (IsOver(before) != IsOver(after) || IsReady(before) != IsReady(after))
	},
}

// pods read the pods of jobs.
type pods struct{ *reconciler }

// of returns all pods of a job, as the API server has them.
func (r pods) of(ctx context.Context, job client.Object) ([]corev1.Pod, error) {
	return r.in(ctx, r.live, job)
}

// in returns all pods of a job, as the reader has them.
func (r pods) in(ctx context.Context, reader client.Reader, job client.Object) ([]corev1.Pod, error) {
	var all []corev1.Pod
	seen := sets.New[string]()
	for _, labels := range r.kind.PodLabels(job) {
		var list corev1.PodList
		if err := reader.List(ctx, &list, client.InNamespace(job.GetNamespace()), labels); err != nil {
			return nil, fmt.Errorf("listing the pods of %s: %w", r.name(job), err)
		}
		for _, pod := range list.Items {
			if !seen.Has(pod.Name) {
				seen.Insert(pod.Name)
				all = append(all, pod)
			}
		}
	}
	return all, nil
}

// confirmNone fails while pods of a job are not over.
func (r pods) confirmNone(ctx context.Context, job client.Object) error {
	all, err := r.of(ctx, job)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(pod corev1.Pod) bool { return !IsOver(&pod) }) {
		return errPodsLeft
	}
	return nil
}

// areReady reports whether as many pods of each pod set as granted are ready or have
// succeeded. Pods that come after others are not missed before.
func (r pods) areReady(ctx context.Context, job client.Object, w *kueue.Workload, granted []int32) (bool, error) {
	if kind, ok := r.kind.(Tracker); ok {
		return kind.IsReady(job, granted), nil
	}
	cached, err := r.cached(ctx, job)
	if err != nil {
		return false, err
	}
	have, succeeded := make([]int32, len(granted)), make([]int32, len(granted))
	for i := range cached {
		pod := &cached[i]
		at := podSetOf(w, pod)
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded[at]++
		}
		if pod.Status.Phase == corev1.PodSucceeded || IsReady(pod) {
			have[at]++
		}
	}
	for i, after := range orderOf(r.kind, job, w) {
		if have[i] < granted[i] && after.IsDue(w.Spec.PodSets, granted, have, succeeded) {
			return false, nil
		}
	}
	return true, nil
}

// cached returns the pods of a job that Muster has started, as the cache has them.
func (r pods) cached(ctx context.Context, job client.Object) ([]corev1.Pod, error) {
	var list corev1.PodList
	ofJob := client.MatchingFields{podIndex: string(job.GetUID())}
	if err := r.client.List(ctx, &list, client.InNamespace(job.GetNamespace()), ofJob, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", r.name(job), err)
	}
	return list.Items, nil
}

// mayHaveGated reports whether a pod of a job may have its gate.
func (r pods) mayHaveGated(ctx context.Context, kind Elastic, job client.Object) (bool, error) {
	if _, tracked := r.kind.(Tracker); tracked || !kind.MayHaveGated(job) {
		return kind.MayHaveGated(job), nil
	}
	cached, err := r.cached(ctx, job)
	return slices.ContainsFunc(cached, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.SchedulingGates, templates.IsElasticGate)
	}), err
}

// IsOver reports whether a pod has ended.
func IsOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsReady reports whether a pod is ready and stays.
func IsReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// running returns the pods of a job that are not over: open pods may be scheduled, and gated pods of an elastic job may not.
func (r pods) running(ctx context.Context, job client.Object) (open, gated []*corev1.Pod, err error) {
	all, err := r.of(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		switch pod := &all[i]; {
		case IsOver(pod):
		case !slices.ContainsFunc(pod.Spec.SchedulingGates, templates.IsElasticGate):
			open = append(open, pod)
		case pod.DeletionTimestamp.IsZero():
			gated = append(gated, pod)
		}
	}
	return open, gated, nil
}

// perPodSet is how many of the pods there are of each pod set of a Workload.
func perPodSet(w *kueue.Workload, pods []*corev1.Pod) []int32 {
	out := make([]int32, len(w.Spec.PodSets))
	for _, pod := range pods {
		out[podSetOf(w, pod)]++
	}
	return out
}
