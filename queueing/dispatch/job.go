package dispatch

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Job is a Workload of the manager that another cluster is to run.
type Job struct {
	// Open: it has quota, has passed the manager's other checks, and no cluster runs it.
	Open bool
	// Over: it may run nowhere, since it has ended, has no quota, or has been deleted.
	Over bool
	// Runs is the cluster that runs it; empty for none.
	Runs string
	// Nominated are the clusters that were named.
	Nominated []string
	// Hedge is how many clusters may be asked at once, each of which may launch machines for it; zero and one are the same.
	Hedge int
	// Record is what earlier steps have left.
	Record Record
}

// mostAsked is how many clusters may be nominated; its hedge may have been another one when they were.
func (j *Job) mostAsked() int { return max(1, j.Hedge, j.Record.Hedge) }

// Cluster is a worker as the manager sees it, in the order of preference.
type Cluster struct {
	Name string
	// Connected: the manager reaches it, and what follows is up to date.
	Connected bool
	// Deleted: its MultiKueueCluster was deleted. Copies there are deleted while it can be reached.
	Deleted bool
	// Lacks is what the job needs and the cluster does not have, such as its namespace; empty for nothing.
	Lacks string
	// Again is when it is looked at again whether it still lacks that, or has a Copy that is Foreign; zero where an event tells.
	Again time.Time
	// Idle says why no job is admitted or started there for now, such as that its leader does not renew its Lease; empty where that is not
	// known. What has started runs on.
	Idle string
	// Fence is how long the manager may be silent before the worker stops the copies that are made now; zero if it stops none.
	Fence time.Duration
	// Stopped: it is not connected, and by the fence on record nothing of the job runs there, or ever will by a copy that is there. StopsAt
	// is when that is so, unless it is connected before; zero for never.
	Stopped bool
	StopsAt time.Time
	// Unawarded: it is not connected, and nothing was sent there since it was named by which a copy could take anything.
	Unawarded bool
	// Copy is the job's Workload there; nil if there is none.
	Copy *Copy
	// Prospect is what would become of the job there; nil if it is not known.
	Prospect *Prospect
}

// Copy is the Workload of a job in a worker.
type Copy struct {
	UID types.UID
	// Foreign: it is not a copy, but a Workload of the same name that others have made.
	Foreign bool
	// Leaving: it has been deleted, and waits for its finalizers.
	Leaving bool
	// Stale: it was made for an earlier Workload of that name, or for other pods than the job has now.
	Stale bool
	// Gated: it may not take anything yet.
	Gated bool
	// Reserved and Admitted: it has quota there, and may run.
	Reserved, Admitted bool
	// Held: it is admitted, and its job has not started there.
	Held bool
	// Finished: it has run.
	Finished bool
	// Priority that it has there.
	Priority int32
	// Fence is how long the manager may be silent before its worker stops it; zero for ever.
	Fence time.Duration
	// Changed says what is not as the manager made it; empty where all is.
	Changed string
	// Refused is why the worker gives it nothing, in the code of a condition; empty while it may still come.
	Refused Reason
	// Unjudged: its worker has not evaluated it since it was awarded.
	Unjudged bool
	// Unclear: its worker says the same of one that it has not judged yet.
	Unclear bool
	// Message is what the worker says of it.
	Message string
}

// isPending reports whether its worker has yet to give the copy what it needs.
func (w *Copy) isPending() bool {
	return !w.Foreign && w.Changed == "" && !w.Admitted && !w.Finished && (w.Refused == "" || w.Refused == NoQuota)
}

// Reason says why a cluster does not run a job.
type Reason string

const (
	// NoQuota: the job waits there for quota, others have it.
	NoQuota Reason = "NoQuota"
	// NoCapacity: the machines cannot be had there now.
	NoCapacity Reason = "NoCapacity"
	// Evicted: the worker has stopped it.
	Evicted Reason = "Evicted"
	// Rejected: a check of the worker refuses it for good, or it was deactivated there.
	Rejected Reason = "Rejected"
	// Late: the worker did not begin it in time.
	Late Reason = "Late"
	// Lost: the cluster cannot be reached, and has stopped the job.
	Lost Reason = "Lost"
	// Unreached: the cluster cannot be reached, and was not awarded the job.
	Unreached Reason = "Unreached"
	// NoCopy: no copy of it came to the worker.
	NoCopy Reason = "NoCopy"
)
