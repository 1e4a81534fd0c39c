package scheduler

import (
	"fmt"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// refusal is the answer to a Workload that has to wait.
type refusal struct {
	cache.Inadmissible
	// next is what is done about the machines that it has asked for, or is to ask for,
	// ahead of quota; nil gives them up.
	next *lifecycle.Verdict
}

func refusalOf(reason, message string) *refusal {
	return &refusal{Inadmissible: cache.Inadmissible{Reason: reason, Message: message}}
}

func (s *Cycle) equivalenceClass(q *cache.ClusterQueue, w *cache.Workload) cache.EquivalenceClass {
	out := cache.EquivalenceClass{Shape: w.Shape, Skip: s.flavorOffset(q, w), Terms: s.checks.LikeTerms(q, w)}
	if s.capacity != nil && len(s.capacity.Budgets) > 0 {
		out.Tenant = w.Tenant()
	}
	if w.Unobtained.Lasts(s.now) {
		out.Refused = fmt.Sprint(w.Unobtained.Flavors)
	}
	if old := s.cache.ReplacedBy(q, w); old != nil {
		out.Replaces = old.Object.UID
	}
	for _, r := range s.cache.RequestsAheadOfQuota(w) {
		out.Asked = r.UID
	}
	for _, r := range w.Object.Status.ReclaimablePods {
		out.Finished += r.Count
	}
	return out
}

// appendWaiting adds the verdict that a Workload waits, unless it has been told just
// that.
func (s *Cycle) appendWaiting(out []lifecycle.Verdict, w *cache.Workload, r *refusal) []lifecycle.Verdict {
	s.cache.Wake(w, r.Until)
	v := r.next
	if v == nil || v.Action == lifecycle.Wait {
		v = s.rules.Wait(w, r.Reason, r.Message)
	}
	switch {
	case w.Busy:
	case r.next == nil:
		v = s.rules.DeleteStale(w, v)
	case v == nil:
		v = r.next
	case v != r.next:
		v.Create, v.Delete = r.next.Create, r.next.Delete
	}
	if v != nil && (v.Acts() || v.Status != nil) {
		out = s.emit(out, v)
	}
	return out
}
