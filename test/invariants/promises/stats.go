package promises

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Check is one thing that is judged.
type Check string

// All checks. A check that was never made proves nothing: see Stats.Judged.
const (
	// BoundPods: pods of gangs that were seen bound.
	BoundPods Check = "P1 bound pods"
	// BoundInDomain: bound pods that require one domain with the others of their podSet.
	BoundInDomain Check = "P1 pods in one domain"
	// CreatedPods: pods of Jobs in queues with a capacity check.
	CreatedPods Check = "P1 created pods"
	// Provisions: requests that were seen to become Provisioned.
	Provisions Check = "P1 provisioned requests"
	// ProvisionsInDomain counts the requests whose pods, or slices of them, require one domain.
	ProvisionsInDomain Check = "P1 requests in one domain"
	// Launches: machines that were seen to appear.
	Launches Check = "P2 launched machines"
	// Bought: machines that were held against what their request needs.
	Bought Check = "P2 machines bought"
	// RollBacks: machines of failed attempts and deleted requests that went.
	RollBacks Check = "P2 machines rolled back"
	// ScaledDown: idle machines that went.
	ScaledDown Check = "P2 machines scaled down"
	// Bookings: new bookings that were held against their node.
	Bookings Check = "P3 bookings"
	// Consumed: pods of gangs that were held against the bookings of their node.
	Consumed Check = "P3 consuming pods"
	// Departures: machines and nodes that went.
	Departures Check = "P3 departures"
	// Reservations: quota that was seen to be reserved.
	Reservations Check = "P4 reservations"
	// Borrowings counts the reservations that exceed the queue's own nominal quota.
	Borrowings Check = "P4 borrowings"
	// RunningJobs: Jobs in queues whose pods were held against their quota.
	RunningJobs Check = "P4 running jobs"
	// RunningPodSets: pod sets whose running pods were held against what is admitted and not reclaimable.
	RunningPodSets Check = "P4 running pod sets"
	// PendingWorkloads, PendingRequests and ReservedWorkloads count the objects that have reported what they wait for.
	PendingWorkloads  Check = "P7 pending workloads"
	PendingRequests   Check = "P7 pending requests"
	ReservedWorkloads Check = "P7 reserved workloads"
	// HeldJobs are suspended in a queue, with a Workload or another Job that they go with.
	HeldJobs Check = "P7 held jobs"
	// Evictions counts the Workloads that were stopped, and Preemptions those that were preempted.
	Evictions   Check = "P7 evictions"
	Preemptions Check = "P7 preemptions"
	// Terminated: machines that Muster terminated, held against the pods on their node.
	Terminated Check = "P9 machines terminated"
)

// Stats counts what the Checker has checked.
type Stats struct {
	Events map[Kind]int
	// Gaps are how often versions of a kind may have been missed.
	Gaps map[Kind]int
	// Late events came after one of a higher revision.
	Late int
	// Dropped suspects rested on an order of events that proved unsure.
	Dropped int
	// Bounded is how long bounds were checked, without outages.
	Bounded time.Duration
	// Behind is how much of it the cluster did not have.
	Behind time.Duration
	// Judged counts what was checked, Unjudged what could not be, for example
	// because of a gap.
	Judged, Unjudged map[Check]int
}

func newStats() Stats {
	return Stats{Events: map[Kind]int{}, Gaps: map[Kind]int{}, Judged: map[Check]int{}, Unjudged: map[Check]int{}}
}

func (s Stats) clone() Stats {
	s.Events, s.Gaps = maps.Clone(s.Events), maps.Clone(s.Gaps)
	s.Judged, s.Unjudged = maps.Clone(s.Judged), maps.Clone(s.Unjudged)
	return s
}

// String is one line: what was checked, and what could not be.
func (s Stats) String() string {
	events := 0
	for _, n := range s.Events {
		events += n
	}
	out := fmt.Sprintf("%d events; bounds held for %s", events, s.Bounded.Round(time.Second))
	if s.Behind > 0 {
		out += fmt.Sprintf(", less %s that it was behind", s.Behind.Round(time.Second))
	}
	if len(s.Judged) > 0 {
		out += "; judged " + list(s.Judged)
	}
	if len(s.Unjudged) > 0 {
		out += "; could not judge " + list(s.Unjudged)
	}
	if len(s.Gaps) > 0 {
		out += "; gaps " + list(s.Gaps)
	}
	if s.Late > 0 {
		out += fmt.Sprintf("; %d late events", s.Late)
	}
	if s.Dropped > 0 {
		out += fmt.Sprintf("; %d suspects dropped", s.Dropped)
	}
	return out
}

func list[K ~string](counts map[K]int) string {
	parts := make([]string, 0, len(counts))
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}
