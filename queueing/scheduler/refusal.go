package scheduler

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

func (d *drainer) blocked(q *cache.ClusterQueue) *refusal {
	why := "is StrictFIFO"
	if backfills(q.Object) {
		why = "backfills"
	}
	return refusalOf(kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
		"ClusterQueue %s %s, and a workload ahead of this one does not fit yet", q.Object.Name, why))
}

// refuse answers the first of a line, and in StrictFIFO all behind it.
func (d *drainer) refuse(l *line, r *refusal) {
	w := l.rest[0]
	l.next()
	if r.Reason == workload.ReasonWaitingForCapacity {
		l.queue.WantsMachines = true
	}
	d.out = d.s.appendWaiting(d.out, w, r)
	if strict := l.queue.Object.Spec.QueueingStrategy == kueue.StrictFIFO && !backfills(l.queue.Object); !strict && !l.blocked {
		return
	}
	// One that was judged out of its turn, since victims were to leave for it, blocks none
	// of those before it.
	var ahead []*cache.Workload
	why := d.blocked(l.queue)
	for _, other := range l.all() {
		if l.locals == nil && cache.Compare(other, w) < 0 {
			ahead = append(ahead, other)
		} else {
			d.out = d.s.appendWaiting(d.out, other, why)
		}
	}
	l.rest, l.locals = ahead, nil
}

// equivalenceClass is asked of all Workloads that wait, as often as quota comes back: of most it looks at no object.
func (s *Cycle) equivalenceClass(q *cache.ClusterQueue, w *cache.Workload) cache.EquivalenceClass {
	out := cache.EquivalenceClass{Shape: w.Shape, Terms: s.checks.LikeTerms(q, w)}
	if s.capacity != nil && len(s.capacity.Budgets) > 0 {
		out.Tenant = w.Tenant()
	}
	if w.Unobtained.Lasts(s.now) {
		out.Refused = fmt.Sprint(w.Unobtained.Flavors)
	}
	for _, r := range s.cache.Requests.AheadOfQuota(w) {
		out.Asked = r.UID
	}
	if w.Plain {
		return out
	}
	out.Skip = s.flavorOffset(q, w)
	if old := s.cache.ReplacedBy(q, w); old != nil {
		out.Replaces = old.Object.UID
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
