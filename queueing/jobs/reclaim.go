package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload/podcounts"
)

const (
	// reclaimManager owns status.reclaimablePods of Workloads, as in Kueue.
	reclaimManager = "kueue-reclaimable-pods"
	// reclaimSteps is in how many steps at most the quota of a job goes back while it
	// runs, since each is a write. The last one is the end of the job.
	reclaimSteps = 4
)

// reclaim releases the quota of pods that are over and are not followed by others, and takes it back for pods that run again, as after
// a restart of a JobSet. It reports whether it wrote.
//
// What a user has taken off the number of pods is released at once. Pods that have ended
// are released by the quarter, not before they have settled, and only if another Workload
// could use their quota: three writes a job at most, and none for one whose pods all end
// within ten seconds or while nothing waits.
func (r *reconciler) reclaim(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	total, before := podcounts.Assigned(w), podcounts.Reclaimed(w)
	over, shrunk, more, fewer := make([]int32, len(total)), false, false, false
	for i, c := range countsOf(r.kind, job, w) {
		most := min(total[i], w.Spec.PodSets[i].Count)
		// An elastic job grows by another slice of its Workload.
		if needed := max(0, most-c.Needed); needed < before[i] && !IsElastic(job) {
			over[i], fewer = needed, true
			continue
		}
		over[i] = max(before[i], most-max(c.Needed, c.Left))
		taken := total[i] - c.Requested
		shrunk = shrunk || taken > before[i] && over[i] >= taken
		more = more || over[i] > before[i]
	}
	if fewer {
		if err := r.confirmNewest(ctx, job); err != nil {
			return false, err
		}
		for i := range over {
			over[i] = min(over[i], before[i])
		}
		return true, r.setReclaimed(ctx, w, over)
	}
	if !more {
		return false, nil
	}
	if !shrunk {
		// With the last pod the job ends, which releases all of it.
		if sum(over) == sum(total) || sum(over)-sum(before) < (sum(total)+reclaimSteps-1)/reclaimSteps {
			return false, nil
		}
		wanted, err := r.isQuotaWanted(ctx, w)
		if err != nil {
			return false, err
		}
		if !r.hasSettled(job.GetUID()) || !wanted {
			return false, errTooEarly
		}
	}
	if _, tracked := r.kind.(Tracker); !tracked || IsElastic(job) {
		// The job's status may not count all remaining pods, nor those whose gates were removed.
		running, _, err := pods{r}.running(ctx, job)
		if err != nil {
			return false, err
		}
		open := perPodSet(w, running)
		more = false
		for i := range over {
			over[i] = max(before[i], min(over[i], total[i]-open[i]))
			more = more || over[i] > before[i]
		}
		if !more {
			return false, errPodsLeft
		}
	}
	// A job from a first list may be older than its growth. A slice that requested the released quota again would have the same name.
	if shrunk {
		if err := r.confirmNewest(ctx, job); err != nil {
			return false, err
		}
	}
	// What comes next has to settle again.
	r.remember(job.GetUID(), func(m *memory) { m.reclaimable = time.Time{} })
	return true, r.setReclaimed(ctx, w, over)
}

// setReclaimed makes so many of the pods that got quota the reclaimable ones of each pod set.
func (r *reconciler) setReclaimed(ctx context.Context, w *kueue.Workload, over []int32) error {
	for i, n := range podcounts.NotAdmitted(w) {
		if over[i] > 0 {
			over[i] += n
		}
	}
	return SetReclaimable(ctx, r.client, w, over)
}

// hasSettled reports whether a job has had pods to report for long enough. Where all end
// at about the same time, the end of the job says as much, in a write that is needed anyway.
func (r *reconciler) hasSettled(uid types.UID) (settled bool) {
	r.remember(uid, func(m *memory) {
		if m.reclaimable.IsZero() {
			m.reclaimable = r.now()
		}
		settled = r.now().Sub(m.reclaimable) >= settling
	})
	return settled
}

// isQuotaWanted reports whether a Workload waits that could use the quota of w. Within a
// cohort that may be any.
func (r *reconciler) isQuotaWanted(ctx context.Context, w *kueue.Workload) (bool, error) {
	queue := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: string(w.Status.Admission.ClusterQueue)}, queue); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return queue.Spec.CohortName != "" || queue.Status.PendingWorkloads > 0, nil
}

// SetReclaimable makes so many pods of each pod set the reclaimable ones of exactly this
// version of w: those of another attempt mean other pods.
func SetReclaimable(ctx context.Context, c client.Client, w *kueue.Workload, counts []int32) error {
	type status struct {
		ReclaimablePods []kueue.ReclaimablePod `json:"reclaimablePods,omitempty"`
	}
	var pods []kueue.ReclaimablePod
	for i, n := range counts {
		if n > 0 {
			pods = append(pods, kueue.ReclaimablePod{Name: w.Spec.PodSets[i].Name, Count: n})
		}
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
	patch := client.RawPatch(types.ApplyPatchType, data)
	if err := c.Status().Patch(ctx, out, patch, client.FieldOwner(reclaimManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying the reclaimable pods of Workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

func sum(counts []int32) (n int32) {
	for _, c := range counts {
		n += c
	}
	return n
}
