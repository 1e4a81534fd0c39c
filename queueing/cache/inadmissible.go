package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
)

// Inadmissible is why a Workload cannot have quota now, which counts for all of its
// equivalence class that are not before it in the queue.
type Inadmissible struct {
	Reason, Message string
	// Until is when time alone may change it; zero is never.
	Until time.Time
	// priority and since are those of the Workload that was judged. It does not speak
	// for those before it, whose victims may be more.
	priority int32
	since    time.Time
}

// spareAnswers is how many answers there may be beside two for each Workload that waits. The others are to
// Workloads that are gone.
const spareAnswers = 100

// NoteInadmissible keeps the answer to a Workload for the others of its class, until quota
// comes back.
func (q *ClusterQueue) NoteInadmissible(class EquivalenceClass, w *Workload, answer Inadmissible) {
	if len(q.Inadmissible) >= 2*q.Pending.Len()+spareAnswers {
		clear(q.Inadmissible)
	}
	answer.priority, answer.since = w.Priority, w.Since
	q.Inadmissible[class] = &answer
}

// Holds reports whether it is the answer to a Workload, too.
func (r *Inadmissible) Holds(w *Workload, now time.Time) bool {
	return r != nil && r.priority == w.Priority && !w.Since.Before(r.since) && (r.Until.IsZero() || now.Before(r.Until))
}

// EquivalenceClass is the same for Workloads of a queue that get the same answer in one
// cycle.
type EquivalenceClass struct {
	Shape uint64
	// Tenant where there are budgets, which namespaces and their queues have apart.
	Tenant state.Tenant
	// Terms are those on which it would get machines.
	Terms string
	// Skip and refused are where the search for machines stands.
	Skip    int
	Refused string
	// Finished pods leave fewer to be run.
	Finished int32
	// Replaces is the Workload slice whose place is taken.
	Replaces types.UID
	// Asked is the request that was made ahead of quota, whose machines no other Workload can
	// have.
	Asked types.UID
}
