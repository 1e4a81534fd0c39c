// Package queueing decides who goes next and with what quota. Cycle is a
// function from a Snapshot of the queues, the Workloads and their
// ProvisioningRequests, with the time in it, to verdicts with reasons; nothing
// here talks to an API server, a clock or a log.
//
// The words are Kueue's: a Workload is a gang of podSets that waits in a
// LocalQueue, which feeds a ClusterQueue, which has quota by flavor. A Workload
// is pending, then it reserves quota, then, once its admission checks are Ready,
// it is admitted, and at last it is finished. Evicted Workloads give their quota
// back and are pending again.
//
//	pending ──Reserve──▶ reserved ──Admit──▶ admitted ──(jobs)──▶ finished
//	   ▲                    │ Evict, quota back  │ Evict, quota back
//	   └────────────────────┴──── at once ───────┴ when no pod runs (jobs)
//
// Where a ClusterQueue has a check of the controller muster.dev/capacity, the
// planner is asked before quota is reserved, so that a flavor whose machines are
// known to be out of reach is passed over. Who needs the quota of others and machines
// that are to be launched asks for these first: others leave once they are booked.
package queueing
