package podgroup

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// gatesPolicy gates pods in a queue. Pods that run although they were created after it were started by Muster, or by an administrator.
const gatesPolicy = "muster-pods-gates"

// adopt queues pods as they run: they keep running, and their usage counts. Pods that neither ran before Muster came nor were started by
// it run outside their queue, as an administrator lets them.
func (r *reconciler) adopt(ctx context.Context, g *gang, w *kueue.Workload) error {
	if g.leaves {
		return nil
	}
	reason, err := r.provesToRun(ctx, g)
	if err != nil {
		return err
	}
	if reason == "" {
		if r.isNews(g.key, notAdopted) {
			r.event(g.job, corev1.EventTypeWarning, notAdopted, "It runs outside its queue and without quota: neither did it run before Muster "+
				"came, nor has Muster started it; delete it and create it again to have it queue")
		}
		return nil
	}
	if w == nil {
		if live, err := r.workloadOf(ctx, g, r.live); live != nil || err != nil {
			return cmp.Or(err, writes.ErrBehind)
		}
		// What runs in the cache may be gone.
		if err := r.confirmNoneRuns(ctx, g); !errors.Is(err, writes.ErrBehind) {
			return cmp.Or(err, writes.ErrBehind)
		}
		if g.family == ofLeaderWorkerSet && g.runsByCopy() {
			// Its manager has taken the copy back, and the other groups run on.
			return r.deletePods(ctx, g, "its Workload is gone")
		}
		want, err := r.wanted(ctx, g, nil)
		if err != nil {
			return err
		}
		want.Annotations[workload.AdoptedAnnotation] = "true"
		return r.create(ctx, g, want)
	}
	if _, err := writes.ApplyStatus(ctx, r.client, w, workload.Adopted(w, reason, r.now())); err != nil {
		return err
	}
	r.event(g.job, corev1.EventTypeNormal, "Adopted", "It was running without a Workload; it keeps running, and its usage counts in its queue")
	return nil
}

const notAdopted = "NotAdopted"

// provesToRun returns why the pods of a gang may be adopted, as a reason of workload.ConditionAdopted; empty if one that runs proves
// neither. Only a start writes its marks on a pod, and only the API server writes when the pod was created. What waits beside pods that
// Muster has started is counted by what its user says of the gang.
func (r *reconciler) provesToRun(ctx context.Context, g *gang) (reason string, err error) {
	reason = workload.StartedBefore
	if len(g.gated) > 0 || g.awaited {
		reason = workload.RanBefore
	}
	for _, pod := range g.open {
		if pod.Labels[jobs.PodSetLabel] != "" && pod.Labels[jobs.ClusterQueueLabel] != "" {
			continue
		}
		before, err := jobs.RanBefore(ctx, r.live, gatesPolicy, pod)
		if err != nil || !before {
			return "", err
		}
		reason = workload.RanBefore
	}
	return reason, nil
}
