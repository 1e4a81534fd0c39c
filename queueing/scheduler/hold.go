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

// gated holds back a Workload that could have quota only by preemption, as long as
// one of its gates is closed.
func (s *Cycle) gated(w *cache.Workload, p *Proposal) *blocker {
	gate := workload.ClosedGate(w.Object)
	if len(p.victims) == 0 || gate == "" {
		return nil
	}
	return &blocker{reason: kueue.WorkloadAdmissionGated, message: "Workload requires preemption, but it's gated by preemptionGate " + gate +
		"; it is admitted when the gate is open or quota is free"}
}

// blockedBy says what keeps a Workload from the quota that it could have; nil is
// nothing.
func (s *Cycle) blockedBy(w *cache.Workload, p *Proposal) *blocker {
	for _, rule := range []func(*cache.Workload, *Proposal) *blocker{s.replacedIsChanging, s.gated, s.overNamespaceQuota, s.awaitsPods} {
		if h := rule(w, p); h != nil {
			return h
		}
	}
	return nil
}

// block answers the first of a line. One that steps aside leaves the queue until
// it is looked at again.
func (d *drainer) block(l *line, h *blocker) {
	w := l.rest[0]
	r := refusalOf(h.reason, h.message)
	r.Until = h.until
	if l.first.ahead {
		// It still is to have just that, so what it has asked for is kept.
		r.next = &lifecycle.Verdict{Workload: w, Action: lifecycle.Wait}
	}
	if !h.stepsAside {
		d.refuse(l, r)
		return
	}
	l.next()
	l.queue.Drop(w)
	d.out = d.s.appendWaiting(d.out, w, r)
}

// awaitsPods holds back all Workloads as long as pods of a Workload with quota are not
// ready, where admission is blocked by that.
func (s *Cycle) awaitsPods(*cache.Workload, *Proposal) *blocker {
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
