package podgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/ranks"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
)

// failedToStart is Kueue's reason of Finished for pods that can never start as they were
// admitted.
const failedToStart = "FailedToStart"

// keep does what a gang needs that may run, up to the first write to its Workload.
func (r *reconciler) keep(ctx context.Context, g *gang, w *kueue.Workload) error {
	for _, step := range []func(context.Context, *gang, *kueue.Workload) (wrote bool, err error){
		r.follow, r.open, r.reclaim, r.reportReplacements, r.reportReady,
	} {
		if wrote, err := step(ctx, g, w); wrote || err != nil {
			return err
		}
	}
	return nil
}

// trim deletes the surplus pods of a group, the newest waiting ones first. Running pods are not deleted.
func (r *reconciler) trim(ctx context.Context, g *gang) error {
	if g.family != group || len(g.refusals) > 0 || g.serves {
		return nil
	}
	for n := len(g.gated) + len(g.open) + g.succeeded; n > g.total && len(g.gated) > 0; n-- {
		pod := g.gated[len(g.gated)-1]
		if err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s/%s, which its group has too many: %w", pod.Namespace, pod.Name, err)
		}
		r.event(pod, corev1.EventTypeNormal, "ExcessPodDeleted", "Deleted: group %s is of %d pods, which are there", g.name, g.total)
		g.gated = g.gated[:len(g.gated)-1]
	}
	return nil
}

// follow follows the priority of a gang, and has all of its pods own the Workload.
func (r *reconciler) follow(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	if isCopy(w) {
		taken, err := r.take(ctx, g, w)
		return !taken, err
	}
	want, err := r.wanted(ctx, g, w)
	if err != nil {
		return false, err
	}
	return writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		owned := g.family == group && own(w, want)
		return jobs.FollowReserved(w, want) || owned
	})
}

// open takes the gates off as many pods of each pod set as have quota. After a restart, the cache
// may show a Workload from before its eviction.
func (r *reconciler) open(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	if len(g.gated) == 0 || !workload.HasQuota(w) || runsRemotely(w) || g.leaves {
		return false, nil
	}
	if err := r.confirmNewest(ctx, g, w); err != nil {
		return false, err
	}
	placements, err := templates.Of(ctx, r.client, w)
	if err != nil {
		if errors.Is(err, templates.ErrNoFlavor) && r.isNews(g.key, err.Error()) {
			r.event(g.job, corev1.EventTypeWarning, "FlavorNotFound", "%v", err)
		}
		return false, err
	}
	free := make([]int32, len(placements))
	for i := range free {
		free[i] = min(placements[i].Count, w.Spec.PodSets[i].Count-g.doneOf(i))
	}
	for _, pod := range g.open {
		if i := podSetOf(w, g, pod); i >= 0 {
			free[i]--
		}
	}
	selectors, assigned, err := domainsOf(w, g)
	if err != nil {
		return false, err
	}
	var openings []opening
	held := false
	for _, pod := range g.gated {
		i := podSetOf(w, g, pod)
		if i >= 0 && assigned[i] && selectors[pod.UID] == nil {
			held = true // until its node is replaced, or another pod gives its place up
			continue
		}
		if why := refusedStart(w, pod, i, free, placements); why != "" {
			held = true
			r.refuse(g, pod, why)
			continue
		}
		p := placements[i]
		p.Topology = false // a pod that is there gets no other gate: it is sent to its domain at once
		p.Updates = append(slices.Clip(p.Updates), kueue.PodSetUpdate{NodeSelector: selectors[pod.UID]})
		changed, err := g.opened(pod, &p)
		if errors.Is(err, templates.ErrConflict) {
			r.event(pod, corev1.EventTypeWarning, failedToStart, "%v", err)
			if len(g.open) > 0 {
				continue
			}
			return true, writes.Finish(ctx, r.client, w, failedToStart, err.Error(), r.now())
		}
		if err != nil {
			return false, err
		}
		openings = append(openings, opening{pod, changed})
	}
	if held && g.startsWhole() {
		return false, nil
	}
	for _, o := range openings {
		if err := r.client.Patch(ctx, o.changed, client.MergeFromWithOptions(o.pod, client.MergeFromWithOptimisticLock{})); err != nil {
			return false, fmt.Errorf("taking the gate off pod %s/%s: %w", o.pod.Namespace, o.pod.Name, err)
		}
		r.metrics.Ungated(Gate, w, r.now())
		r.event(o.pod, corev1.EventTypeNormal, "Started", "Admitted by clusterQueue %s", w.Status.Admission.ClusterQueue)
	}
	return false, nil
}

// opening is a pod as it is, and as it starts.
type opening struct{ pod, changed *corev1.Pod }

// startsWhole reports whether the first pods of a gang start together. With fast admission, and where pods are made for ever, they come
// one by one.
func (g *gang) startsWhole() bool {
	return g.family == group && !g.awaited && !g.serves && len(g.open) == 0 && len(g.over) == 0 && g.succeeded == 0
}

// refusedStart says why a pod has no part of the quota of its gang; empty if it has one, which is taken off what is free.
func refusedStart(w *kueue.Workload, pod *corev1.Pod, podSet int, free []int32, placements []templates.Placement) string {
	if podSet < 0 {
		return fmt.Sprintf("the Workload %s has quota for no pod like it: what it takes or where it may go differs from the others", w.Name)
	}
	if resource, does := exceeds(&pod.Spec, &w.Spec.PodSets[podSet]); does {
		return fmt.Sprintf("it asks for more %s than the pods that the Workload %s has quota for", resource, w.Name)
	}
	if free[podSet]--; free[podSet] < 0 {
		return fmt.Sprintf("the Workload %s has quota for %d pods, which run", w.Name, placements[podSet].Count)
	}
	return ""
}

