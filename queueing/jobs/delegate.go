package jobs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// IsDelegated reports whether a job is to run in another cluster, by a check of MultiKueue.
func IsDelegated(kind Source, job client.Object) bool {
	d, ok := kind.(Delegable)
	return ok && d.ManagedBy(job) == kueue.MultiKueueControllerName
}

// delegation is what is done for jobs of other clusters.
type delegation struct{ *reconciler }

// runRemote shows a job as running once a cluster runs it. No controller reconciles it in the manager: its pods are in that cluster, and
// its template stays as the user wrote it.
func (r delegation) runRemote(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if !r.kind.IsSuspended(job) {
		if wrote, err := r.prioritize(ctx, job, w); wrote || err != nil {
			return err
		}
		return r.reportRemoteRun(ctx, w)
	}
	ready, err := r.queue(ctx, job, w)
	if err != nil || !ready || !workload.IsActive(w) {
		return err
	}
	if err := r.patch(ctx, job, func(job client.Object) error { r.kind.Resume(job); return nil }); err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Started", "Admitted by clusterQueue %s, in cluster %s", w.Status.Admission.ClusterQueue,
		ptr.Deref(w.Status.ClusterName, "(unknown)"))
	return nil
}

// reportRemoteRun reports the pods as ready: whether they come in time is for the cluster that has them.
func (r delegation) reportRemoteRun(ctx context.Context, w *kueue.Workload) error {
	if !r.podsReady {
		return nil
	}
	status := workload.Readiness(w, true, r.now())
	if status == nil {
		return nil
	}
	_, err := writes.ApplyStatus(ctx, r.client, w, status)
	return err
}

// stopRemote suspends the job, and releases its quota once no nominated cluster has anything of it any more: the quota may be for their
// machines.
func (r delegation) stopRemote(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if !r.kind.IsSuspended(job) {
		return r.stop(ctx, job, w)
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	if err != nil {
		return err
	}
	if len(record.In) > 0 || ptr.Deref(w.Status.ClusterName, "") != "" {
		return nil // the dispatcher's next record is an event of the Workload
	}
	_, err = writes.ApplyStatus(ctx, r.client, w, workload.Released(w, r.now()))
	return err
}
