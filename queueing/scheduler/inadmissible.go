package scheduler

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

func (d *treeIterator) blockedByHead(q *cache.ClusterQueue) *inadmissible {
	why := "is StrictFIFO"
	if backfills(q.Object) {
		why = "backfills"
	}
	return newInadmissible(kueue.WorkloadQuotaReservedReasonWaitingForQuota, fmt.Sprintf(
		"ClusterQueue %s %s, and a workload ahead of this one does not fit yet", q.Object.Name, why))
}

// markInadmissible emits the verdict on the head and removes it, in StrictFIFO together with all Workloads behind it.
func (d *treeIterator) markInadmissible(l *queueIterator, r *inadmissible) {
	w := l.pending[0]
	l.pop()
	if r.Reason == workload.ReasonWaitingForCapacity {
		l.queue.WaitsForCapacity = true
	}
	d.verdicts = d.s.appendWaiting(d.verdicts, w, r)
	if !isStrict(l.queue) && !l.blocked {
		return
	}
	// A head that was evaluated out of order, because its victims were evicted, does not block those before it.
	var ahead []*cache.Workload
	why := d.blockedByHead(l.queue)
	for _, other := range l.remaining() {
		if l.localQueues == nil && cache.Compare(other, w) < 0 {
			ahead = append(ahead, other)
		} else {
			d.verdicts = d.s.appendWaiting(d.verdicts, other, why)
		}
	}
	l.pending, l.localQueues = ahead, nil
}

// equivalenceClass is called for every pending Workload whenever quota is released. For most it does not read the
// object.
func (s *Cycle) equivalenceClass(q *cache.ClusterQueue, w *cache.Workload) cache.EquivalenceClass {
	out := cache.EquivalenceClass{Shape: w.Shape, Priority: w.Priority, Terms: s.checks.LikeTerms(q, w)}
	if s.capacity != nil && len(s.capacity.Budgets) > 0 {
		out.Tenant = w.Tenant()
	}
	if w.Unobtained.Lasts(s.now) {
		out.Unobtained = fmt.Sprint(w.Unobtained.Flavors)
	}
	for _, r := range s.cache.Requests.ProvisionFirst(w) {
		out.EarlyRequest = r.UID
	}
	if w.Plain {
		return out
	}
	out.FlavorOffset = s.flavorOffset(q, w)
	if old := s.cache.ReplacedBy(q, w); old != nil {
		out.Replaces = old.Object.UID
	}
	for _, r := range w.Object.Status.ReclaimablePods {
		out.Finished += r.Count
	}
	return out
}

// appendWaiting appends the verdict that a Workload waits, unless its condition already says so.
func (s *Cycle) appendWaiting(out []lifecycle.Verdict, w *cache.Workload, r *inadmissible) []lifecycle.Verdict {
	s.cache.Wake(w, r.Until)
	v := r.verdict
	if v == nil || v.Action == lifecycle.Wait {
		v = s.rules.Wait(w, r.Reason, r.Message)
	}
	switch {
	case w.Busy:
	case r.verdict == nil:
		v = s.rules.DeleteStale(w, v)
	case v == nil:
		v = r.verdict
	case v != r.verdict:
		v.Create, v.Delete = r.verdict.Create, r.verdict.Delete
	}
	if v != nil && (v.Acts() || v.Status != nil) {
		out = s.emit(out, v)
	}
	return out
}
