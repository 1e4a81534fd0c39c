package jobs

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/jobs/owners"
)

// isQueued reports whether a job is to be queued: it is named for a queue, and nothing that
// queues with all that it makes controls it. Some operators copy the labels of their objects to
// what these control.
func (r *reconciler) isQueued(ctx context.Context, job client.Object) (bool, error) {
	if named, err := r.naming().IsNamed(ctx, job); !named || err != nil {
		return false, err
	}
	part, err := parts{r}.isPart(ctx, job)
	return !part, err
}

// parts are jobs that queue with what controls them.
type parts struct{ *reconciler }

// naming says which objects are to queue.
func (r *reconciler) naming() owners.Naming {
	return owners.Naming{Client: r.client, Managed: r.managed, Everywhere: r.unqueued}
}

// byGroupKind returns the kinds that queue as a whole, with the jobs that their controllers create. A CronJob is not one of them, since
// its Jobs queue one by one.
func byGroupKind(kinds []Kind) map[schema.GroupKind]Kind {
	out := map[schema.GroupKind]Kind{}
	for _, kind := range kinds {
		out[kind.GroupVersionKind().GroupKind()] = kind
	}
	return out
}

// whole is an object that queues with all that it makes.
type whole struct {
	kind   Kind
	object client.Object
}

// runs reports whether the parts of the object may run.
func (o whole) runs() bool {
	outcome, _ := o.kind.Outcome(o.object)
	return outcome == Unfinished && !o.kind.IsSuspended(o.object)
}

// wholeOf is the object that a job queues with; nil if the job is on its own.
//
// Whatever makes Jobs for a Job does so beside the pods that the latter has quota for. As in
// Kueue, such a Job has no quota of its own; but where all jobs have to queue it does, since any
// user may say of a Job that another controls it.
func (r parts) wholeOf(ctx context.Context, job client.Object) (*whole, error) {
	if metav1.GetControllerOf(job) == nil {
		return nil, nil
	}
	strict, err := r.naming().AllQueue(ctx, job.GetNamespace())
	if err != nil {
		return nil, err
	}
	search := owners.Search{Live: r.live, IsNamed: r.naming().IsNamed, JobsAlone: strict}
	search.New = func(gk schema.GroupKind) (client.Object, error) {
		if kind := r.owners[gk]; kind != nil {
			return r.newObject(kind)
		}
		return nil, nil
	}
	object, kind, err := search.Outermost(ctx, job)
	if err != nil {
		return nil, err
	}
	r.remember(job.GetUID(), func(m *memory) { m.part.version, m.part.is = job.GetResourceVersion(), object != nil })
	if object == nil {
		return nil, nil
	}
	return &whole{r.owners[kind], object}, nil
}

// isPart reports whether a job queues with another object. It is determined once for each version of the job, and at each reconciliation.
func (r parts) isPart(ctx context.Context, job client.Object) (is bool, err error) {
	known := false
	r.remember(job.GetUID(), func(m *memory) { is, known = m.part.is, m.part.version == job.GetResourceVersion() })
	if known || metav1.GetControllerOf(job) == nil {
		return is, nil
	}
	with, err := r.wholeOf(ctx, job)
	return with != nil, err
}
