package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// failedToStart is Kueue's reason of Finished for a job that can never start as it was
// admitted.
const failedToStart = "FailedToStart"

// start lets the job run, in one write.
func (r *reconciler) start(ctx context.Context, job client.Object, w *kueue.Workload) error {
	placements, err := r.placements(ctx, job, w)
	if err != nil {
		return err
	}
	// A job that ran before it was stopped and queued shows its start yet.
	if unlocked, err := r.unlock(ctx, job); unlocked || err != nil {
		return err
	}
	err = r.patch(ctx, job, func(job client.Object) error {
		record, err := r.kind.Start(job, placements)
		if err != nil {
			return err
		}
		text, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("recording the pod templates of %s: %w", r.name(job), err)
		}
		annotate(job, StartedAnnotation, string(text))
		return nil
	})
	if errors.Is(err, ErrConflict) {
		r.event(job, corev1.EventTypeWarning, failedToStart, "%v", err)
		return r.finish(ctx, w, failedToStart, err.Error())
	}
	if err != nil {
		return err
	}
	r.event(job, corev1.EventTypeNormal, "Started", "Admitted by clusterQueue %s", w.Status.Admission.ClusterQueue)
	return nil
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
func (r *reconciler) placements(ctx context.Context, job client.Object, w *kueue.Workload) ([]Placement, error) {
	out := make([]Placement, len(w.Spec.PodSets))
	for i, count := range assigned(w) {
		flavors, err := r.flavorsOf(ctx, job, assignments(w)[i])
		if err != nil {
			return nil, err
		}
		out[i] = Placement{
			Count: count, Flavors: flavors, Updates: updatesOf(w, w.Spec.PodSets[i].Name), Labels: queueLabels(w, w.Spec.PodSets[i].Name),
		}
		if IsElastic(job) {
			out[i].Gated = true
			// The policy that keeps the gate on looks only at pods with this label.
			out[i].Labels[workload.ElasticAnnotation] = "true"
			out[i].Annotations = map[string]string{kueue.WorkloadSliceNameAnnotation: sliceName(w)}
		}
	}
	return out, nil
}

// updatesOf are what the admission checks of a Workload have prepared for a pod set.
func updatesOf(w *kueue.Workload, podSet kueue.PodSetReference) (updates []kueue.PodSetUpdate) {
	for _, check := range w.Status.AdmissionChecks {
		for _, u := range check.PodSetUpdates {
			if u.Name == podSet {
				updates = append(updates, u)
			}
		}
	}
	return updates
}

// flavorsOf reads the flavors that a pod set was admitted on.
func (r *reconciler) flavorsOf(ctx context.Context, job client.Object, a kueue.PodSetAssignment) ([]*kueue.ResourceFlavor, error) {
	var out []*kueue.ResourceFlavor
	for _, name := range slices.Compact(slices.Sorted(maps.Values(a.Flavors))) {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(name)}, flavor); err != nil {
			if client.IgnoreNotFound(err) == nil {
				err = fmt.Errorf("ResourceFlavor %s, on which the job was admitted, does not exist any more; create it again", name)
				r.event(job, corev1.EventTypeWarning, "FlavorNotFound", "%v", err)
				return nil, err
			}
			return nil, fmt.Errorf("reading ResourceFlavor %s: %w", name, err)
		}
		out = append(out, flavor)
	}
	return out, nil
}
