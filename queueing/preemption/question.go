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
	// Evicted says that it is on its way out for whatever reason: then it is always
	// a candidate, costs nothing, and comes first.
	Evicted bool
	// Claimed: it is to go, or waited for, for another Workload, so it is no candidate.
	Claimed bool
	// LocalQueueUsage is what its LocalQueue has used lately, where the ClusterQueue
	// shares by that, else zero. In its own ClusterQueue the newcomer takes from the
	// LocalQueue that has used most.
	LocalQueueUsage float64
}

// Question is about one Workload that waits.
type Question struct {
	// Queue is the ClusterQueue of the newcomer. The tree around it is changed
	// during the call and is as before afterwards.
	Queue  *quota.Node
	Policy kueue.ClusterQueuePreemption
	// FairSharing is nil where shares do not matter. Without strategies there it is
	// as with both.
	FairSharing *kueueconfig.FairSharing

	Priority int32
	// Queued is where the newcomer stands in its queue.
	Queued time.Time
	// Needs is all that the newcomer would use.
	Needs quota.Amounts

	// Running are the Workloads that hold quota in a ClusterQueue, in any order. It
	// is asked only for those in which there may be somebody to go. The slice is not
	// changed.
	Running func(queue *quota.Node) []*Workload
}

// Target is a Workload that goes.
type Target struct {
	*Workload
	// Reason is that of the condition Preempted.
	Reason string
}

// Answer is either those who go or why nobody does.
type Answer struct {
	// Targets are in an order in which each one may be asked to go at its turn.
	// They are empty if the newcomer fits as it is or nothing can be done.
	Targets []Target
	// Distance is from how far the newcomer borrows once they are gone, as
	// quota.Node.Distance counts it: 0 if it does not borrow.
	Distance int
	// Why says what is missing if nothing can be done; else it is empty.
	Why string
	// Claimed: nothing can be done, and something suits that another Workload has
	// claimed.
	Claimed bool
}
