package lifecycle

import (
	"fmt"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// ReasonPriorityChanged is the reason of the verdict that updates a Workload to the priority of its class.
const ReasonPriorityChanged = "PriorityChanged"

// Prioritize updates a Workload to the priority of its class. Nothing waits for the write: until then the Workload is
// evaluated with its old priority and keeps its position.
func (s Rules) Prioritize(w *cache.Workload) *Verdict {
	if !w.PriorityUnchecked || w.SettingPriority {
		return nil
	}
	class := s.cache.Classes[cache.ClassOf(w.Object)]
	if class == nil || workload.IsFinished(w.Object) || !w.Object.DeletionTimestamp.IsZero() || workload.Priority(w.Object) == class.Value {
		w.PriorityUnchecked = false
		return nil
	}
	w.SettingPriority = true
	return &Verdict{Workload: w, Action: Prioritize, Priority: class.Value, Reason: ReasonPriorityChanged,
		Message: fmt.Sprintf("WorkloadPriorityClass %s has the value %d", class.Name, class.Value)}
}
