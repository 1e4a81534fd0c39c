package jobs

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// reclaimManager owns status.reclaimablePods of Workloads, as in Kueue.
	reclaimManager = "kueue-reclaimable-pods"
	// reclaimSteps is in how many steps at most the quota of a Job goes back while it
	// runs, since each is a write. The last one is the end of the Job.
	reclaimSteps = 4
)

// reclaim gives back the quota of pods that are over and are not followed by
// others. It reports whether it wrote.
//
// What a user has taken from the parallelism goes at once. Pods that have ended go
// by the quarter, not before they have settled, and only if somebody could use
// what they leave: three writes a Job at most, and none for one whose pods all end
// within ten seconds or while nobody waits.
func (r *reconciler) reclaim(ctx context.Context, job *batchv1.Job, w *kueue.Workload) (bool, error) {
	assigned, before := assignedCount(w), reclaimed(w)
	over := min(assigned, w.Spec.PodSets[0].Count) - max(podCount(job), podsLeft(job))
	if over <= before {
		return false, nil
	}
	if shrunk := assigned - valueOr(job.Spec.Parallelism, 1); shrunk <= before || over < shrunk {
		// With the last pod the Job ends, which gives all of it back.
		if over == assigned || over-before < (assigned+reclaimSteps-1)/reclaimSteps {
			return false, nil
		}
		wanted, err := r.isQuotaWanted(ctx, w)
		if err != nil {
			return false, err
		}
		if !r.hasSettled(job.UID) || !wanted {
			return false, errTooEarly
		}
	}
	if isElastic(job) {
		// The Job's status may not know yet of pods that were let be scheduled.
		open, _, err := r.livePods(ctx, job)
		if err != nil {
			return false, err
		}
		if over = min(over, assigned-open); over <= before {
			return false, errPodsLeft
		}
	}
	r.reported(job.UID)
	return true, r.setReclaimed(ctx, w, []kueue.ReclaimablePod{{Name: w.Spec.PodSets[0].Name, Count: over + leftOut(w)}})
}

// reclaimed is how many of the assigned pods are reclaimable.
func reclaimed(w *kueue.Workload) int32 {
	over := reclaimable(w)
	if over == 0 {
		return 0
	}
	return max(0, over-leftOut(w))
}

// reclaimable is how many pods of the spec are.
func reclaimable(w *kueue.Workload) int32 {
	for _, p := range w.Status.ReclaimablePods {
		if p.Name == w.Spec.PodSets[0].Name {
			return p.Count
		}
	}
	return 0
}

// leftOut is how many pods of the spec were not admitted. The API counts reclaimable
// pods from the spec.
func leftOut(w *kueue.Workload) int32 {
	return max(0, w.Spec.PodSets[0].Count-assignedCount(w))
}

// isQuotaWanted says that somebody waits who could use the quota of w. Within a
// cohort that may be anybody.
func (r *reconciler) isQuotaWanted(ctx context.Context, w *kueue.Workload) (bool, error) {
	queue := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: string(w.Status.Admission.ClusterQueue)}, queue); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return queue.Spec.CohortName != "" || queue.Status.PendingWorkloads > 0, nil
}

// setReclaimed makes pods the reclaimable ones of exactly this version of w: those
// of another attempt mean other pods.
func (r *reconciler) setReclaimed(ctx context.Context, w *kueue.Workload, pods []kueue.ReclaimablePod) error {
	type status struct {
		ReclaimablePods []kueue.ReclaimablePod `json:"reclaimablePods,omitempty"`
	}
	data, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Status          status            `json:"status"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		Metadata: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace, UID: w.UID, ResourceVersion: w.ResourceVersion},
		Status:   status{pods},
	})
	if err != nil {
		return fmt.Errorf("encoding the reclaimable pods of Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace}}
	if err := r.client.Status().Patch(ctx, out, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(reclaimManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying the reclaimable pods of Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}
