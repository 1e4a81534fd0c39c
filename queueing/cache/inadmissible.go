package cache

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/quota"
)

// Inadmissible is why a Workload cannot get quota now. It applies to all Workloads of its equivalence class that are
// not before it in the queue.
type Inadmissible struct {
	Reason, Message string
	// Until is when time alone may change it; zero is never.
	Until time.Time
	// QuotaOnly: only quota can change it, and it holds while each of the Shortages lasts.
	QuotaOnly bool
	Shortages []Shortage
	// since is that of the evaluated Workload. Workloads before it may have more preemption candidates.
	since time.Time
	// Unsure: quota was released since, so that it has to be seen whether the Shortages last.
	Unsure bool
	// waiting counts the Workloads of the queue that wait with this result. dropped: the queue keeps it no more.
	waiting int
	dropped bool
}

// Shortage is an amount that a ClusterQueue has to have free for a Workload.
type Shortage struct {
	quota.FlavorResource
	Amount int64
}

// spareInadmissible is how many results are kept beyond two for each pending Workload. Others belong to deleted
// Workloads.
const spareInadmissible = 100

// SetInadmissible stores the result of a Workload for others of its class, until quota is released.
func (q *ClusterQueue) SetInadmissible(class EquivalenceClass, w *Workload, answer Inadmissible) *Inadmissible {
	if len(q.Inadmissible) >= 2*q.Pending.Len()+spareInadmissible {
		q.dropInadmissible()
	}
	answer.since = w.Since
	q.shortages = nil
	if before := q.Inadmissible[class]; before != nil {
		// Those that wait with the result of a later Workload wait with this one, too.
		answer.waiting = before.waiting
		*before = answer
		return before
	}
	q.Inadmissible[class] = &answer
	return &answer
}

// Holds reports whether the result also applies to a Workload of the class.
func (r *Inadmissible) Holds(w *Workload, now time.Time) bool {
	return r != nil && !r.Unsure && !w.Since.Before(r.since) && (r.Until.IsZero() || now.Before(r.Until))
}

// Refuse records that a pending Workload waits with a result.
func (q *ClusterQueue) Refuse(w *Workload, r *Inadmissible) {
	w.unrefuse()
	w.refusedBy = r
	r.waiting++
}

func (w *Workload) unrefuse() {
	if w.refusedBy != nil {
		w.refusedBy.waiting--
		w.refusedBy = nil
	}
}

// dropInadmissible forgets all results.
func (q *ClusterQueue) dropInadmissible() {
	for _, r := range q.Inadmissible {
		r.dropped = true
	}
	clear(q.Inadmissible)
	q.shortages = nil
}

// WaitsForQuotaOnly reports whether Workloads wait, and each that was evaluated waits with a result that only quota can change.
func (q *ClusterQueue) WaitsForQuotaOnly() bool {
	n := len(q.Unevaluated)
	for _, r := range q.Inadmissible {
		if r.QuotaOnly {
			n += r.waiting
		}
	}
	return n > 0 && n == q.Pending.Len() && !q.AllUnevaluated
}

// LeastShortages returns the smallest amount of each flavor and resource that a Workload of the queue waits for, and the
// highest priority of all. While these last, all results of the queue hold, unless ok is false: some depend on more.
func (q *ClusterQueue) LeastShortages() (_ []Shortage, priority int32, ok bool) {
	if q.shortages == nil {
		least := quota.Amounts{}
		q.shortPriority, q.quotaOnly = math.MinInt32, true
		for class, r := range q.Inadmissible {
			q.shortPriority, q.quotaOnly = max(q.shortPriority, class.Priority), q.quotaOnly && r.QuotaOnly
			for _, x := range r.Shortages {
				if v, ok := least[x.FlavorResource]; !ok || x.Amount < v {
					least[x.FlavorResource] = x.Amount
				}
			}
		}
		q.shortages = make([]Shortage, 0, len(least))
		for _, fr := range least.Keys() {
			q.shortages = append(q.shortages, Shortage{fr, least[fr]})
		}
	}
	return q.shortages, q.shortPriority, q.quotaOnly
}

// RequeueUnless evaluates the Workloads again whose shortages do not last, in this cycle or later ones. It returns all that are to be
// evaluated, in order. A result that depends on more than quota is dropped.
func (q *ClusterQueue) RequeueUnless(last func(EquivalenceClass, *Inadmissible) bool, cycle int) (out []*Workload) {
	requeued := false
	for class, r := range q.Inadmissible {
		if !r.QuotaOnly {
			r.dropped, q.shortages = true, nil
			delete(q.Inadmissible, class)
			continue
		}
		r.Unsure = !last(class, r)
		requeued = requeued || r.Unsure && r.waiting > 0
	}
	if !requeued {
		return q.ToEvaluate(false)
	}
	q.releasedIn = cycle
	q.Pending.Ascend(func(w *Workload) bool {
		if r := w.refusedBy; r == nil || r.dropped || r.Unsure {
			out = append(out, w)
		}
		return true
	})
	return out
}

// EquivalenceClass is equal for Workloads of a queue whose evaluation in one cycle has the same result.
type EquivalenceClass struct {
	Shape uint64
	// Priority decides which Workloads are candidates for preemption.
	Priority int32
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
