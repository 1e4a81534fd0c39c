package cache

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/queueing/quota"
)

// Tree is a root cohort with all of its descendants, or a ClusterQueue without a cohort. Usage in one queue may affect
// all others of the tree, and none outside.
type Tree struct {
	Root   *quota.Node
	Queues []*ClusterQueue
	// QuotaReleased: quota was released, so inadmissible Workloads may fit now.
	QuotaReleased bool
	// HasReservations: quota is reserved for Workloads that wait for their victims or for a later start. Then no
	// Workload may be evaluated without those ahead of it.
	HasReservations bool
	// MissedCandidates: preemption was considered while a Workload had assumed quota that its object did not show yet,
	// so it was no candidate.
	MissedCandidates bool
	// HeadReservations is the quota reserved for heads in the last cycle.
	HeadReservations []HeadReservation
	// MessagesOutdated: quota was used or released since the messages of some Workloads said how much is free. At RequeueAt all
	// are evaluated again to update them; zero if the messages are current.
	MessagesOutdated bool
	RequeueAt        time.Time
	// evicted counts the Workloads with quota that are evicted.
	evicted int
}

// HasEvicted reports whether quota of an evicted Workload is about to be released.
func (t *Tree) HasEvicted() bool { return t.evicted > 0 }

// messagesMayLag is how long the message of a Workload may be outdated.
const messagesMayLag = 10 * time.Second

// noteUsage records that usage has grown.
func (t *Tree) noteUsage() {
	t.MessagesOutdated = t.MessagesOutdated || slices.ContainsFunc(t.Queues, func(q *ClusterQueue) bool { return len(q.Inadmissible) > 0 })
}

// RefreshDue reports whether it is time to update the messages.
func (t *Tree) RefreshDue(now time.Time) bool {
	return !t.RequeueAt.IsZero() && !now.Before(t.RequeueAt)
}

// ScheduleRequeue sets the time at which Workloads with outdated messages are evaluated again.
func (t *Tree) ScheduleRequeue(now time.Time) {
	if t.MessagesOutdated && t.RequeueAt.IsZero() {
		t.RequeueAt = now.Add(messagesMayLag)
	}
	t.MessagesOutdated = false
}
