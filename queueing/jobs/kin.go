package jobs

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-dev/muster/queueing/jobs/owners"
)

// kin are the reconcilers of the kinds that the cluster serves: what the operator of one kind makes may be jobs of another, which
// queue with it once it is in a queue, and by themselves once it has left that.
type kin struct {
	mu  sync.Mutex
	all []member
}

type member struct {
	*reconciler
	controller controller.Controller
}

// add has those of before heed the objects of one more, and that one theirs.
func (k *kin) add(informers cache.Cache, more member) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		if err := one.heed(informers, more.reconciler); err != nil {
			return err
		}
		if err := more.heed(informers, one.reconciler); err != nil {
			return err
		}
	}
	k.all = append(k.all, more)
	return nil
}

// heed has the jobs of a kind looked at again when an object of another kind joins a queue or leaves it.
func (m member) heed(informers cache.Cache, other *reconciler) error {
	object, err := other.newJob()
	if err == nil {
		err = m.controller.Watch(source.Kind(informers, object, handler.EnqueueRequestsFromMapFunc(watches{m.reconciler}.jobsUnder),
			owners.Requeued))
	}
	if err != nil {
		return fmt.Errorf("watching %s for the jobs in it: %w", other.kind.GroupVersionKind().Kind, err)
	}
	return nil
}

// jobsUnder are those of its kind that an object controls, also by way of objects of other kinds.
func (r watches) jobsUnder(ctx context.Context, owner client.Object) []reconcile.Request {
	return r.below(ctx, owner, r.kin.lists, owners.Most)
}

// lists are empty ones of all kinds.
func (k *kin) lists() (out []client.ObjectList) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		if list, err := one.newList(); err == nil {
			out = append(out, list)
		}
	}
	return out
}