// domainsOf are the node selectors of the gated pods that have a domain, and which pod sets have an assignment.
func domainsOf(w *kueue.Workload, g *gang) (selectors map[types.UID]map[string]string, assigned []bool, err error) {
	podSets, err := ranks.Of(w)
	if err != nil {
		return nil, nil, err
	}
	selectors, assigned = map[types.UID]map[string]string{}, make([]bool, len(w.Spec.PodSets))
	for i, s := range podSets {
		if s == nil {
			continue
		}
		assigned[i] = true
		of := func(pods []*corev1.Pod) []*corev1.Pod {
			return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return podSetOf(w, g, pod) != i })
		}
		for _, target := range s.Place(of(g.gated), of(g.open)) {
			selectors[target.Pod.UID] = target.Selector
		}
	}
	return selectors, assigned, nil
}

// refuse reports why a pod stays gated while its gang runs: once for each pod, and for one gang at a time.
func (r *reconciler) refuse(g *gang, pod *corev1.Pod, why string) {
	if r.isNews(g.key, why) {
		what := "It stays held"
		if g.startsWhole() {
			what = "It and its group stay held"
		}
		r.event(pod, corev1.EventTypeWarning, "Held", "%s, since %s; delete it, or the whole group to queue it again", what, why)
	}
}

// opened is a pod with what it was admitted as and without its gates: both at once, since a
// gated pod that has been sent somewhere cannot be sent elsewhere.
func (g *gang) opened(pod *corev1.Pod, p *templates.Placement) (*corev1.Pod, error) {
	changed := pod.DeepCopy()
	if g.family == group {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, roleHashAnnotation, roleOf(pod))
	}
	template := corev1.PodTemplateSpec{ObjectMeta: changed.ObjectMeta, Spec: changed.Spec}
	if _, err := p.Apply(&template); err != nil {
		return nil, err
	}
	changed.ObjectMeta, changed.Spec = template.ObjectMeta, template.Spec
	changed.Spec.SchedulingGates = slices.DeleteFunc(changed.Spec.SchedulingGates, isGate)
	return changed, nil
}

// doneOf is how many pods of a pod set have succeeded.
func (g *gang) doneOf(podSet int) int32 {
	if podSet < len(g.succeededOf) {
		return g.succeededOf[podSet]
	}
	return 0
}

// reclaim releases the quota of pods that have succeeded, which no others follow.
func (r *reconciler) reclaim(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	more := false
	counts := make([]int32, len(w.Spec.PodSets))
	for i := range counts {
		have := workload.Reclaimable(w, w.Spec.PodSets[i].Name)
		counts[i] = max(have, min(g.doneOf(i), w.Spec.PodSets[i].Count))
		more = more || counts[i] > have
	}
	if !more {
		return false, nil
	}
	return true, jobs.SetReclaimable(ctx, r.client, w, counts)
}

// reportReplacements keeps the condition that pods have failed and others in their place have
// yet to come.
func (r *reconciler) reportReplacements(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	if g.family != group || g.serves {
		return false, nil
	}
	missing := g.total - len(g.gated) - len(g.open) - g.succeeded
	have := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadWaitingForReplacementPods)
	if have == (missing > 0) {
		return false, nil
	}
	want := metav1.Condition{
		Type: kueue.WorkloadWaitingForReplacementPods, Status: metav1.ConditionFalse, Reason: kueue.WorkloadPodsReady,
		Message: "No pods need replacement", ObservedGeneration: w.Generation, LastTransitionTime: metav1.NewTime(r.now()),
	}
	if missing > 0 {
		want.Status, want.Reason = metav1.ConditionTrue, "PodsFailed"
		want.Message = fmt.Sprintf("Some Failed pods need replacement: %d of %d pods have failed or are gone; create others in their place",
			missing, g.total)
	}
	status := w.Status.DeepCopy()
	apimeta.SetStatusCondition(&status.Conditions, want)
	_, err := writes.ApplyStatus(ctx, r.client, w, status)
	return true, err
}

// reportReady keeps the condition PodsReady, if the configuration waits for it.
func (r *reconciler) reportReady(ctx context.Context, g *gang, w *kueue.Workload) (bool, error) {
	if !r.podsReady || w.Status.Admission == nil {
		return false, nil
	}
	if runsRemotely(w) {
		return r.writeReady(ctx, w, true) // whether they come in time is for the cluster that has them
	}
	missing := make([]int32, len(w.Spec.PodSets))
	for i := range missing {
		missing[i] = w.Spec.PodSets[i].Count - g.doneOf(i)
		if i < len(w.Status.Admission.PodSetAssignments) {
			missing[i] = min(missing[i], ptr.Deref(w.Status.Admission.PodSetAssignments[i].Count, missing[i]))
		}
	}
	for _, pod := range g.open {
		if i := podSetOf(w, g, pod); i >= 0 && jobs.IsReady(pod) {
			missing[i]--
		}
	}
	return r.writeReady(ctx, w, !slices.ContainsFunc(missing, func(n int32) bool { return n > 0 }))
}

func (r *reconciler) writeReady(ctx context.Context, w *kueue.Workload, ready bool) (bool, error) {
	status := workload.Readiness(w, ready, r.now())
	if status == nil {
		return false, nil
	}
	_, err := writes.ApplyStatus(ctx, r.client, w, status)
	return true, err
}
