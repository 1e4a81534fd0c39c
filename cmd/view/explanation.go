package view

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Explanation is all that there is to say about one object.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload,omitempty"`
	// Summary goes on from the name of the object, and makes a sentence with it.
	Summary string `json:"summary"`
	// Place in its queue; nil outside of one.
	Place *Place `json:"place,omitempty"`
	// Causes are what is short and by how much; Unblock is what would change that.
	Causes  []string `json:"causes,omitempty"`
	Unblock []string `json:"unblock,omitempty"`

	// Expected is when it will start; nil where nobody can tell.
	Expected *Expected `json:"expected,omitempty"`

	Quota    []QuotaLine    `json:"quota,omitempty"`
	Capacity []CapacityLine `json:"capacity,omitempty"`
	Holders  []HolderLine   `json:"holders,omitempty"`
	Machines []MachinesLine `json:"machines,omitempty"`

	// Recorded is what Muster has written, where the caller may not read what it takes
	// to decide; Missing are the rights for that.
	Recorded []string `json:"recorded,omitempty"`
	Missing  []Right  `json:"missingRights,omitempty"`
}

// Place is where a Workload stands.
type Place struct {
	ClusterQueue string `json:"clusterQueue"`
	LocalQueue   string `json:"localQueue"`
	// Position is from 1; 0 where it is in no line.
	Position int    `json:"position,omitempty"`
	Pending  int    `json:"pending,omitempty"`
	Priority int32  `json:"priority"`
	Waited   string `json:"waited,omitempty"`
}

// QuotaLine is what a queue has of one resource of a flavor.
type QuotaLine struct {
	Flavor     string `json:"flavor"`
	Resource   string `json:"resource"`
	Asked      string `json:"asked"`
	Free       string `json:"free"`
	Short      string `json:"short"`
	Whole      string `json:"whole"`
	Borrowable string `json:"borrowable"`
}

// CapacityLine is what a group could do for the object.
type CapacityLine struct {
	Flavor      string `json:"flavor,omitempty"`
	Group       string `json:"group"`
	Market      string `json:"market"`
	USDPerHour  string `json:"usdPerHour"`
	Machines    int    `json:"machines"`
	MaxMachines int    `json:"maxMachines"`
	// Needed is how many machines it would take if all came from this group; Chance
	// that such a launch comes whole, in percent.
	Needed int `json:"needed"`
	Chance int `json:"chancePercent"`
	// LastFailure is empty where none is on record.
	LastFailure string `json:"lastFailure,omitempty"`
	Backoff     string `json:"backoff,omitempty"`
	// Why says what speaks against it.
	Why string `json:"why,omitempty"`
}

// HolderLine is somebody with quota that is short.
type HolderLine struct {
	Workload string `json:"workload"`
	Queue    string `json:"clusterQueue"`
	Priority int32  `json:"priority"`
	Has      string `json:"has"`
	Borrows  bool   `json:"borrows"`
}

// MachinesLine is a request with machines of a group that has no more to give.
type MachinesLine struct {
	Group    string `json:"group"`
	Request  string `json:"provisioningRequest"`
	Priority int32  `json:"priority"`
	Machines int    `json:"machines"`
	// Pods of its gang that run there; 0 where they are still to come.
	Pods int `json:"pods"`
}

// Record adds what Muster has told about the object by Events, the newest first.
func (e *Explanation) Record(now time.Time, events []corev1.Event) {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a)) })
	for i := range events {
		e.Recorded = append(e.Recorded, fmt.Sprintf("%s ago, %s: %s", ago(now, happened(&events[i])), events[i].Reason, events[i].Message))
	}
}

// happened is when the Event was seen last; the API has several fields for it.
func happened(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
