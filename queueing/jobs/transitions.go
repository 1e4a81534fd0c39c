package jobs

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/queueing/workload"
)

// jobState is what a job does, and whether a start has left its changes on it.
type jobState int

const (
	// held: the job is suspended, and is as its user wants it.
	held jobState = iota
	// stopped: the job is suspended and still bears the changes of a start. Pods may
	// be left.
	stopped
	// running: the job creates pods.
	running
	// runningUnqueued: so does this job, which names no queue.
	runningUnqueued
	// exempt: so does this job, which an administrator lets run outside its queue.
	exempt
	// ending: the job has an outcome, and its last pods terminate.
	ending
	// delegated: the job is suspended and is to run in another cluster.
	delegated
	// remote: the job is not suspended, and runs in another cluster.
	remote
	// ended: the job has succeeded or failed.
	ended

	jobStates
)

// How the Workload of a job stands.
const (
	absent   = workload.Absent
	pending  = workload.Pending
	asking   = workload.AwaitsAdoption
	adopted  = workload.AdoptionAccepted
	reserved = workload.Reserved
	admitted = workload.Admitted
	evicted  = workload.Evicting
	deleted  = workload.Deleted
	finished = workload.Ended
)

// action is what a reconciliation does.
type action int

const (
	nothing action = iota
	// queue creates the Workload or brings it up to date.
	queue
	// start does as queue, and lets the job run once the Workload is right for it.
	start
	// keep does what a running job needs.
	keep
	// adopt lets the job run if it ran before Muster came or has lost its Workload, and stops
	// it otherwise.
	adopt
	// excuse deletes the Workload of a job that is exempt.
	excuse
	// stop suspends the job.
	stop
	// evict ends the attempt of a job that a user has suspended. Its booking is used up or will expire, so that it has to queue again.
	evict
	// restore reverts the changes of the start once no pod is left.
	restore
	// release does as restore, and releases the quota.
	release
	// runRemote does as queue, and shows a job that another cluster runs as running.
	runRemote
	// stopRemote suspends a job that another cluster had, and releases the quota once no cluster has it.
	stopRemote
	// finish finishes the Workload.
	finish
	// reportEnd reports on the job that its Workload has finished for good.
	reportEnd
)

// transitions have the action for each state of a job and of its Workload; the rest is
// nothing.
var transitions = [jobStates][workload.States]action{
	held: {
		absent: queue, pending: queue, asking: queue, adopted: queue, reserved: queue, admitted: start, evicted: release, finished: reportEnd,
	},
	stopped: {
		absent: restore, pending: restore, asking: restore, adopted: restore, reserved: evict, admitted: evict, evicted: restore,
		finished: reportEnd,
	},
	running: {
		absent: adopt, pending: adopt, asking: adopt, reserved: adopt, admitted: keep, evicted: stop,
	},
	runningUnqueued: {
		// It ran before its namespace queued all jobs, or was never queued.
		absent:  nothing,
		pending: stop, asking: adopt, reserved: stop, admitted: keep, evicted: stop,
	},
	exempt: {
		absent: excuse, pending: excuse, asking: excuse, adopted: excuse, reserved: excuse, admitted: keep, evicted: excuse,
	},
	ending: {
		admitted: keep,
	},
	delegated: {
		absent: queue, pending: queue, asking: queue, adopted: queue, reserved: queue,
		admitted: runRemote, evicted: stopRemote, finished: reportEnd,
	},
	remote: {
		// Its Workload was deleted, and so is its copy in the other cluster. It can be dispatched again once it is suspended.
		absent: stop, pending: stop, asking: stop, adopted: stop, reserved: stop,
		admitted: runRemote, evicted: stopRemote, finished: reportEnd,
	},
	ended: {
		pending: finish, asking: finish, adopted: finish, reserved: finish, admitted: finish, evicted: finish, deleted: finish,
	},
}

// stateOf is the state of a job.
func stateOf(kind Kind, job client.Object) jobState {
	outcome, _ := kind.Outcome(job)
	switch {
	case outcome == Succeeded || outcome == Failed:
		return ended
	case IsDelegated(kind, job) && job.GetLabels()[QueueLabel] != "":
		if !kind.IsSuspended(job) {
			return remote
		}
		return delegated
	case kind.IsSuspended(job) && WasStarted(job):
		return stopped
	case kind.IsSuspended(job):
		return held
	// Policies let only administrators write the annotation, but only on jobs that name a queue.
	case job.GetAnnotations()[BreakGlassAnnotation] != "" && job.GetLabels()[QueueLabel] != "":
		return exempt
	case outcome == Ending:
		return ending
	case job.GetLabels()[QueueLabel] == "":
		return runningUnqueued
	}
	return running
}
