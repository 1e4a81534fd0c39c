package owners

import (
	"context"
	"fmt"
	"slices"
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
)

// Kin are the controllers of the kinds that the cluster serves: what the operator of one kind makes may be jobs of another, which
// queue with it once it is in a queue, and by themselves once it has left that.
type Kin struct {
	mu  sync.Mutex
	all []Member
}

// Member is the controller of the jobs of a kind.
type Member struct {
	Controller controller.Controller
	// Object and List are empty ones of the kind.
	Object client.Object
	List   client.ObjectList
	// Under are the jobs of the kind that an object of any kind controls.
	Under handler.MapFunc
}

// Add has those of before heed the objects of one more, and that one theirs.
func (k *Kin) Add(informers cache.Cache, more Member) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		if err := one.heed(informers, more.Object); err != nil {
			return err
		}
		if err := more.heed(informers, one.Object); err != nil {
			return err
		}
	}
	k.all = append(k.all, more)
	return nil
}

// heed has the jobs of a kind looked at again when an object of another kind joins a queue or leaves it.
func (m Member) heed(informers cache.Cache, of client.Object) error {
	if err := m.Controller.Watch(source.Kind(informers, of, handler.EnqueueRequestsFromMapFunc(m.Under), Requeued)); err != nil {
		return fmt.Errorf("watching %s for the jobs in it: %w", of.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return nil
}

// Lists are empty ones of all kinds.
func (k *Kin) Lists() (out []client.ObjectList) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all {
		out = append(out, one.List.DeepCopyObject().(client.ObjectList))
	}
	return out
}

// ControllerOf is for an index of objects by the UID of what controls them.
func ControllerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Below are the objects of a kind that another controls, also by way of those of the kinds between, by an index of ControllerOf. The
// lists are empty ones.
func Below(
	ctx context.Context, kube client.Reader, index string, owner client.Object, of client.ObjectList, between []client.ObjectList,
) (out []reconcile.Request) {
	above := []client.Object{owner}
	for range Most {
		var next []client.Object
		for _, o := range above {
			controlled := []client.ListOption{client.InNamespace(o.GetNamespace()), client.MatchingFields{index: string(o.GetUID())},
				client.UnsafeDisableDeepCopy}
			for _, job := range listed(ctx, kube, of, controlled) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			}
			for _, list := range between {
				next = append(next, listed(ctx, kube, list, controlled)...)
			}
		}
		above = next
	}
	return slices.Compact(out)
}

func listed(ctx context.Context, kube client.Reader, kind client.ObjectList, options []client.ListOption) (out []client.Object) {
	list := kind.DeepCopyObject().(client.ObjectList)
	err := kube.List(ctx, list, options...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			out = append(out, item.(client.Object))
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing what an object controls failed")
	}
	return out
}
