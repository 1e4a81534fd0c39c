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

// Forwarder is a Kind with fields that may change while the job runs in another cluster, and that take effect there.
type Forwarder interface {
	Kind
	// Forwards reports whether the kind has such fields.
	Forwards() bool
	// Forward copies the fields from the job here to the job there. It reports whether any has changed.
	Forward(here, there *unstructured.Unstructured) (changed bool)
}

// watchForwarded watches the jobs of such kinds, because a change of these fields does not change the Workload.
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

// changedHere returns the Workloads of a job whose spec has changed, so that its remote job is checked again.
func (c *copies) changedHere(ctx context.Context, job *unstructured.Unstructured) (out []reconcile.Request) {
	all, err := parts(ctx, c.client, job.GetNamespace(), job.GetUID())
	if err != nil {
		return nil // the initial list enqueues each Workload
	}
	for i := range all {
		if worker := c.workers.connection(ptr.Deref(all[i].Status.ClusterName, "")); worker != nil {
			worker.shown.forget(job.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(job))
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return out
}

// forward copies the fields that may change while the job runs.
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
