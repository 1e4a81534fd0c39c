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

// PodCounts is how many pods of each podSet are to run: all but those that will
// not run any more.
func PodCounts(w *Workload) []int32 {
	out := make([]int32, len(w.Object.Spec.PodSets))
	for i := range w.Object.Spec.PodSets {
		ps := &w.Object.Spec.PodSets[i]
		out[i] = max(0, ps.Count-workload.Reclaimable(w.Object, ps.Name))
	}
	return out
}

// Unobtained are flavors on which an attempt at machines has just failed. They are not
// tried again until then, whatever the advice is: advice may lag behind.
type Unobtained struct {
	Flavors []kueue.ResourceFlavorReference
	Until   time.Time
}

// Lasts reports whether it is too early for another attempt.
func (u *Unobtained) Lasts(now time.Time) bool { return now.Before(u.Until) }

// requests are what all pods of a Workload ask for, on whatever flavor.
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

// Tenant pays for the Workload's machines.
func (w *Workload) Tenant() state.Tenant {
	return state.Tenant{Namespace: w.Object.Namespace, Queue: string(w.Object.Spec.QueueName)}
}

// candidate is what preemption has to know of a Workload as long as it holds its
// quota; what changes with time is filled in where it is asked for.
func candidate(w *Workload) preemption.Workload {
	return preemption.Workload{
		UID: w.Object.UID, Queue: w.Queue.Node, Priority: w.Priority, Reserved: workload.ReservedSince(w.Object), Queued: w.Since,
		Usage: w.Usage, Evicted: workload.IsEvicted(w.Object),
	}
}

// Workload is a Workload object with what a cycle needs of it, worked out once,
// and its place in the State.
type Workload struct {
	// Object is shared and not to be changed.
	Object *kueue.Workload
	// Pod is what counts of one pod of each podSet, by the index of the podSet.
	Pod []nodegroups.Resources
	// Requests is what one pod of each podSet requests, whether it counts or not.
	Requests []nodegroups.Resources
	// refusedClaims lists the reasons why claimed devices cannot be counted.
	refusedClaims []string
	// Keys are the node labels that its pods select or depend on.
	Keys []string
	// Usage is the quota that the Workload has reserved; empty without one.
	Usage quota.Amounts
	// Uses are where its pods are by its admission, where flavors have a Topology.
	Uses []placement.Usage

	// Candidate is what preemption has to know of it while it holds quota.
	Candidate preemption.Workload
	// Shape is the same for Workloads whose podSets are the same.
	Shape uint64
	// Plain: nothing that its object says beside its podSets, its queue and the terms of its machines gives it an answer of its own.
	Plain bool
	// HasTerms: annotations of its job say on what terms it is to have machines.
	HasTerms bool
	// Priority and since are where it stands in its queue.
	Priority int32
	Since    time.Time

	// Place, queue and local are where the State counts it.
	Place    place
	Queue    *ClusterQueue
	Local    *LocalQueue
	admitted bool
	// running is what its job uses by it, or by the slice that it is to replace, once that is
	// admitted; else nil.
	running quota.Amounts
	// Busy: a verdict on it is being carried out.
	Busy bool
	// PriorityUnchecked: its priority may not be that of its WorkloadPriorityClass. pricing: a
	// verdict on that is being carried out, beside all others.
	PriorityUnchecked, SettingPriority bool
	// AheadOfQuota is the object as it would be with the quota ahead of which machines are
	// just being asked for.
	AheadOfQuota *kueue.Workload
	Unobtained   Unobtained
	// Assumed is the queue whose quota a verdict gave it, before the object shows it.
	Assumed      *ClusterQueue
	AssumedUsage quota.Amounts
	AssumedUses  []placement.Usage
	// Replaces is the Workload whose place this slice has taken; empty for others.
	Replaces types.UID
	// chargedTo is the queue in whose usage the Workload is counted, with what; unseen says
	// that its object does not show that yet.
	chargedTo  *ClusterQueue
	charged    quota.Amounts
	unobserved bool
	// Claimed: in this cycle a Workload of higher rank waits for its quota, whether it
	// leaves by now or not.
	Claimed bool
	// AwaitsVictims says that victims have been asked to leave for it, by the last judgement. It
	// comes before all others once: else they would have what the victims leave, and the
	// next ones were to leave for it.
	AwaitsVictims bool
	// TookBack: pods of it run again, and took back quota that their end had released, whether or not that was free.
	TookBack bool
	// wakeAt is when it is looked at again; zero if only events can do that.
	wakeAt time.Time
	// Reason and message are why it waits, as the last verdict said.
	Reason, Message string
}

// places are where its pods are: by its object or, before that shows any, by what a verdict gave it.
func (w *Workload) places() []placement.Usage {
	switch {
	case w.Place == Reserving:
		return w.Uses
	case w.Assumed != nil:
		return w.AssumedUses
	}
	return nil
}

// WithObject is the Workload as it would be with another object: a view, which the Cache does
// not know.
func (w *Workload) WithObject(object *kueue.Workload) *Workload {
	view := *w
	view.Object, view.Plain = object, isPlain(object)
	return &view
}

// place is where a Workload counts.
type place int

const (
	untracked place = iota
	// waiting: it is active and has no quota.
	Pending
	// holding: it has quota.
	Reserving
	// over: it is finished, and there until it is deleted.
	finished
)

// isPlain reports whether Workloads of the same podSets get the same answers, as far as the object tells.
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
