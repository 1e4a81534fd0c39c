package workload

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A job that grows while it runs gets a second Workload, a slice of the new size that replaces the first. It is
// evaluated as if the first were gone, on the same flavors. With its quota it takes over the pods: the first no longer
// counts, and is Finished once the second is admitted. A job that shrinks keeps its Workload, and its quota shrinks
// with it.
//
// If its queue has admission checks, the job keeps running with the first slice until those of the second are Ready,
// and capacity is requested only for the additional pods:
//
//	first:  admitted ────────────────▶ no longer counts ───▶ Finished, WorkloadSliceReplaced
//	second: pending ─quota assumed─▶ reserved ──▶ admitted
//	           ◀── capacity not obtained ──┘          the requests of both are kept until the job stops
const (
	// ReplacementAnnotation names the Workload that a slice replaces, with or without its namespace.
	ReplacementAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// ElasticAnnotation, "true" on a Workload, means that its job may shrink and grow.
	ElasticAnnotation = "kueue.x-k8s.io/elastic-job"
)

// IsReplaced reports whether the Workload is finished because another slice of its job took its place. Its job goes on.
func IsReplaced(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == kueue.WorkloadSliceReplaced
}

// ReplacedKey returns the key of the Workload that a slice replaces; without a name if it replaces none. It must be in
// the same namespace.
func ReplacedKey(w *kueue.Workload) types.NamespacedName {
	name := w.Annotations[ReplacementAnnotation]
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		if namespace != w.Namespace {
			return types.NamespacedName{}
		}
		name = rest
	}
	if name == "" || name == w.Name {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: w.Namespace, Name: name}
}

func KeyOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

func SameJob(a, b *kueue.Workload) bool {
	x, y := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return a.Namespace == b.Namespace && x != nil && y != nil && x.UID == y.UID && x.Kind == y.Kind && x.Name == y.Name
}

func IsElastic(w *kueue.Workload) bool { return w.Annotations[ElasticAnnotation] == "true" }
