package scheduler

import (
	"maps"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
)

// Proposal is how a Workload could have its quota.
type Proposal struct {
	admission *kueue.Admission
	Usage     quota.Amounts
	// distance is from how far quota is borrowed; 0 is not at all.
	distance int
	// placed is where its pods go, where flavors have a Topology.
	placed []cache.Placed
	// victims have to leave first; none where everything is free.
	victims []victim
	// replaces is the Workload slice whose place it takes; nil if there is none.
	replaces *cache.Workload
	// plan is the planner's answer; nil where it was not asked.
	plan *planner.Verdict
	// awaits: it fits on machines that others are about to give back.
	awaits bool
	// ahead: its machines are asked for before its victims leave.
	ahead bool
}

// blocker is why a Workload that could have its quota does not get it yet.
type blocker struct {
	reason, message string
	// until is when time alone may change it; zero is never.
	until time.Time
	// stepsAside: others need not wait behind it, not even in StrictFIFO.
	stepsAside bool
}

// victim is a Workload that is to leave, with the reason of its condition
// Preempted.
type victim struct {
	*cache.Workload
	reason string
}

// namesOf are those of victims, in their order.
func namesOf(victims []victim) []string {
	out := make([]string, len(victims))
	for i, v := range victims {
		out[i] = v.Object.Namespace + "/" + v.Object.Name
	}
	return out
}

// growth is what a proposal uses more than the slice that it replaces.
func (p *Proposal) growth() quota.Amounts {
	if p.replaces == nil {
		return p.Usage
	}
	out := maps.Clone(p.Usage)
	for fr, v := range p.replaces.Usage {
		out[fr] = max(0, out[fr]-v)
	}
	return out
}
