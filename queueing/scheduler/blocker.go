package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// closedGate blocks a Workload that requires preemption while one of its preemption gates is closed.
func (s *Cycle) closedGate(w *cache.Workload, p *Assignment) *blocker {
	gate := workload.ClosedGate(w.Object)
	if len(p.victims) == 0 || gate == "" {
		return nil
	}
	return &blocker{reason: kueue.WorkloadAdmissionGated, message: "Workload requires preemption, but it's gated by preemptionGate " + gate +
		"; it is admitted when the gate is open or quota is free"}
}

// blockedBy returns what keeps a Workload from its assignment; nil if nothing does.
func (s *Cycle) blockedBy(w *cache.Workload, p *Assignment) *blocker {
	type rule = func(*cache.Workload, *Assignment) *blocker
	for _, rule := range []rule{s.replacedIsChanging, s.closedGate, s.overNamespaceQuota, s.awaitsPods} {
		if h := rule(w, p); h != nil {
			return h
		}
	}
	return nil
}

// markBlocked processes a blocked head. If others may pass it, it leaves the queue until it is evaluated again.
func (d *treeIterator) markBlocked(l *queueIterator, h *blocker) {
	w := l.pending[0]
	r := newInadmissible(h.reason, h.message)
	r.Until = h.until
	if l.assignment.provisionFirst {
		// The assignment stays the same, so its request is kept.
		r.verdict = &lifecycle.Verdict{Workload: w, Action: lifecycle.Wait}
	}
	if !h.letsOthersPass {
		d.markInadmissible(l, r)
		return
	}
	l.pop()
	l.queue.Drop(w)
	d.verdicts = d.s.appendWaiting(d.verdicts, w, r)
}

// awaitsPods blocks all Workloads while pods of an admitted Workload are not ready, if waitForPodsReady.blockAdmission
// is set.
func (s *Cycle) awaitsPods(*cache.Workload, *Assignment) *blocker {
	if !s.cache.BlocksAdmission() || len(s.cache.PodsNotReady) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Values(s.cache.PodsNotReady)), func(a, b *cache.Workload) int {
		return strings.Compare(string(a.Object.UID), string(b.Object.UID))
	})
	return &blocker{reason: kueue.WorkloadQuotaReservedReasonWaitingForPodsReady, message: fmt.Sprintf(
		"Waiting for all admitted workloads to be in PodsReady condition (waitForPodsReady.blockAdmission): %d are not, such as %s",
		len(s.cache.PodsNotReady), nameFor(nil, first))}
}
