package workload

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SamePriority reports whether priorities come from the same class. A change of a WorkloadPriorityClass's value is
// applied by queueing, also for Workloads that other clients created.
func SamePriority(a, b *kueue.WorkloadSpec) bool {
	if !equality.Semantic.DeepEqual(a.PriorityClassRef, b.PriorityClassRef) {
		return false
	}
	ref := a.PriorityClassRef
	return ref != nil && ref.Kind == kueue.WorkloadPriorityClassKind || equality.Semantic.DeepEqual(a.Priority, b.Priority)
}

// CopyPriority copies the priority and its class.
func CopyPriority(to, from *kueue.WorkloadSpec) {
	to.Priority, to.PriorityClassRef = from.Priority, from.PriorityClassRef
}

// PriorityPatch returns a merge patch that sets the priority of a Workload. It depends on nothing but the UID, so it
// does not conflict with other writes.
func PriorityPatch(w *kueue.Workload, priority int32) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"priority":%d}}`, w.UID, priority)
}

// SameClassKind reports whether the API allows a Workload with quota to change from one class to the other: a
// PriorityClass is immutable, a WorkloadPriorityClass is not.
func SameClassKind(a, b *kueue.PriorityClassRef) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Group == b.Group && a.Kind == b.Kind && (a.Kind == kueue.WorkloadPriorityClassKind || a.Name == b.Name)
}
