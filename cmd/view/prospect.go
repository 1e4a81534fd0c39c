package view

import (
	"context"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/workload"
)

// mostWaitedFor is how many Workloads may be pending for the start of one more to be estimated, which takes some milliseconds then. A
// longer queue is the worse one in any case.
const mostWaitedFor = 30

// Prospects returns a function that reports what would become of a job in this cluster, after those that the cluster was given and does
// not show yet.
func (p *Picture) Prospects() func(given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect {
	history, waiting := p.History()
	if waiting > mostWaitedFor {
		history = nil
	}
	// It is kept for a while, and needs nothing of how it was made.
	kept := &Picture{Now: p.Now, Queues: p.Queues, Workloads: p.Workloads}
	return func(given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect {
		return kept.prospect(history, given, job)
	}
}

// prospect estimates no start without a history.
func (p *Picture) prospect(history *forecast.History, given []*kueue.Workload, job *kueue.Workload) *dispatch.Prospect {
	if job = p.known(job); workload.HasQuota(job) {
		return &dispatch.Prospect{Outlook: dispatch.Fits}
	}
	submissions := append(p.pending(given, job), job)
	outcomes := forecast.SimulateAll(p.Queues, submissions, p.Now)
	o := &outcomes[len(outcomes)-1]
	if !o.Starts {
		out := &dispatch.Prospect{Outlook: dispatch.Waits, Message: o.Message}
		if history != nil {
			estimates, _ := forecast.Arrivals(p.Queues, history, submissions, p.Now, p.Now, forecast.Horizon, until(context.Background()))
			out.Start = estimates[len(estimates)-1].Start
		}
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

// pending are those of the Workloads given before the job that wait for quota here: the last of each name, since a cluster has one.
func (p *Picture) pending(given []*kueue.Workload, job *kueue.Workload) (out []*kueue.Workload) {
	for i, w := range given {
		same := func(o *kueue.Workload) bool { return o.Namespace == w.Namespace && o.Name == w.Name }
		if same(job) || slices.ContainsFunc(given[i+1:], same) {
			continue
		}
		if w = p.known(w); !workload.HasQuota(w) && !workload.IsFinished(w) {
			out = append(out, w)
		}
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
