package preemption

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// Workload holds quota.
type Workload struct {
	// UID is unique; it ends every tie.
	UID types.UID
	// Queue is the ClusterQueue in whose usage it is counted.
	Queue    *quota.Node
	Priority int32
	// Reserved is when it got its quota, Queued where it stood in its queue before.
	Reserved, Queued time.Time
	// Usage is shared and not changed.
	Usage quota.Amounts
	// Cost is what is lost if the Workload goes, in a unit of the caller's, such as
	// pod-seconds. Zero is as good as nothing.
	Cost int64
	// Evicted reports whether it is being evicted, for whatever reason. It is then
	// always a candidate, costs nothing, and comes first.
	Evicted bool
	// Claimed reports whether another Workload preempts it or waits for it to go. It
	// is then no candidate.
	Claimed bool
	// LocalQueueUsage is what its LocalQueue has used lately, where the ClusterQueue
	// shares by that, else zero. In its own ClusterQueue the preemptor takes from the
	// LocalQueue that has used most.
	LocalQueueUsage float64
}

// Question is about one pending Workload, the preemptor.
type Question struct {
	// Queue is the ClusterQueue of the preemptor. Decide changes the tree around it
	// and restores it before it returns.
	Queue  *quota.Node
	Policy kueue.ClusterQueuePreemption
	// FairSharing is nil if fair sharing is off. No strategies mean both.
	FairSharing *kueueconfig.FairSharing

	Priority int32
	// Queued is the time by which the preemptor is ordered in its queue.
	Queued time.Time
	// Needs is the preemptor's whole usage.
	Needs quota.Amounts

	// Room is where the preemptor's pods have to go; nil if quota is all that it needs.
	Room Room

	// Running returns the Workloads that hold quota in a ClusterQueue, in any order. It
	// is called only for ClusterQueues that may have candidates. The slice is not changed.
	Running func(queue *quota.Node) []*Workload
}

// Room is a picture of the nodes, in which victims have to make room in the right place. Decide changes it and
// restores it before it returns.
type Room interface {
	// Remove looks at the nodes as if a Workload were gone, and PutBack undoes that.
	Remove(workload types.UID)
	PutBack(workload types.UID)
	// Fits reports whether the pods of the preemptor have room now.
	Fits() bool
}

// Target is a Workload to preempt.
type Target struct {
	*Workload
	// Reason is that of the condition Preempted.
	Reason string
}

// Answer is either the Workloads to preempt or why preemption cannot help.
type Answer struct {
	// Targets are in an order in which each one is allowed to be preempted at its turn.
	// They are empty if the preemptor fits already or preemption cannot help.
	Targets []Target
	// Distance is from how far the preemptor borrows once the targets are gone, as
	// quota.Node.Distance counts it. It is 0 if the preemptor does not borrow.
	Distance int
	// Why says what is missing if preemption cannot help; else it is empty.
	Why string
	// Claimed reports whether preemption cannot help and a Workload that would be a
	// candidate is claimed.
	Claimed bool
}
