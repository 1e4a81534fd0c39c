package dispatch

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Job is a Workload of the manager that runs in another cluster.
type Job struct {
	// Open: it has quota, has passed the manager's other checks, and no cluster runs it.
	Open bool
	// Over: it must not run anywhere, since it has finished, has no quota, or is deleted.
	Over bool
	// Runs is the cluster that runs it; empty for none.
	Runs string
	// Nominated are the clusters that are nominated.
	Nominated []string
	// Hedge is how many clusters may be nominated at once. Each of them may launch machines for it. Zero means one.
	Hedge int
	// Record of earlier steps.
	Record Record
}

// mostNominated is how many clusters may be nominated at once. The hedge may have changed since they were.
func (j *Job) mostNominated() int { return max(1, j.Hedge, j.Record.Hedge) }

// Cluster is the manager's view of a worker. A slice of clusters is in the order of preference.
type Cluster struct {
	Name string
	// Connected: the manager reaches it, and the other fields are up to date.
	Connected bool
	// Deleted: its MultiKueueCluster was deleted. Copies are deleted while the worker can be reached.
	Deleted bool
	// Lacks is what the job needs and the cluster does not have, such as its namespace; empty if it has everything.
	Lacks string
	// Again is when to read again whether Lacks or a Foreign Copy has changed. It is zero if an event reports that.
	Again time.Time
	// Idle is why no job is admitted or started there for now, such as that its leader does not renew its Lease. It is empty if that is
	// not certain. Jobs that have started keep running.
	Idle string
	// Fence is how long the manager may be silent before the worker stops the copies that are created now. It is zero without a fence.
	Fence time.Duration
	// Stopped: the cluster is not connected, and the fence on record has stopped its copy for good. StopsAt is when that is so unless the
	// cluster connects before. It is zero for never.
	Stopped bool
	StopsAt time.Time
	// Ungranted: the cluster is not connected, and no grant was sent there since it was nominated, so a copy there has taken nothing.
	Ungranted bool
	// Copy is the job's Workload there; nil if there is none.
	Copy *Copy
	// Prospect forecasts the job there; nil if there is no forecast.
	Prospect *Prospect
}

// Copy is the Workload of a job in a worker.
type Copy struct {
	UID types.UID
	// Foreign: it is no copy, but another Workload of the same name.
	Foreign bool
	// Leaving: it is deleted, but has finalizers.
	Leaving bool
	// Stale: it was created for an earlier Workload of that name, or for other pods than the job has now.
	Stale bool
	// Gated: it has the gate, so it may not take quota.
	Gated bool
	// Reserved and Admitted: it has quota there, and may run.
	Reserved, Admitted bool
	// Held: it is admitted, and its job has not started there.
	Held bool
	// Finished: its job has finished.
	Finished bool
	// Priority of the copy.
	Priority int32
	// Fence is how long the manager may be silent before the worker stops this copy. Zero means forever.
	Fence time.Duration
	// Changed is what was edited since the manager created it; empty if nothing was.
	Changed string
	// Refused is why the worker does not admit it. It is empty while the worker may still admit it.
	Refused Reason
	// Unjudged: its worker has not evaluated it since its grant.
	Unjudged bool
	// Unclear: its worker reports the same reason for a copy that it has not evaluated yet.
	Unclear bool
	// Message is the worker's message about it.
	Message string
}

// isPending reports whether its worker may still admit the copy.
func (w *Copy) isPending() bool {
	return !w.Foreign && w.Changed == "" && !w.Admitted && !w.Finished && (w.Refused == "" || w.Refused == NoQuota)
}

// Reason is why a cluster does not run a job.
type Reason string

const (
	// NoQuota: the job waits for quota that other jobs use.
	NoQuota Reason = "NoQuota"
	// NoCapacity: the machines are not available there now.
	NoCapacity Reason = "NoCapacity"
	// Evicted: the worker has stopped it.
	Evicted Reason = "Evicted"
	// Rejected: a check of the worker rejects the job, or it was deactivated there.
	Rejected Reason = "Rejected"
	// Late: the worker did not evaluate or start the job in time.
	Late Reason = "Late"
	// Lost: the cluster is cut off, and its fence has stopped the job.
	Lost Reason = "Lost"
	// Unreached: the cluster is cut off, and was not granted the job.
	Unreached Reason = "Unreached"
	// NoCopy: no copy was created in the worker.
	NoCopy Reason = "NoCopy"
)
