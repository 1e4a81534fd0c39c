package transaction

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/when"
)

// sparedAgain is how soon it is looked again whether a gang is still spared.
const sparedAgain = 10 * time.Second

// View is what a request's next step depends on, beside the request.
type View struct {
	*planner.Snapshot
	// Machines that carry a token of the request's last attempt, in any state.
	Machines []cloudprovider.Machine
	// Process identifies the process that decides: another one does not know which calls were made before.
	Process string
	// Made contains all machines that this process has seen for the request, including the ones that no longer exist.
	Made []purchases.Machine
	// Carried is what was bought for earlier requests of the request's Workload: it counts until the request has a record of its own.
	Carried purchases.Record
	// Unanswered calls of the attempt.
	Unanswered map[CallKey]Unanswered
	// Hosts are the names of the nodes of those that have one, by provider ID.
	Hosts map[string]string
	// Active is how many of the request's pods have not finished, bound or not.
	Active int
	// KeyTaken names another live request with the same booking key, if any.
	KeyTaken string
	// Has is what the request's namespace has and asks for already, Limits what it
	// may have.
	Has    Holdings
	Limits []Limit
	// Lost nodes of the request that have not been told of yet, by name.
	Lost []LostNode
	// Held losses have been told of without stopping the gang, by name.
	Held []LostNode
	// Spared are the groups of which so many machines seem lost at once that the records of the
	// cluster or of the cloud are more likely wrong.
	Spared map[string]bool
	// Stranded pods of a gang that ran have found no room.
	Stranded Stranded
	// Blocked pods have come and cannot start.
	Blocked Blocked
}

// countingOnce is Counting for a bound that costs money while it lasts: whatever the control plane does, it is at most twice as long.
func (v View) countingOnce(from time.Time, bound time.Duration) time.Time {
	if from.IsZero() || !v.Answering.After(from) {
		return from
	}
	return when.Earliest(v.Answering, from.Add(bound))
}

// LostNode is a node that went, or whose machine ended, while it was booked or used.
type LostNode struct {
	Name, ProviderID string
	// Settled is from when on the loss of a node counts whose machine runs, by word of its cloud; zero for at once.
	Settled time.Time
	// Group of its machine; empty where it was of none.
	Group string
	// Pods of the gang that ran there, and what each of those takes that were bound.
	Pods int
	Ran  []nodegroups.Resources
	// Labels and Taints of the node.
	Labels map[string]string
	Taints []corev1.Taint
	// Repair is the number of the repair that had booked the node; 0 without.
	Repair int
}

// Blocked are pods that cannot start where they are bound, the first of them since then. Why is of one of them.
type Blocked struct {
	Pods  int
	Since time.Time
	Why   string
}

// Stranded are pods that came in place of others of a gang that ran, and that
// kube-scheduler has found no room for, the first of them at Since.
type Stranded struct {
	Pods  int
	Since time.Time
	// Requests is what they take together.
	Requests nodegroups.Resources
}
