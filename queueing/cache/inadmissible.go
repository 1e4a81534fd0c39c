package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
)

// Inadmissible is why a Workload cannot get quota now. It applies to all Workloads of its equivalence class that are
// not before it in the queue.
type Inadmissible struct {
	Reason, Message string
	// Until is when time alone may change it; zero is never.
	Until time.Time
	// priority and since are those of the evaluated Workload. Workloads before it may have more preemption candidates.
	priority int32
	since    time.Time
}

// spareInadmissible is how many results are kept beyond two for each pending Workload. Others belong to deleted
// Workloads.
const spareInadmissible = 100

// SetInadmissible stores the result of a Workload for others of its class, until quota is released.
func (q *ClusterQueue) SetInadmissible(class EquivalenceClass, w *Workload, answer Inadmissible) {
	if len(q.Inadmissible) >= 2*q.Pending.Len()+spareInadmissible {
		clear(q.Inadmissible)
	}
	answer.priority, answer.since = w.Priority, w.Since
	q.Inadmissible[class] = &answer
}

// Holds reports whether the result also applies to a Workload.
func (r *Inadmissible) Holds(w *Workload, now time.Time) bool {
	return r != nil && r.priority == w.Priority && !w.Since.Before(r.since) && (r.Until.IsZero() || now.Before(r.Until))
}

// EquivalenceClass is equal for Workloads of a queue whose evaluation in one cycle has the same result.
type EquivalenceClass struct {
	Shape uint64
	// Tenant is set if there are budgets, because they differ by namespace and queue.
	Tenant state.Tenant
	// Terms are the terms of its machines.
	Terms string
	// FlavorOffset and Unobtained are the flavors that the search for machines skips.
	FlavorOffset int
	Unobtained   string
	// Finished is the number of reclaimable pods, which are not started again.
	Finished int32
	// Replaces is the Workload slice that is replaced.
	Replaces types.UID
	// EarlyRequest is the request created before the quota was reserved; its machines are reserved for this Workload.
	EarlyRequest types.UID
}
