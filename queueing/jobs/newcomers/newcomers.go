// Package newcomers begins what queues kinds of custom resources once the cluster serves these.
package newcomers

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servedAgain is how often the API server is asked for kinds that it does not serve yet.
const servedAgain = 20 * time.Second

// Newcomer is what begins once the cluster serves kinds that it may not have. The first of them
// is the one that begins.
type Newcomer struct {
	Kinds []schema.GroupVersionKind
	Begin func() error
}

// Runnable begins each at its time: operators are installed after Muster, too.
type Runnable struct {
	Manager ctrl.Manager
	Waiting []Newcomer
}

// Start implements manager.Runnable.
func (n *Runnable) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("jobs")
	reported := map[string]string{}
	for {
		var failed error
		n.Waiting = slices.DeleteFunc(n.Waiting, func(x Newcomer) bool {
			kind := x.Kinds[0].GroupKind().String()
			served, err := n.isServed(ctx, x.Kinds)
			switch {
			case err != nil && ctx.Err() == nil && reported[kind] != err.Error():
				reported[kind] = err.Error()
				log.Error(err, "A kind cannot be used yet", "kind", kind)
			case served && failed == nil:
				if failed = x.Begin(); failed == nil {
					log.Info("A kind is used from now on", "kind", kind)
				}
			}
			return served
		})
		if failed != nil || len(n.Waiting) == 0 {
			return failed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(servedAgain):
		}
	}
}

// isServed reports whether the cluster serves the kinds. Before the informer of the first
// starts, which would wait for a right for ever, the right is tried.
func (n *Runnable) isServed(ctx context.Context, kinds []schema.GroupVersionKind) (bool, error) {
	for _, gvk := range kinds {
		if _, err := n.Manager.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return false, nil
			}
			return false, fmt.Errorf("asking whether the cluster serves %s: %w", gvk, err)
		}
	}
	queued := kinds[0]
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queued.GroupVersion().WithKind(queued.Kind + "List"))
	if err := n.Manager.GetAPIReader().List(ctx, list, client.Limit(1)); err != nil {
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w; apply the manifests that `muster manifests` prints with the same settings", err)
		}
		return false, fmt.Errorf("listing objects of kind %s: %w", queued, err)
	}
	return true, nil
}
