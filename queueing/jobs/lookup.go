package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
)

// workloadOf reads the job's Workload; nil if there is none.
func (r *reconciler) workloadOf(ctx context.Context, job client.Object) (*kueue.Workload, error) {
	return workloadIn(ctx, r.client, r.kind, job)
}

func workloadIn(ctx context.Context, c client.Reader, kind Kind, job client.Object) (*kueue.Workload, error) {
	if PrebuiltName(job) != "" {
		return prebuiltIn(ctx, c, job)
	}
	if IsElastic(job) {
		all, err := slicesOf(ctx, c, job)
		return currentSlice(all), err
	}
	w := &kueue.Workload{}
	key := client.ObjectKey{Namespace: job.GetNamespace(), Name: WorkloadName(kind.GroupVersionKind(), job)}
	if err := c.Get(ctx, key, w); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Workload %s: %w", key, err)
	}
	switch {
	case isOrphanOf(w, job):
		return nil, nil
	case !metav1.IsControlledBy(w, job):
		return nil, fmt.Errorf("the Workload %s has the name of that of job %s but another owner; delete it", key, job.GetName())
	}
	return w, nil
}

// isBehind reports whether the cache lacks the newest version of the job's Workload.
// After a restart it may show one from before the admission.
func (r *reconciler) isBehind(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	live, err := workloadIn(ctx, r.live, r.kind, job)
	if w == nil || live == nil || err != nil {
		return w != live, err
	}
	return w.UID != live.UID || w.ResourceVersion != live.ResourceVersion, nil
}

// isOrphanOf reports whether a Workload was the job's and has lost its owner. The queues
// finish it, so the job may not run by it.
func isOrphanOf(w *kueue.Workload, job client.Object) bool {
	return metav1.GetControllerOf(w) == nil && w.Labels[JobUIDLabel] == string(job.GetUID())
}

// prebuiltIn reads the Workload that a job names; nil as long as the job has not taken it.
func prebuiltIn(ctx context.Context, c client.Reader, job client.Object) (*kueue.Workload, error) {
	name := PrebuiltName(job)
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	w := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: name}, w); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Workload %s/%s: %w", job.GetNamespace(), name, err)
	}
	if !metav1.IsControlledBy(w, job) {
		return nil, nil
	}
	return w, nil
}

// slicesOf are the Workloads of an elastic job, the oldest first.
func slicesOf(ctx context.Context, c client.Reader, job client.Object) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(job.GetNamespace()),
		client.MatchingLabels{JobUIDLabel: string(job.GetUID())}); err != nil {
		return nil, fmt.Errorf("listing the Workloads of job %s/%s: %w", job.GetNamespace(), job.GetName(), err)
	}
	var out []*kueue.Workload
	for i := range list.Items {
		if w := &list.Items[i]; metav1.IsControlledBy(w, job) {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *kueue.Workload) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// currentSlice returns the slice that the job runs by, or will run by: the newest admitted one, else the newest evicted one whose pods
// may still run, else the newest with quota, else the oldest pending one, else the newest of the finished ones. It never returns a slice
// that was replaced: if its replacement is gone, the job has no Workload.
func currentSlice(slices []*kueue.Workload) (out *kueue.Workload) {
	const waits = 2
	rank := func(w *kueue.Workload) int {
		switch {
		case w == nil:
			return 0
		case workload.IsFinished(w):
			return 1
		case !workload.HasQuota(w):
			return waits
		case !workload.IsEvicted(w) && !workload.IsAdmitted(w):
			return 3
		case workload.IsEvicted(w):
			return 4
		}
		return 5
	}
	for _, w := range slices {
		if workload.IsReplaced(w) {
			continue
		}
		if mine, best := rank(w), rank(out); mine > best || mine == best && mine != waits {
			out = w
		}
	}
	return out
}
