package preemption

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/quota"
)

// Workload is a Workload with quota.
type Workload struct {
	// UID is unique; it breaks every tie.
	UID types.UID
	// Queue is the ClusterQueue that counts its usage.
	Queue    *quota.Node
	Priority int32
	// Reserved is when it reserved its quota, Queued its time in the order of the queue before that.
	Reserved, Queued time.Time
	// Usage is shared; Decide does not modify it.
	Usage quota.Amounts
	// Cost is what is lost by preempting the Workload, in a unit that the caller chooses, such as pod-seconds. Zero is
	// nothing.
	Cost int64
	// Evicted reports whether it is already being evicted, for any reason. It is then always a candidate, costs
	// nothing, and comes first.
	Evicted bool
	// Targeted reports whether another Workload preempts it or waits for its quota. It is then no candidate.
	Targeted bool
	// LocalQueueUsage is the recent usage of its LocalQueue if the ClusterQueue orders LocalQueues by usage, otherwise
	// zero. In its own ClusterQueue the preemptor takes from the LocalQueue with the highest usage.
	LocalQueueUsage float64
}

// Preemptor is the pending Workload that needs quota.
type Preemptor struct {
	// Queue is the ClusterQueue of the preemptor. Decide changes the usage of its tree and restores it before it
	// returns.
	Queue  *quota.Node
	Policy kueue.ClusterQueuePreemption
	// FairSharing is nil if fair sharing is off. Without strategies both apply.
	FairSharing *kueueconfig.FairSharing

	Priority int32
	// Queued is the time that orders the preemptor in its queue.
	Queued time.Time
	// Needs is the whole usage of the preemptor.
	Needs quota.Amounts

	// Topology simulates the preemptor's topology assignment; nil if it needs only quota.
	Topology TopologySimulation

	// Running returns the Workloads with quota in a ClusterQueue, in any order. It is called only for ClusterQueues
	// that may have candidates. Decide does not modify the slice.
	Running func(queue *quota.Node) []*Workload
}

// TopologySimulation simulates the removal of victims from the nodes. Decide restores it before it returns.
type TopologySimulation interface {
	// SimulateRemoval removes the topology usage of a Workload, and RevertRemoval adds it again.
	SimulateRemoval(workload types.UID)
	RevertRemoval(workload types.UID)
	// Fits reports whether the pods of the preemptor have a topology assignment now.
	Fits() bool
}

// Target is a Workload to preempt.
type Target struct {
	*Workload
	// Reason is the reason of the condition Preempted.
	Reason string
}

// Result is either the Workloads to preempt or the reason why preemption cannot help.
type Result struct {
	// Targets are in an order in which each one may be preempted in turn. They are empty if the preemptor already fits
	// or preemption cannot help.
	Targets []Target
	// BorrowingLevel is the level at which the preemptor borrows once the targets are gone, as
	// quota.Node.BorrowingLevel defines it. It is 0 if the preemptor does not borrow.
	BorrowingLevel int
	// Why says what is missing if preemption cannot help; otherwise it is empty.
	Why string
	// CandidatesTargeted reports whether preemption cannot help, and Workloads were left out because they are already
	// preempted for others.
	CandidatesTargeted bool
}
