package controller

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
)

// Kind is one of jobs that may run in other clusters.
type Kind interface {
	GroupVersionKind() schema.GroupVersionKind
	// IsSuspended reports whether a job is kept from creating pods; Suspend keeps it.
	IsSuspended(job client.Object) bool
	Suspend(job client.Object)
	// ManagedBy names the controller of a job; empty is that of the kind.
	ManagedBy(job client.Object) string
	// Delegate makes of a job what is to be created in another cluster, for the controller of the kind there.
	Delegate(job client.Object)
}

// Lasting is a Kind part of whose status the API server does not allow to be taken back.
type Lasting interface {
	Kind
	// StatusAfter is the status that a job can have next: it may show that of an earlier run.
	StatusAfter(job *unstructured.Unstructured, next map[string]any) map[string]any
}

// Held is a Kind whose jobs stay held here while they run elsewhere: none of them starts, and no controller but their own looks after
// them.
type Held interface {
	Kind
	// Shown is the status that a job has here while it has another in a worker; there is nil where it has none. It is nil where the
	// controller of the kind has it be its own.
	Shown(here, there *unstructured.Unstructured) (status any)
	// IsOver reports whether a job has run, as far as it is shown here.
	IsOver(here *unstructured.Unstructured) bool
	// IsGroup reports whether a job of the kind makes pods that start together.
	IsGroup() bool
}

// Shared is a Held kind of which one object may have several Workloads, each for a part of it.
type Shared interface {
	Held
	IsShared() bool
}

func isShared(kind Kind) bool {
	k, ok := kind.(Shared)
	return ok && k.IsShared()
}

// jobsOf are what a Workload is for: the object that controls it, or the pods that own it together.
func jobsOf(w *kueue.Workload) []metav1.OwnerReference {
	if owner := metav1.GetControllerOf(w); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return w.OwnerReferences
}

func kindOf(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

func unstructuredOf(kind Kind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.GroupVersionKind())
	return o
}

// typed is the object as the methods of its kind take it.
func typed(scheme *runtime.Scheme, o *unstructured.Unstructured) (client.Object, error) {
	if !scheme.Recognizes(o.GroupVersionKind()) {
		return o, nil
	}
	out, err := scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return out.(client.Object), runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// mark records on an object for a worker of which Workload it is a copy.
func (s self) mark(o client.Object, of *kueue.Workload) {
	labels, annotations := dispatch.Kept(o.GetLabels()), dispatch.Kept(o.GetAnnotations())
	labels[kueue.MultiKueueOriginLabel] = s.origin
	annotations[dispatch.OriginAnnotation], annotations[dispatch.ManagerAnnotation] = string(of.UID), s.id
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// isMarked reports whether an object has the marks by which the manager watches it and knows it.
func (s self) isMarked(o client.Object) bool {
	return o.GetLabels()[kueue.MultiKueueOriginLabel] == s.origin && o.GetAnnotations()[dispatch.ManagerAnnotation] == s.id
}

// copyFor is the copy to make of a Workload, with the gate on it, and the fence if it is to have one.
func (s self) copyFor(w *kueue.Workload, fence string) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: w.Labels, Annotations: w.Annotations}}
	w.Spec.DeepCopyInto(&out.Spec)
	out.Spec.PriorityClassRef = nil // the worker's class of that name may have another value
	s.mark(out, w)
	out.Annotations[workload.GatedByAnnotation] = dispatch.Gate
	if fence != "" {
		out.Annotations[dispatch.FenceAnnotation] = fence
	}
	if owner := metav1.GetControllerOf(w); owner != nil && s.groups[kindOf(owner)] {
		out.Annotations[workload.GroupAnnotation] = "true" // a stock Kueue has no pods run by others
	}
	out.Annotations[workload.QueuedSinceAnnotation] = workload.WaitsSince(w).UTC().Format(time.RFC3339)
	return out
}

// ungated is the copy of a Workload as it is once it may take quota.
func (s self) ungated(w *kueue.Workload) *kueue.Workload {
	out := s.copyFor(w, "")
	out.UID = w.UID
	delete(out.Annotations, workload.GatedByAnnotation)
	return out
}

// jobFor is the job to make of one here in a cluster, where it runs by the copy of its Workload.
func (s self) jobFor(
	scheme *runtime.Scheme, kind Kind, job *unstructured.Unstructured, w *kueue.Workload,
) (*unstructured.Unstructured, error) {
	o, err := typed(scheme, job.DeepCopy())
	if err != nil {
		return nil, err
	}
	kind.Delegate(o)
	kind.Suspend(o)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: object}
	delete(out.Object, "status")
	out.Object["metadata"] = map[string]any{}
	out.SetGroupVersionKind(kind.GroupVersionKind())
	out.SetNamespace(job.GetNamespace())
	out.SetName(job.GetName())
	out.SetLabels(job.GetLabels())
	out.SetAnnotations(job.GetAnnotations())
	s.mark(out, w)
	annotations, labels := out.GetAnnotations(), out.GetLabels()
	annotations[kueue.MultiKueueOriginUIDAnnotation] = string(job.GetUID()) // by which the Workloads of some kinds are named
	if !isShared(kind) {
		annotations[workload.PrebuiltLabel] = w.Name
		if len(w.Name) <= validation.LabelValueMaxLength {
			labels[workload.PrebuiltLabel] = w.Name
		}
	}
	out.SetAnnotations(annotations)
	out.SetLabels(labels)
	return out, nil
}

// prebuiltOf is the Workload that a job in a worker runs by.
func prebuiltOf(o client.Object) string {
	return cmp.Or(o.GetAnnotations()[workload.PrebuiltLabel], o.GetLabels()[workload.PrebuiltLabel])
}
