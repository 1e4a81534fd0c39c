// Package owners finds the object that a job queues with: one that is queued with all that it makes.
package owners

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-dev/muster/queueing/workload"
)

// Most bounds how many owners above a job are read, as in Kueue.
const Most = 10

// Naming says which objects are to queue.
type Naming struct {
	Client client.Reader
	// Managed are the namespaces whose objects queue at all, managedJobsNamespaceSelector of the settings; nil is all.
	Managed labels.Selector
	// Everywhere are the namespaces whose objects queue even if they name no queue; nil is none.
	Everywhere labels.Selector
}

// IsNamed reports whether an object names a queue and is in a namespace whose objects queue, or all of its namespace are to queue.
func (n Naming) IsNamed(ctx context.Context, o client.Object) (bool, error) {
	if o.GetLabels()[workload.QueueLabel] != "" {
		return n.IsManaged(ctx, o.GetNamespace())
	}
	return n.AllQueue(ctx, o.GetNamespace())
}

// IsManaged reports whether objects of a namespace queue. A namespace that is not in the cache counts as one without labels of its own.
func (n Naming) IsManaged(ctx context.Context, name string) (bool, error) {
	if n.Managed == nil {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	if err := n.Client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return n.Managed.Matches(labels.Set(namespace.Labels)), nil
}

// AllQueue reports whether the objects of a namespace are queued even if they name no queue.
func (n Naming) AllQueue(ctx context.Context, name string) (bool, error) {
	if n.Everywhere == nil {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	if err := n.Client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return n.Everywhere.Matches(labels.Set(namespace.Labels)), nil
}

// Search is for the objects above jobs.
type Search struct {
	// Live reads past the cache, which would wait for kinds that it may not watch.
	Live client.Reader
	// New returns an empty object of a kind that queues as a whole; nil for other kinds.
	New func(schema.GroupKind) (client.Object, error)
	// IsNamed reports whether an object is to queue.
	IsNamed func(context.Context, client.Object) (bool, error)
	// JobsAlone: what a Job controls queues by itself.
	JobsAlone bool
}

// Outermost returns the outermost object above a job that is to queue, and its kind; nil if there is
// none. A user may write any owner into a job, so one that does not exist, or is in no queue, excuses
// nothing.
func (s Search) Outermost(ctx context.Context, job client.Object) (out client.Object, kind schema.GroupKind, err error) {
	o := job
	for range Most {
		claimed := metav1.GetControllerOf(o)
		if claimed == nil || s.JobsAlone && IsJob(claimed) {
			return out, kind, nil
		}
		owner, err := s.read(ctx, job.GetNamespace(), claimed)
		if owner == nil || err != nil {
			return out, kind, err
		}
		named, err := s.IsNamed(ctx, owner)
		if err != nil {
			return nil, kind, err
		}
		if named {
			out, kind = owner, KindOf(claimed)
		}
		o = owner
	}
	return out, kind, nil
}

// read reads an owner; nil if it does not exist or does not queue as a whole.
func (s Search) read(ctx context.Context, namespace string, claimed *metav1.OwnerReference) (client.Object, error) {
	owner, err := s.New(KindOf(claimed))
	if owner == nil || err != nil {
		return nil, err
	}
	err = s.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claimed.Name}, owner)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && owner.GetUID() != claimed.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the claimed controller %s %s/%s: %w", claimed.Kind, namespace, claimed.Name, err)
	}
	return owner, nil
}

// KindOf is the kind of an owner.
func KindOf(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

// IsJob reports whether an owner is a batch/v1 Job, which no operator is behind.
func IsJob(owner *metav1.OwnerReference) bool {
	return owner != nil && KindOf(owner) == batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()
}

// Requeued passes that an object joins a queue or leaves it.
var Requeued = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[workload.QueueLabel] != e.ObjectNew.GetLabels()[workload.QueueLabel]
	},
}

// ConcernsParts passes what the parts of a Job follow, and that it joins a queue or leaves it.
var ConcernsParts = predicate.Funcs{
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*batchv1.Job), e.ObjectNew.(*batchv1.Job)
		return isSuspended(before) != isSuspended(after) || len(before.Status.Conditions) != len(after.Status.Conditions) ||
			Requeued.Update(e)
	},
}

func isSuspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }
