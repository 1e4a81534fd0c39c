package jobs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/config"
)

// isQueued reports whether a job is to be queued: it is named for a queue, and nothing that
// queues with all that it makes controls it. Some operators copy the labels of their objects to
// what these control.
func (r *reconciler) isQueued(ctx context.Context, job client.Object) (bool, error) {
	if named, err := r.isNamed(ctx, job); !named || err != nil {
		return false, err
	}
	part, err := r.isPart(ctx, job)
	return !part, err
}

// isNamed reports whether an object names a queue, or all jobs of its namespace are to queue.
func (r *reconciler) isNamed(ctx context.Context, o client.Object) (bool, error) {
	if o.GetLabels()[QueueLabel] != "" {
		return true, nil
	}
	return r.allQueue(ctx, o.GetNamespace())
}

// allQueue reports whether the jobs of a namespace are queued even if they name no queue.
func (r *reconciler) allQueue(ctx context.Context, name string) (bool, error) {
	if r.unqueued == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.unqueued.Matches(labels.Set(namespace.Labels)), nil
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
