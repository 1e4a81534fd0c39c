package cache

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/queueing/quota"
)

// Tree is a cohort with all below it, or a ClusterQueue that has none: what is
// used in one queue of it may matter to all others, and to none outside.
type Tree struct {
	Root   *quota.Node
	Queues []*ClusterQueue
	// Released says that quota came back, so that what was refused may fit now.
	Released bool
	// Claimed says that quota was kept for Workloads that wait for their victims, or
	// for a time to come. Then no Workload may be judged without those ahead of it.
	Claimed bool
	// MissedCandidates says that preemption was considered while a Workload had been given quota
	// that its object did not show yet, so it could not be asked to leave.
	MissedCandidates bool
	// HeadReservations is quota that is not lent, as of the last drain.
	HeadReservations []HeadReservation
	// MessagesOutdated says that quota was given out since some Workloads were told how much is
	// free. At stale all are judged again for that; zero if what they were told is true.
	MessagesOutdated bool
	RejudgeAt        time.Time
}

// messagesMayLag is how long what a Workload was told may be untrue.
const messagesMayLag = 10 * time.Second

// noteUse notes that more is used.
func (t *Tree) noteUse() {
	t.MessagesOutdated = t.MessagesOutdated || slices.ContainsFunc(t.Queues, func(q *ClusterQueue) bool { return len(q.Inadmissible) > 0 })
}

// ScheduleRejudge sets the time at which the Workloads of the tree are judged again whose
// messages are not true any more.
func (t *Tree) ScheduleRejudge(now time.Time) {
	if t.MessagesOutdated && t.RejudgeAt.IsZero() {
		t.RejudgeAt = now.Add(messagesMayLag)
	}
	t.MessagesOutdated = false
}
