package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/children"
	"github.com/muster-dev/muster/queueing/jobs/templates"
	"github.com/muster-dev/muster/queueing/workload"
)

// failedToStart is Kueue's reason of Finished for a job that can never start as it was
// admitted.
const failedToStart = "FailedToStart"

// start lets the job run, in one write. After a restart, the cache may show a Workload from before
// its eviction, and an admission whose quota others have by now.
func (r *reconciler) start(ctx context.Context, job client.Object, w *kueue.Workload) error {
	if behind, err := r.isBehind(ctx, job, w); behind || err != nil {
		return cmp.Or(err, writes.ErrBehind)
	}
	placements, err := r.placements(ctx, job, w)
	if err != nil {
		return err
	}
	// A job that ran before it was stopped and queued shows its start yet.
	if unlocked, err := r.unlock(ctx, job); unlocked || err != nil {
		return err
	}
	if err := r.clear(ctx, job); err != nil {
		return err
	}
	if err := r.gang(ctx, job, w, placements); err != nil {
		return err
	}
	err = r.patch(ctx, job, func(job client.Object) error {
		record, err := r.kind.Start(job, placements)
		if err != nil {
			return err
		}
		saved, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("recording the pod templates of %s: %w", r.name(job), err)
		}
		annotate(job, StartedAnnotation, string(saved))
		return nil
	})
	if errors.Is(err, templates.ErrConflict) {
		r.event(job, corev1.EventTypeWarning, failedToStart, "%v", err)
		return writes.Finish(ctx, r.client, w, failedToStart, err.Error(), r.now())
	}
	if isRefusal(err) {
		return r.reportRefusedStart(ctx, job, w, err)
	}
	if err != nil {
		return err
	}
	r.remember(job.GetUID(), func(m *memory) { m.startRefused = time.Time{} })
	r.event(job, corev1.EventTypeNormal, "Started", "Admitted by clusterQueue %s", w.Status.Admission.ClusterQueue)
	return nil
}

// clear fails while something is left of an earlier run of a job, which may have begun without
// Muster: its pods, whose controller may not have seen yet that it was stopped, and objects that
// its controller makes again. A job in its first generation has had no run, since a stop changes
// its spec.
func (r *reconciler) clear(ctx context.Context, job client.Object) error {
	if job.GetGeneration() == 1 {
		return nil
	}
	// kube-apiserver keeps the pod template of a Job whose status counts active pods as it is, also where those are gone.
	if !r.kind.IsStopped(job) {
		return errPodsLeft
	}
	if err := (pods{r}).confirmNone(ctx, job); err != nil {
		return err
	}
	parent, ok := r.kind.(Parent)
	if !ok {
		return nil
	}
	left, err := children.Clear(ctx, r.client, r.live, job, parent.Children(job))
	if err == nil && left {
		err = errChildrenLeft
	}
	return err
}

// isRefusal reports whether the API server, a policy or a webhook does not take a change.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// reportRefusedStart reports that the API server, or a webhook of the job's operator, refuses the
// start of a job. One that goes on being refused makes room for others, and is tried again later.
func (r *reconciler) reportRefusedStart(ctx context.Context, job client.Object, w *kueue.Workload, refused error) error {
	if r.isNews(job.GetUID(), "StartRefused"+refused.Error()) {
		r.event(job, corev1.EventTypeWarning, "StartRefused", "The job is admitted, but its start is refused; correct what the message names: %v",
			refused)
	}
	var since time.Time
	r.remember(job.GetUID(), func(m *memory) {
		if m.startRefused.IsZero() {
			m.startRefused = r.now()
		}
		since = m.startRefused
	})
	if r.now().Sub(since) < settling {
		return refused
	}
	r.remember(job.GetUID(), func(m *memory) { m.startRefused = time.Time{} })
	_, err := writes.ApplyStatus(ctx, r.client, w, workload.PodsRefused(w, text.Clip(refused.Error(), maxQuote), r.now()))
	return err
}

// annotate sets an annotation of a job; empty removes it.
func annotate(job client.Object, key, value string) {
	annotations := job.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[key] = value; value == "" {
		delete(annotations, key)
	}
	job.SetAnnotations(annotations)
}

// placements are how the pod sets of an admitted Workload start.
func (r *reconciler) placements(ctx context.Context, job client.Object, w *kueue.Workload) ([]templates.Placement, error) {
	out, err := templates.Of(ctx, r.client, w)
	if errors.Is(err, templates.ErrNoFlavor) {
		r.event(job, corev1.EventTypeWarning, "FlavorNotFound", "%v", err)
	}
	if err != nil {
		return nil, err
	}
	for i := range out {
		if _, tracked := r.kind.(Tracker); !tracked {
			// The pods are found by it, whatever the job's controller reports.
			out[i].Labels[JobUIDLabel] = string(job.GetUID())
		}
		if IsElastic(job) {
			out[i].Gated = true
			// The policy that keeps the gate only matches pods with this label.
			out[i].Labels[workload.ElasticAnnotation] = "true"
			out[i].Annotations = map[string]string{kueue.WorkloadSliceNameAnnotation: sliceName(w)}
		}
	}
	return out, nil
}
