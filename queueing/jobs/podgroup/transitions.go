package podgroup

import (
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// state is what a gang does.
type state int

const (
	// gone: it has no pods, and is not to have any.
	gone state = iota
	// incomplete: none of its pods has run, and some have yet to be created.
	incomplete
	// short: pods have ended, none runs, and those in place of the failed ones have yet to
	// be created.
	short
	// held: it waits as a whole.
	held
	// running: pods may run.
	running
	// ended: it has succeeded or failed.
	ended

	states
)

// How its Workload stands.
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
	// wait reports on the pods how many are missing.
	wait
	// queue creates the Workload or brings it up to date.
	queue
	// start does as queue, and lets the pods run once the Workload is right for them.
	start
	// keep does what a gang needs that runs.
	keep
	// adopt lets pods run that run without a Workload: whatever became of that, nothing that
	// runs is deleted for it.
	adopt
	// stop deletes the pods that run.
	stop
	// release gives the quota back.
	release
	// drop deletes the Workload.
	drop
	// finish finishes it.
	finish
	// reportEnd reports on the pods that the Workload has finished for good.
	reportEnd
)

// transitions have the action for each state of a gang and of its Workload; the rest is
// nothing.
var transitions = [states][workload.States]action{
	gone: {
		absent: nothing, pending: drop, asking: drop, adopted: drop, reserved: drop, admitted: drop, evicted: drop,
	},
	incomplete: {
		absent: wait, pending: drop, asking: drop, adopted: drop, reserved: drop, admitted: drop, evicted: drop, finished: reportEnd,
	},
	short: {
		absent: wait, pending: drop, asking: drop, adopted: drop, reserved: drop, admitted: keep, evicted: release, finished: reportEnd,
	},
	held: {
		absent: queue, pending: queue, asking: queue, adopted: queue, reserved: queue, admitted: start, evicted: release, finished: reportEnd,
	},
	running: {
		absent: adopt, pending: stop, asking: adopt, adopted: keep, reserved: stop, admitted: keep, evicted: stop,
	},
	ended: {
		pending: finish, asking: finish, adopted: finish, reserved: finish, admitted: finish, evicted: finish, deleted: finish,
	},
}

// state is the state of a gang.
func (g *gang) state() state {
	outcome, _ := g.outcome()
	switch {
	case g.job == nil || (g.total == 0 || g.leaves) && len(g.open) == 0 || (!g.awaited || g.surges) && len(g.all()) == 0:
		return gone // or its pods are being deleted, which never ran
	case outcome != jobs.Unfinished:
		return ended
	case len(g.open) > 0:
		return running
	case g.isComplete():
		return held
	case len(g.over) > 0:
		return short
	}
	return incomplete
}
