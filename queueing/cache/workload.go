package cache

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/preemption"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/workload"
)

// PodCounts returns the number of pods of each podSet, without reclaimable ones.
func PodCounts(w *Workload) []int32 {
	out := make([]int32, len(w.Object.Spec.PodSets))
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		out[i] = max(0, ps.Count-workload.Reclaimable(w.Object, ps.Name))
	}
	return out
}

// Unobtained are flavors whose machines could not be obtained in the last attempt. They are not tried again until then,
// whatever the capacity snapshot says, because it may be older.
type Unobtained struct {
	Flavors []kueue.ResourceFlavorReference
	Until   time.Time
}

// Lasts reports whether it is too early for another attempt.
func (u *Unobtained) Lasts(now time.Time) bool { return now.Before(u.Until) }

// requests returns the sum of the requests of all pods, without a flavor.
func (w *Workload) requests() quota.Amounts {
	out := quota.Amounts{}
	for i, n := range PodCounts(w) {
		for name, v := range w.Pod[i] {
			fr := quota.FlavorResource{Resource: name}
			out[fr] = nodegroups.Plus(out[fr], nodegroups.Times(v, int64(n)))
		}
	}
	return out
}

// Tenant returns the tenant that pays for the Workload's machines.
func (w *Workload) Tenant() state.Tenant {
	return state.Tenant{Namespace: w.Object.Namespace, Queue: string(w.Object.Spec.QueueName)}
}

// candidate returns what package preemption needs of a Workload with quota. Fields that change with time are set on
// use.
func candidate(w *Workload) preemption.Workload {
	return preemption.Workload{
		UID: w.Object.UID, Queue: w.Queue.Node, Priority: w.Priority, Reserved: workload.ReservedSince(w.Object), Queued: w.Since,
		Usage: w.Usage, Evicted: workload.IsEvicted(w.Object),
	}
}

// Workload is a Workload object with what is derived from it and its state in the Cache.
type Workload struct {
	// Object is shared; do not modify it.
	Object *kueue.Workload
	// Pod is the counted request of one pod of each podSet.
	Pod []nodegroups.Resources
	// Requests is the full request of one pod of each podSet.
	Requests []nodegroups.Resources
	// OnNode is what one pod of each podSet takes on its node: Requests, and the devices of its claims by the names that nodes count
	// them by.
	OnNode []nodegroups.Resources
	// refusedClaims are the reasons why claimed devices cannot be counted.
	refusedClaims []string
	// sourced: sources of resources.deviceClassMappings count its devices.
	sourced bool
	// Keys are the node labels that its pods select.
	Keys []string
	// Usage is its reserved quota; empty without quota.
	Usage quota.Amounts
	// TopologyUsage is the usage of its topology assignments.
	TopologyUsage []placement.Usage

	// Candidate is the Workload as package preemption sees it while it has quota.
	Candidate preemption.Workload
	// Shape is a hash of the podSets.
	Shape uint64
	// Plain: the result of its evaluation depends only on its podSets, its queue and the terms of its machines.
	Plain bool
	// HasTerms: annotations of its job set the terms of its machines.
	HasTerms bool
	// Priority and Since order it in its queue.
	Priority int32
	Since    time.Time

	// Phase, Queue and Local are where the Cache counts it.
	Phase    phase
	Queue    *ClusterQueue
	Local    *LocalQueue
	admitted bool
	// unadmitted is what it counts as while it is not admitted, of one that is not being deleted; empty otherwise.
	unadmitted Unadmitted
	// running is the usage of its job: its own, or that of the slice that it replaces, once that is admitted; nil
	// otherwise.
	running quota.Amounts
	// refusedBy is the result that it waits with; nil if it has to be evaluated, or no result lasts.
	refusedBy *Inadmissible
	// Busy: a verdict on it is being applied.
	Busy bool
	// EvaluatedIn is the cycle that evaluated it last; zero if it is new or has changed since.
	EvaluatedIn int
	// PriorityUnchecked: its priority may differ from that of its WorkloadPriorityClass. SettingPriority: a verdict on
	// that is being applied, independently of all others.
	PriorityUnchecked, SettingPriority bool
	// ProvisionFirst is its object with the quota that it will reserve after its machines, while their
	// ProvisioningRequest is being created.
	ProvisionFirst *kueue.Workload
	Unobtained     Unobtained
	// Assumed is the queue in which a verdict assumed quota, before the object shows it.
	Assumed              *ClusterQueue
	AssumedUsage         quota.Amounts
	AssumedTopologyUsage []placement.Usage
	// Replaces is the Workload that this slice has replaced; empty if there is none.
	Replaces types.UID
	// chargedTo is the queue whose usage includes the Workload, and charged the amount. unobserved: its object does
	// not show that yet.
	chargedTo  *ClusterQueue
	charged    quota.Amounts
	unobserved bool
	// Targeted: in this cycle a Workload waits for its quota, whether it is already evicted or not.
	Targeted bool
	// AwaitsVictims: its victims were evicted after the last evaluation. It then comes before all others once.
	// Otherwise those would take the released quota, and more victims would be evicted for it.
	AwaitsVictims bool
	// QuotaRestored: pods of it that had ended run again, so their quota counts again, whether it was free or not.
	QuotaRestored bool
	// wakeAt is when it is evaluated again; zero if only events can cause that.
	wakeAt time.Time
	// Reason and Message are why it waits, as of the last verdict.
	Reason, Message string
}

// currentTopologyUsage returns the topology usage of its object or, before that shows any, the assumed one.
func (w *Workload) currentTopologyUsage() []placement.Usage {
	switch {
	case w.Phase == Reserving:
		return w.TopologyUsage
	case w.Assumed != nil:
		return w.AssumedTopologyUsage
	}
	return nil
}

// WithObject returns a copy with another object, which is not part of the Cache.
func (w *Workload) WithObject(object *kueue.Workload) *Workload {
	view := *w
	view.Object, view.Plain = object, isPlain(object)
	return &view
}

// phase is where a Workload counts.
type phase int

const (
	untracked phase = iota
	// Pending: it is active and has no quota.
	Pending
	// Reserving: it has quota.
	Reserving
	// finished: it is finished and not deleted yet.
	finished
)

// isPlain reports whether the object adds nothing to the equivalence class of its podSets.
func isPlain(w *kueue.Workload) bool {
	return w.Status.RequeueState == nil && len(w.Status.ReclaimablePods) == 0 && workload.ReplacedKey(w).Name == ""
}

func shapeOf(podSets []kueue.PodSet, pods []nodegroups.Resources) uint64 {
	h := fnv.New64a()
	// Encoding API types cannot fail, and a wrong hash only costs time.
	_ = json.NewEncoder(h).Encode(podSets)
	_ = json.NewEncoder(h).Encode(pods)
	return h.Sum64()
}
