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

// Kind is a kind of jobs that may run in other clusters.
type Kind interface {
	GroupVersionKind() schema.GroupVersionKind
	// IsSuspended reports whether a job may not create pods. Suspend suspends it.
	IsSuspended(job client.Object) bool
	Suspend(job client.Object)
	// ManagedBy returns the controller of a job. It is empty for the kind's own controller.
	ManagedBy(job client.Object) string
	// Delegate changes a job into the object to create in another cluster, where the kind's own controller reconciles it.
	Delegate(job client.Object)
}

// Lasting is a Kind whose API server rejects some changes of a status that was set before.
type Lasting interface {
	Kind
	// StatusAfter returns the status to write next for a job that may still show the status of an earlier run.
	StatusAfter(job *unstructured.Unstructured, next map[string]any) map[string]any
}

// Held is a Kind whose jobs stay suspended in the manager while they run in a worker. Only the kind's own controller reconciles them.
type Held interface {
	Kind
	// Shown returns the status to write to the job in the manager. there is the job in the worker, or nil if it has none. Shown returns
	// nil if the kind's controller writes the status itself.
	Shown(here, there *unstructured.Unstructured) (status any)
	// IsOver reports whether the status in the manager shows that the job has finished.
	IsOver(here *unstructured.Unstructured) bool
	// IsGroup reports whether pods of a job start together.
	IsGroup() bool
}

// Shared is a Held kind whose objects may have several Workloads, one for each part.
type Shared interface {
	Held
	IsShared() bool
}

func isShared(kind Kind) bool {
	k, ok := kind.(Shared)
	return ok && k.IsShared()
}

// jobsOf returns the owners of a Workload: the object that controls it, or the pods of a group.
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

// typed converts the object to the type that the methods of its kind take.
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

// mark labels and annotates an object in a worker as a copy that belongs to the Workload.
func (s self) mark(o client.Object, of *kueue.Workload) {
	labels, annotations := dispatch.Kept(o.GetLabels()), dispatch.Kept(o.GetAnnotations())
	labels[kueue.MultiKueueOriginLabel] = s.origin
	annotations[dispatch.OriginAnnotation], annotations[dispatch.ManagerAnnotation] = string(of.UID), s.id
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// isMarked reports whether an object has the label and the annotation of the manager's copies.
func (s self) isMarked(o client.Object) bool {
	return o.GetLabels()[kueue.MultiKueueOriginLabel] == s.origin && o.GetAnnotations()[dispatch.ManagerAnnotation] == s.id
}

// copyFor returns the copy to create for a Workload. It has the gate, and the fence unless that is empty.
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

// ungated returns the copy of a Workload without its gate.
func (s self) ungated(w *kueue.Workload) *kueue.Workload {
	out := s.copyFor(w, "")
	out.UID = w.UID
	delete(out.Annotations, workload.GatedByAnnotation)
	return out
}

// jobFor returns the job to create in a worker. The copy of its Workload admits it there.
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
	annotations[kueue.MultiKueueOriginUIDAnnotation] = string(job.GetUID()) // some kinds name their Workloads by it
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

// prebuiltOf returns the name of the prebuilt Workload of a job in a worker.
func prebuiltOf(o client.Object) string {
	return cmp.Or(o.GetAnnotations()[workload.PrebuiltLabel], o.GetLabels()[workload.PrebuiltLabel])
}
