// Package owned finds the jobs that other objects control, and enqueues them: an operator may create jobs of another kind. They queue with
// their owner while it is queued, and by themselves otherwise.
package owned

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-dev/muster/queueing/jobs/owners"
)

// Index finds objects by the UID of their controller.
const Index = "controller"

// IndexBy is what an object is found by.
func IndexBy(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Kind is one kind of jobs.
type Kind struct {
	Client client.Reader
	// Empty returns an empty object to read a job into, and List an empty list to read some into.
	Empty func() (client.Object, error)
	List  func() (client.ObjectList, error)
}

// All is a condition that each job meets.
func All(client.Object) bool { return true }

// Find returns the jobs in the cache that match. They are not to be changed.
func (k Kind) Find(ctx context.Context, matches func(client.Object) bool, options ...client.ListOption) (out []reconcile.Request) {
	list, err := k.List()
	if err == nil {
		err = k.each(ctx, list, func(job client.Object) {
			if matches(job) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			}
		}, options)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing jobs failed")
	}
	return out
}

func (k Kind) each(ctx context.Context, list client.ObjectList, do func(client.Object), options []client.ListOption) error {
	if err := k.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error { do(item.(client.Object)); return nil })
}

// Under returns the jobs that an object controls directly or through objects in these lists. An object in between that is in no queue
// does not change when the owner starts or stops.
func (k Kind) Under(ctx context.Context, owner client.Object, between func() []client.ObjectList) []reconcile.Request {
	return k.under(ctx, owner, between, owners.Most)
}

func (k Kind) under(ctx context.Context, owner client.Object, between func() []client.ObjectList, levels int) []reconcile.Request {
	controlled := []client.ListOption{client.InNamespace(owner.GetNamespace()), client.MatchingFields{Index: string(owner.GetUID())}}
	out := k.Find(ctx, All, controlled...)
	if levels == 1 {
		return out
	}
	for _, list := range between() {
		below := func(o client.Object) { out = append(out, k.under(ctx, o, between, levels-1)...) }
		if err := k.each(ctx, list, below, controlled); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing objects that may control jobs failed")
		}
	}
	return out
}

// Kinds are the kinds that the cluster serves.
type Kinds struct {
	mu  sync.Mutex
	all []member
}

type member struct {
	Kind
	controller controller.Controller
}

// Add starts a watch for one more kind in the controllers of all kinds so far, and watches for their kinds in its own controller.
func (k *Kinds) Add(informers cache.Cache, kind Kind, c controller.Controller) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	more := member{kind, c}
	for _, one := range k.all {
		if err := k.watch(informers, one, more); err != nil {
			return err
		}
		if err := k.watch(informers, more, one); err != nil {
			return err
		}
	}
	k.all = append(k.all, more)
	return nil
}

// watch enqueues the jobs of a kind when an object of another kind joins or leaves a queue.
func (k *Kinds) watch(informers cache.Cache, m, other member) error {
	object, err := other.Empty()
	if err == nil {
		under := func(ctx context.Context, owner client.Object) []reconcile.Request {
			return m.Under(ctx, owner, k.Lists)
		}
		err = m.controller.Watch(source.Kind(informers, object, handler.EnqueueRequestsFromMapFunc(under), owners.Requeued))
	}
	if err != nil {
		return fmt.Errorf("watching another kind for the jobs in it: %w", err)
	}
	return nil
}

// Lists are empty ones of all kinds.
func (k *Kinds) Lists() (out []client.ObjectList) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		if list, err := one.List(); err == nil {
			out = append(out, list)
		}
	}
	return out
}
