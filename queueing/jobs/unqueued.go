package jobs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/config"
)

// ownersAmong are the kinds that are queued as a whole, with the jobs that their
// controllers create: such jobs need no queue of their own. A CronJob is not one of them.
// The policies have the same list.
func ownersAmong(kinds []Kind) sets.Set[schema.GroupKind] {
	out := sets.New[schema.GroupKind]()
	for _, kind := range kinds {
		if gk := kind.GroupVersionKind().GroupKind(); gk.Group != batchv1.GroupName {
			out.Insert(gk)
		}
	}
	return out
}

// isQueued reports whether a job is to be queued: it names a queue, or all jobs of its
// namespace are queued, and nothing that queues controls it. Some operators copy the labels
// of their objects to what these control.
func (r *reconciler) isQueued(ctx context.Context, job client.Object) (bool, error) {
	if job.GetLabels()[QueueLabel] != "" {
		part, err := r.isPartOfQueued(ctx, job)
		return !part, err
	}
	if r.unqueued == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: job.GetNamespace()}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !r.unqueued.Matches(labels.Set(namespace.Labels)) {
		return false, nil
	}
	part, err := r.isPartOfQueued(ctx, job)
	return !part, err
}

// isPartOfQueued reports whether an object that is queued as a whole controls the job. A
// user may write any owner into a job: one that does not exist excuses nothing. It is
// looked for once, since it existed before the job or never.
func (r *reconciler) isPartOfQueued(ctx context.Context, job client.Object) (bool, error) {
	claimed := metav1.GetControllerOf(job)
	if claimed == nil {
		return false, nil
	}
	kind := schema.FromAPIVersionAndKind(claimed.APIVersion, claimed.Kind)
	if !r.owners.Has(kind.GroupKind()) {
		return false, nil
	}
	var known owner
	if r.remember(job.GetUID(), func(m *memory) { known = m.owner }); known.uid == claimed.UID {
		return known.exists, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: claimed.Name}, object)
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("reading %s %s/%s, the claimed controller of %s: %w", claimed.Kind, job.GetNamespace(), claimed.Name,
			r.name(job), err)
	}
	known = owner{uid: claimed.UID, exists: err == nil && object.UID == claimed.UID}
	r.remember(job.GetUID(), func(m *memory) { m.owner = known })
	return known.exists, nil
}

// unqueuedSelector is nil where only jobs that name a queue are queued.
func unqueuedSelector(c config.Config) (labels.Selector, error) {
	if !c.ManageJobsWithoutQueueName {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(c.ManagedJobsNamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("managedJobsNamespaceSelector: %w; correct it", err)
	}
	return selector, nil
}
