package scheduler

import (
	"fmt"
	"maps"
	"strings"
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

// nameFor is how a message on one Workload names another: by its name within a namespace, else by its queue and its class, since a user
// that reads the one may not read the other. Without a reader the message is for all Workloads of a class, of whatever namespaces.
func nameFor(reader, w *cache.Workload) string {
	if reader != nil && reader.Object.Namespace == w.Object.Namespace {
		return w.Object.Namespace + "/" + w.Object.Name
	}
	out := "a workload"
	if w.Queue != nil {
		out += " of ClusterQueue " + w.Queue.Object.Name
	}
	if class := w.Object.Spec.PriorityClassRef; class != nil {
		out += " of priority class " + class.Name
	}
	return out
}

// namesOf are those of victims for a reader, in their order; like ones are counted.
func namesOf(reader *cache.Workload, victims []victim) string {
	var names []string
	times := map[string]int{}
	for _, v := range victims {
		name := nameFor(reader, v.Workload)
		if times[name]++; times[name] == 1 {
			names = append(names, name)
		}
	}
	for i, name := range names {
		if n := times[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d times)", name, n)
		}
	}
	return strings.Join(names, ", ")
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
