package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Forwarder is a Kind whose jobs have fields that may change here while they run elsewhere, and take effect there.
type Forwarder interface {
	Kind
	// Forwards reports whether there are such fields.
	Forwards() bool
	// Forward gives a job there the values that they have here. It reports whether it changed any.
	Forward(here, there *unstructured.Unstructured) (changed bool)
}

// watchForwarded watches the jobs here of which fields are forwarded: their Workloads do not change with them.
func (c *copies) watchForwarded(
	mgr ctrl.Manager, built controller.Controller, served func(schema.GroupVersionKind, func() error) error,
) error {
	for _, kind := range c.kinds {
		if f, ok := kind.(Forwarder); !ok || !f.Forwards() {
			continue
		}
		if err := served(kind.GroupVersionKind(), func() error {
			return built.Watch(source.TypedKind(mgr.GetCache(), unstructuredOf(kind), handler.TypedEnqueueRequestsFromMapFunc(c.changedHere),
				predicate.TypedGenerationChangedPredicate[*unstructured.Unstructured]{}))
		}); err != nil {
			return err
		}
	}
	return nil
}

// changedHere are the Workloads of a job whose spec has changed here. The cluster that runs it is to be looked at again.
func (c *copies) changedHere(ctx context.Context, job *unstructured.Unstructured) (out []reconcile.Request) {
	all, err := parts(ctx, c.client, job.GetNamespace(), job.GetUID())
	if err != nil {
		return nil // the caches are being filled, and each Workload comes by itself
	}
	for i := range all {
		if worker := c.workers.connection(ptr.Deref(all[i].Status.ClusterName, "")); worker != nil {
			worker.shown.forget(job.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(job))
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return out
}

// forward gives the job there the fields that may change here while it runs.
func (c *copies) forward(ctx context.Context, f *following, ours, theirs *unstructured.Unstructured) error {
	forwarder, ok := f.kind.(Forwarder)
	if !ok || !forwarder.Forwards() || ours.GetUID() != f.uid {
		return nil
	}
	before := theirs.DeepCopy()
	changed := theirs.DeepCopy()
	if !forwarder.Forward(ours, changed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := f.worker.client.Patch(ctx, changed, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("giving %s %s in another cluster what has changed of it here: %w", theirs.GetKind(), types.NamespacedName{
			Namespace: theirs.GetNamespace(), Name: theirs.GetName()}, err)
	}
	return nil
}
