package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/crdwatch"
	"github.com/muster-dev/muster/queueing/jobs/gangs"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

// PodGroupLabel on a pod names the PodGroup of scheduling.k8s.io that kube-scheduler places it
// with; empty is none. A start puts it into the pod templates, and the policy muster-gangs makes it the pod's
// spec.schedulingGroup at the creation, which is the only time when that can be set.
const PodGroupLabel = "muster.dev/pod-group"

// begin makes gangs from the moment that the cluster serves PodGroups.
func begin(served *atomic.Bool) crdwatch.Integration {
	return crdwatch.Integration{Kinds: []schema.GroupVersionKind{gangs.Kind}, Begin: func() error { served.Store(true); return nil }}
}

// gang creates a PodGroup for the pods that an admitted job creates at its start, if the cluster serves PodGroups: kube-scheduler binds
// none of these pods before all of them fit. Each start has a PodGroup of its own, because a group that was bound once keeps that status.
// Pods of an elastic job, pods that are created later, and pods that kube-scheduler would not bind as one group are in no group. The
// replacement of a lost pod of a bound gang is kept out of the group by the policy muster-gangs-bound: it would wait there for pods that
// have ended.
func (r *reconciler) gang(ctx context.Context, job client.Object, w *kueue.Workload, placements []templates.Placement) error {
	if !r.gangs.Load() {
		return nil
	}
	name := gangName(job, w)
	left, err := gangs.Leave(ctx, r.client, r.live, job, name)
	switch {
	case err != nil:
		return err
	case left:
		return errChildrenLeft
	}
	for i := range placements {
		placements[i].Labels[PodGroupLabel] = ""
	}
	first, together := firstOf(r.kind, job, w, placements)
	if together < 2 || IsElastic(job) || !canBeGang(w, first) {
		return nil
	}
	// What a Job controls is for the Job controller.
	owner := *metav1.NewControllerRef(job, r.kind.GroupVersionKind())
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	class := w.Spec.PodSets[first[0]].Template.Spec.PriorityClassName
	if err := gangs.Create(ctx, r.client, metav1.ObjectMeta{
		Name: name, Namespace: job.GetNamespace(), Labels: map[string]string{JobUIDLabel: string(job.GetUID())},
		OwnerReferences: []metav1.OwnerReference{owner},
	}, gangs.Gang{Pods: together, PriorityClass: class, Level: levelOf(w, first)}); err != nil {
		return err
	}
	for _, i := range first {
		placements[i].Labels[PodGroupLabel] = name
	}
	return nil
}

// canBeGang reports whether the pods of these pod sets may be in one group: kube-scheduler binds none of a group whose pods have
// several priorities or schedulers, and kube-apiserver refuses pods of a group that have responders to evictions.
func canBeGang(w *kueue.Workload, podSets []int) bool {
	schedulerOf := func(s *corev1.PodSpec) string { return cmp.Or(s.SchedulerName, corev1.DefaultSchedulerName) }
	a := &w.Spec.PodSets[podSets[0]].Template.Spec
	return !slices.ContainsFunc(podSets, func(i int) bool {
		b := &w.Spec.PodSets[i].Template.Spec
		return b.PriorityClassName != a.PriorityClassName || schedulerOf(b) != schedulerOf(a) || len(b.EvictionResponders) > 0
	})
}

// levelOf is the node label of the one domain that all of these pod sets must be in; empty without one. Pod sets that are bound
// each by itself may be in several.
func levelOf(w *kueue.Workload, podSets []int) string {
	a := w.Spec.PodSets[podSets[0]].TopologyRequest
	for _, i := range podSets {
		b := w.Spec.PodSets[i].TopologyRequest
		switch {
		case b == nil || b.Required == nil || *b.Required != ptr.Deref(a.Required, ""):
			return ""
		case len(podSets) > 1 && (b.PodSetGroupName == nil || *b.PodSetGroupName != ptr.Deref(a.PodSetGroupName, "")):
			return ""
		}
	}
	return *a.Required
}

// gangName is that of the PodGroup of a start.
func gangName(job client.Object, w *kueue.Workload) string {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	return fmt.Sprintf("%s-%d", job.GetUID(), admitted.LastTransitionTime.Unix())
}

// firstOf returns the podSets of an admitted Workload whose pods are created at the start, and their total number of pods.
func firstOf(kind Kind, job client.Object, w *kueue.Workload, placements []templates.Placement) (first []int, pods int32) {
	counts := countsOf(kind, job, w)
	for i, after := range orderOf(kind, job, w) {
		if !after.IsFirst() {
			continue
		}
		count := placements[i].Count
		if counts != nil {
			count = min(count, counts[i].Needed)
		}
		first, pods = append(first, i), pods+count
	}
	return first, pods
}
