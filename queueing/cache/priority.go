package cache

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// setClass stores a WorkloadPriorityClass. A changed value is applied to all Workloads of the class. As in Kueue, a
// priority that a user set on a Workload stays until then.
func (s *Cache) setClass(c *kueue.WorkloadPriorityClass) {
	have := s.Classes[c.Name]
	s.Classes[c.Name] = c
	if have != nil && have.Value == c.Value {
		return
	}
	for uid, w := range s.Workloads {
		if ClassOf(w.Object) == c.Name {
			w.PriorityUnchecked = true
			s.MarkDue(uid)
		}
	}
}

// ClassOf returns the WorkloadPriorityClass of a Workload; empty if it has none.
func ClassOf(w *kueue.Workload) string {
	ref := w.Spec.PriorityClassRef
	if ref == nil || ref.Group != kueue.WorkloadPriorityClassGroup || ref.Kind != kueue.WorkloadPriorityClassKind {
		return ""
	}
	return ref.Name
}

// Prioritized records that the write of a Prioritize verdict is complete, whatever its outcome. Call Set with the
// current Workload before.
func (s *Cache) Prioritized(uid types.UID) {
	if w := s.Workloads[uid]; w != nil {
		w.SettingPriority = false
		s.Due[uid] = w
	}
}
