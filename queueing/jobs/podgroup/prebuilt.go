package podgroup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// The pods of a group may name a Workload that something else has created for them, which has the name of the group. Kueue tells such
// a one by its pods, and so does Muster; as long as there are none, it has no owner and no mark of Muster's:
//
//	no such Workload ──created──▶ it waits for its pods ──all are there──▶ owned by them ──admitted──▶ start
//	                                                                            │
//	                                                                            └─ for other pods ──▶ Finished, OutOfSync

// namesPrebuilt reports whether the pods of a gang are a group that names its Workload.
func (g *gang) namesPrebuilt() bool {
	return g.family == group && g.job != nil && jobs.PrebuiltName(g.job) == g.name
}

// awaitsPods reports whether something else has created the Workload for a group none of whose pods has been there. Those that Muster
// makes are marked as its own, since pods that are deleted with --cascade=orphan leave it without owners, too.
func awaitsPods(w *kueue.Workload) bool {
	return len(w.OwnerReferences) == 0 && w.Labels[workload.ManagedLabel] != "true"
}

// queuePrebuilt does as queue for a group that names its Workload; w is nil until that exists.
func (r *reconciler) queuePrebuilt(ctx context.Context, g *gang, w *kueue.Workload) (ready bool, err error) {
	if w == nil {
		if r.isNews(g.key, g.name) {
			r.event(g.job, corev1.EventTypeNormal, "WaitingForWorkload",
				"Workload %s, which %s names, doesn't exist; the pods start once it is created and admitted", g.name, jobs.PrebuiltLabel)
		}
		return false, nil
	}
	want, err := r.wanted(ctx, g)
	if err != nil {
		return false, err
	}
	field := "spec.podSets"
	if orderAs(want.Spec.PodSets, w.Spec.PodSets) {
		if field, err = jobs.DiffersFrom(ctx, r.client, w, want); err != nil {
			return false, err
		}
	}
	if field != "" {
		message, err := jobs.FinishOutOfSync(ctx, r.client, w, "they differ in "+field, r.now())
		if err == nil {
			r.event(g.job, corev1.EventTypeWarning, kueue.WorkloadFinishedReasonOutOfSync,
				"Workload %s is finished: %s; create one that matches the pods, and these again", w.Name, message)
		}
		return false, err
	}
	refused := want.Annotations[workload.RefusedAnnotation]
	before := w.Annotations[workload.RefusedAnnotation]
	wrote, err := writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool {
		changed := own(w, want)
		if !workload.IsGroup(w) {
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, workload.GroupAnnotation, "true")
			changed = true
		}
		return !workload.HasQuota(w) && jobs.FollowPrebuilt(w, want) || changed
	})
	if err == nil && refused != before && (wrote || r.isNews(g.key, refused)) {
		r.reportRefusal(g, refused)
	}
	return !wrote && refused == "", err
}

// orderAs puts pod sets in the order of others, by name. It reports whether they have the same names.
func orderAs(podSets, others []kueue.PodSet) bool {
	if len(podSets) != len(others) {
		return false
	}
	for i := range others {
		k := slices.IndexFunc(podSets[i:], func(s kueue.PodSet) bool { return s.Name == others[i].Name })
		if k < 0 {
			return false
		}
		podSets[i], podSets[i+k] = podSets[i+k], podSets[i]
	}
	return true
}

// refusePrebuilt says why a pod of a group names a Workload that cannot be that of the group; empty if it does not.
func (g *gang) refusePrebuilt(pod *corev1.Pod) string {
	name := jobs.PrebuiltName(pod)
	if name == "" || name == g.name {
		return ""
	}
	return fmt.Sprintf("%s names the Workload %q on pod %s of the group %s, and that of a group has its name; give both the same",
		jobs.PrebuiltLabel, name, pod.Name, g.name)
}
