package queueing

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ReasonPriorityChanged is the reason of the verdict that gives a Workload the priority
// of its class.
const ReasonPriorityChanged = "PriorityChanged"

// setClass takes in a WorkloadPriorityClass. Another value of it goes to all Workloads
// that name it. A priority that a hand gives to a Workload stays until then, as in Kueue.
func (s *Cache) setClass(c *kueue.WorkloadPriorityClass) {
	have := s.classes[c.Name]
	s.classes[c.Name] = c
	if have != nil && have.Value == c.Value {
		return
	}
	for uid, w := range s.workloads {
		if classOf(w.Object) == c.Name {
			w.unpriced = true
			s.touch(uid)
		}
	}
}

// classOf is the WorkloadPriorityClass that a Workload names; empty for none.
func classOf(w *kueue.Workload) string {
	ref := w.Spec.PriorityClassRef
	if ref == nil || ref.Group != kueue.WorkloadPriorityClassGroup || ref.Kind != kueue.WorkloadPriorityClassKind {
		return ""
	}
	return ref.Name
}

// prioritize gives a Workload the priority of its class. Nothing else waits for that, so
// the Workload is judged with the priority that it has, and its place in its queue is
// kept, until the new one is written.
func (s Rules) prioritize(w *Workload) *Verdict {
	if !w.unpriced || w.pricing {
		return nil
	}
	class := s.classes[classOf(w.Object)]
	if class == nil || IsFinished(w.Object) || !w.Object.DeletionTimestamp.IsZero() || priority(w.Object) == class.Value {
		w.unpriced = false
		return nil
	}
	w.pricing = true
	return &Verdict{Workload: w, Action: Prioritize, Priority: class.Value, Reason: ReasonPriorityChanged,
		Message: fmt.Sprintf("WorkloadPriorityClass %s has the value %d", class.Name, class.Value)}
}

// Prioritized says that the write of a Prioritize verdict is over, whatever became of it.
// The Workload as it is now has been Set before.
func (s *Cache) Prioritized(uid types.UID) {
	if w := s.workloads[uid]; w != nil {
		w.pricing = false
		s.due[uid] = w
	}
}
