package cache

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// setClass takes in a WorkloadPriorityClass. Another value of it goes to all Workloads
// that name it. A priority that a hand gives to a Workload stays until then, as in Kueue.
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

// ClassOf is the WorkloadPriorityClass that a Workload names; empty for none.
func ClassOf(w *kueue.Workload) string {
	ref := w.Spec.PriorityClassRef
	if ref == nil || ref.Group != kueue.WorkloadPriorityClassGroup || ref.Kind != kueue.WorkloadPriorityClassKind {
		return ""
	}
	return ref.Name
}

// Prioritized says that the write of a Prioritize verdict is over, whatever became of it.
// The Workload as it is now has been Set before.
func (s *Cache) Prioritized(uid types.UID) {
	if w := s.Workloads[uid]; w != nil {
		w.SettingPriority = false
		s.Due[uid] = w
	}
}
