package workload

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SamePriority reports whether priorities come from the same class. The queues follow the
// value of a WorkloadPriorityClass, also for Workloads that others have created.
func SamePriority(a, b *kueue.WorkloadSpec) bool {
	if !equality.Semantic.DeepEqual(a.PriorityClassRef, b.PriorityClassRef) {
		return false
	}
	ref := a.PriorityClassRef
	return ref != nil && ref.Kind == kueue.WorkloadPriorityClassKind || equality.Semantic.DeepEqual(a.Priority, b.Priority)
}

// CopyPriority gives a spec the priority of another, with its class.
func CopyPriority(to, from *kueue.WorkloadSpec) {
	to.Priority, to.PriorityClassRef = from.Priority, from.PriorityClassRef
}

// PriorityPatch is a merge patch that gives a Workload a priority, whatever else is written of it: only its UID has to be the same.
func PriorityPatch(w *kueue.Workload, priority int32) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"priority":%d}}`, w.UID, priority)
}

// SameClassKind reports whether the API lets a Workload with quota go from one class to the
// other: a PriorityClass is for good, a WorkloadPriorityClass is not.
func SameClassKind(a, b *kueue.PriorityClassRef) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Group == b.Group && a.Kind == b.Kind && (a.Kind == kueue.WorkloadPriorityClassKind || a.Name == b.Name)
}
