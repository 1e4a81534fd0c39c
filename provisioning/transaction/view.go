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

// sparedAgain is the interval between two checks whether a gang is still spared.
const sparedAgain = 10 * time.Second

// View has the inputs of a request's next step, beside the request.
type View struct {
	*planner.Snapshot
	// Machines that carry a token of the request's last attempt, in any state.
	Machines []cloudprovider.Machine
	// Process identifies the process that decides: another process does not know which calls were made before.
	Process string
	// Made contains all machines that this process has seen for the request, including the ones that no longer exist.
	Made []purchases.Machine
	// Carried are the purchases for earlier requests of the request's Workload. They count until the request has its own record.
	Carried purchases.Record
	// Unanswered calls of the attempt.
	Unanswered map[CallKey]Unanswered
	// Hosts has the names of the machines' nodes, by provider ID.
	Hosts map[string]string
	// Active is the number of the request's pods that have not finished, bound or not.
	Active int
	// KeyTaken names another live request with the same booking key, if any.
	KeyTaken string
	// Has is what the request's namespace has and has requested, Limits what it may have.
	Has    Holdings
	Limits []Limit
	// Lost are the lost nodes of the request that have not been reported yet, by name.
	Lost []LostNode
	// Held are the losses that were reported without stopping the gang, by name.
	Held []LostNode
	// Spared are the groups with so many lost machines at once that the records of the cluster or of the cloud are more likely wrong.
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
	// Settled is the time from which on the loss of the node counts while its machine runs according to its cloud; zero for at once.
	Settled time.Time
	// Group of its machine; empty for none.
	Group string
	// Pods is the number of pods of the gang that ran there, and Ran the requests of each that was bound.
	Pods int
	Ran  []nodegroups.Resources
	// Labels and Taints of the node.
	Labels map[string]string
	Taints []corev1.Taint
	// Repair is the number of the repair that booked the node; 0 for none.
	Repair int
}

// Blocked are pods that cannot start on their nodes, the first of them since Since. Why is about one of them.
type Blocked struct {
	Pods  int
	Since time.Time
	Why   string
}

// Stranded are replacement pods of a running gang that kube-scheduler has found no room for, the first of them at Since.
type Stranded struct {
	Pods  int
	Since time.Time
	// Requests is the sum of their requests.
	Requests nodegroups.Resources
}
