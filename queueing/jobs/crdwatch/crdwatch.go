// Package crdwatch starts the queueing of custom resources once the cluster serves them, and reports when it stops serving them.
package crdwatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servedAgain is how often the kinds that the API server serves are read.
const servedAgain = 20 * time.Second

// Integration is started once the cluster serves all of its kinds. The first kind is the one that it queues.
type Integration struct {
	Kinds []schema.GroupVersionKind
	Begin func() error
}

// Runnable begins each at its time: operators are installed after Muster, too.
type Runnable struct {
	Manager ctrl.Manager
	Waiting []Integration
	// Report is called with whether the cluster serves a kind that has begun.
	Report func(kind schema.GroupKind, served bool)

	begun []*begun
}

// begun is a kind that is used. Its objects go with its CRD; if that comes again, its informer goes on by itself.
type begun struct {
	Integration
	served bool
}

// Start implements manager.Runnable.
func (r *Runnable) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("jobs")
	reported := map[string]string{}
	for {
		if err := r.begin(ctx, log, reported); err != nil {
			return err
		}
		r.reportServed(ctx, log)
		if len(r.Waiting)+len(r.begun) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(servedAgain):
		}
	}
}

// begin begins what waits and is served. What was reported is not reported again.
func (r *Runnable) begin(ctx context.Context, log logr.Logger, reported map[string]string) (failed error) {
	r.Waiting = slices.DeleteFunc(r.Waiting, func(x Integration) bool {
		kind := x.Kinds[0].GroupKind().String()
		served, err := r.isServed(ctx, x.Kinds)
		switch {
		case err != nil && ctx.Err() == nil && reported[kind] != err.Error():
			reported[kind] = err.Error()
			log.Error(err, "A kind cannot be used yet", "kind", kind)
		case served && failed == nil:
			if failed = x.Begin(); failed == nil {
				log.Info("A kind is used from now on", "kind", kind)
				r.begun = append(r.begun, &begun{Integration: x})
			}
		}
		return served
	})
	return failed
}

// reportServed reports kinds that are not served any more, and those that are served again.
func (r *Runnable) reportServed(ctx context.Context, log logr.Logger) {
	for _, x := range r.begun {
		kind := x.Kinds[0].GroupKind()
		served, err := r.isServed(ctx, x.Kinds)
		if err != nil || served == x.served {
			continue // where the API server does not answer, the kind may be served
		}
		if x.served = served; !served {
			log.Info("A kind is no longer served: without its CRD there are no objects of it, and none can be queued; install its operator again",
				"kind", kind.String())
		}
		r.Report(kind, served)
	}
}

// isServed reports whether the cluster serves the kinds. Before the informer of the first
// starts, which would wait for a right for ever, the right is tried.
func (r *Runnable) isServed(ctx context.Context, kinds []schema.GroupVersionKind) (bool, error) {
	for _, gvk := range kinds {
		if _, err := r.Manager.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return false, nil
			}
			return false, fmt.Errorf("asking whether the cluster serves %s: %w", gvk, err)
		}
	}
	queued := kinds[0]
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queued.GroupVersion().WithKind(queued.Kind + "List"))
	if err := r.Manager.GetAPIReader().List(ctx, list, client.Limit(1)); err != nil {
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return false, nil // the mapper may have an old cache
		}
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w; apply the manifests that `muster manifests` prints with the same settings", err)
		}
		return false, fmt.Errorf("listing objects of kind %s: %w", queued, err)
	}
	return true, nil
}
