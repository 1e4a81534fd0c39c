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

// Assignment is how a Workload can get its quota.
type Assignment struct {
	admission *kueue.Admission
	Usage     quota.Amounts
	// borrowingLevel is how high in the tree quota is borrowed; 0 is not at all.
	borrowingLevel int
	// placed are the topology assignments of the podSets whose flavor has a Topology.
	placed []cache.PodSetPlacement
	// victims must be evicted first; empty if everything is free.
	victims []victim
	// replaces is the Workload slice that it replaces; nil if there is none.
	replaces *cache.Workload
	// plan is the planner's verdict; nil if the planner was not called.
	plan *planner.Verdict
	// awaitsRelease: it fits on machines that are about to be released.
	awaitsRelease bool
	// provisionFirst: its machines are provisioned before its victims are evicted.
	provisionFirst bool
}

// blocker is why a Workload with an assignment has to wait.
type blocker struct {
	reason, message string
	// until is when time alone may unblock it; zero is never.
	until time.Time
	// letsOthersPass: others need not wait behind it, not even in StrictFIFO.
	letsOthersPass bool
}

// victim is a Workload to be evicted, with the reason of its condition Preempted.
type victim struct {
	*cache.Workload
	reason string
}

// nameFor names a Workload in a message for another one: by its name within one namespace, otherwise by its queue and
// priority class, because the reader may not have access to it. If reader is nil, the message is for all Workloads of
// an equivalence class, of any namespace.
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

// namesOf names the victims for a reader, in order; equal names are counted.
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

// addedUsage is the usage of the assignment less that of the slice that it replaces.
func (p *Assignment) addedUsage() quota.Amounts {
	if p.replaces == nil {
		return p.Usage
	}
	out := maps.Clone(p.Usage)
	for fr, v := range p.replaces.Usage {
		out[fr] = max(0, out[fr]-v)
	}
	return out
}
