package view

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/workload"
)

// mostWaitedFor is how many Workloads may be pending for the start of one more to be estimated, which takes some milliseconds then. A
// longer queue is the worse one in any case.
const mostWaitedFor = 30

// Prospect returns what would become of a job in this cluster, after those that it has been given and does not show yet.
func (p *Picture) Prospect(given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect {
	if workload.HasQuota(p.known(job)) {
		return &dispatch.Prospect{Outlook: dispatch.Fits}
	}
	var newcomers []*kueue.Workload
	for _, w := range append(given[:len(given):len(given)], job) {
		if w = p.known(w); !workload.HasQuota(w) {
			newcomers = append(newcomers, w)
		}
	}
	outcomes := forecast.SimulateAll(p.Queues, newcomers, p.Now)
	o := &outcomes[len(outcomes)-1]
	if !o.Starts {
		out := &dispatch.Prospect{Outlook: dispatch.Waits, Start: p.startOf(newcomers), Message: o.Message}
		if !out.Start.IsZero() && out.Start.Before(p.Now.Add(forecast.LaunchTime)) {
			out.Outlook = dispatch.Soon
		}
		return out
	}
	out := &dispatch.Prospect{Outlook: dispatch.Fits}
	if plan := o.Plan; plan != nil && plan.Outcome == planner.Launch {
		out.Outlook, out.MicroUSDPerHour, out.Unpriced, out.Chance = dispatch.Launches, plan.MicroUSDPerHour, len(plan.Unpriced) > 0, plan.Chance
	}
	switch {
	case len(o.Awaits) > 0:
		out.Outlook = dispatch.Awaits
	case len(o.Victims) > 0:
		out.Outlook = dispatch.Preempts
	}
	return out
}

// known is a Workload as the cluster has it, without the gate that its manager holds it by; the Workload itself if it has none of that
// name.
func (p *Picture) known(w *kueue.Workload) *kueue.Workload {
	has := p.WorkloadNamed(w.Namespace, w.Name)
	if has == nil {
		return w
	}
	has = has.DeepCopy()
	delete(has.Annotations, workload.GatedByAnnotation)
	return has
}

// startOf is when the last of the newcomers is expected to start; zero if that is not known.
func (p *Picture) startOf(newcomers []*kueue.Workload) time.Time {
	history, waiting := p.History()
	if waiting > mostWaitedFor {
		return time.Time{}
	}
	estimates := forecast.Arrivals(p.Queues, history, newcomers, p.Now, p.Now, forecast.Horizon)
	return estimates[len(estimates)-1].Start
}
