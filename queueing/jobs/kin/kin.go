// Package kin finds the jobs that other objects control, and wakes them: what the operator of one kind makes may be jobs of another, which
// queue with it once it is in a queue, and by themselves once it has left that.
package kin

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

// Under returns the jobs that an object controls, also by way of objects in these lists: one of them that is in no queue does not change
// when the first starts or stops.
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

// Kin are the kinds that the cluster serves.
type Kin struct {
	mu  sync.Mutex
	all []member
}

type member struct {
	Kind
	controller controller.Controller
}

// Add has the controllers of those of before heed the objects of one more kind, and that of the latter theirs.
func (k *Kin) Add(informers cache.Cache, kind Kind, c controller.Controller) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	more := member{kind, c}
	for _, one := range k.all {
		if err := k.heed(informers, one, more); err != nil {
			return err
		}
		if err := k.heed(informers, more, one); err != nil {
			return err
		}
	}
	k.all = append(k.all, more)
	return nil
}

// heed has the jobs of a kind looked at again when an object of another kind joins a queue or leaves it.
func (k *Kin) heed(informers cache.Cache, m, other member) error {
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
func (k *Kin) Lists() (out []client.ObjectList) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		if list, err := one.List(); err == nil {
			out = append(out, list)
		}
	}
	return out
}
