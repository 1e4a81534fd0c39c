package view

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Explanation is the answer about one object.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Workload  string `json:"workload,omitempty"`
	// Summary continues the name of the object to a sentence.
	Summary string `json:"summary"`
	// Never means that it waits in vain: only another specification lets it start.
	Never bool `json:"never,omitempty"`
	// Place in its queue; nil if it is in none.
	Place *Place `json:"place,omitempty"`
	// Causes are the shortages with their amounts; Unblock are the events that would end them.
	Causes  []string `json:"causes,omitempty"`
	Unblock []string `json:"unblock,omitempty"`

	// Waiting counts what the jobs of a queue wait for; Usage is its quota in use.
	Waiting []string `json:"waiting,omitempty"`
	Usage   []string `json:"usage,omitempty"`

	// Devices of a node; Jobs have booked it or run there, each as namespace/kind/name.
	Devices []NodeDevices `json:"devices,omitempty"`
	Jobs    []string      `json:"jobs,omitempty"`

	// Order says which of its pod sets start after others.
	Order []string `json:"order,omitempty"`

	// Prices of the machines for it on each flavor, where Muster has published them and the caller may read no more.
	Prices []string `json:"prices,omitempty"`
	// Expected is its estimated start; nil if unknown.
	Expected *Expected `json:"expected,omitempty"`

	Quota    []QuotaLine    `json:"quota,omitempty"`
	Rooms    []RoomLine     `json:"rooms,omitempty"`
	Capacity []CapacityLine `json:"capacity,omitempty"`
	Holders  []HolderLine   `json:"holders,omitempty"`
	Machines []MachinesLine `json:"machines,omitempty"`

	// Recorded is what Muster wrote on the object, if the caller may not read enough to
	// decide; Missing are the rights that this takes.
	Recorded []string `json:"recorded,omitempty"`
	Missing  []Right  `json:"missingRights,omitempty"`
}

// Place is the place of a Workload in its queue.
type Place struct {
	ClusterQueue string `json:"clusterQueue"`
	LocalQueue   string `json:"localQueue"`
	// Position counts from 1; 0 if it is not pending.
	Position int    `json:"position,omitempty"`
	Pending  int    `json:"pending,omitempty"`
	Priority int32  `json:"priority"`
	Waited   string `json:"waited,omitempty"`
}

// QuotaLine is a queue's quota of one resource of a flavor.
type QuotaLine struct {
	Flavor     string `json:"flavor"`
	Resource   string `json:"resource"`
	Requested  string `json:"requested"`
	Free       string `json:"free"`
	Short      string `json:"short"`
	Whole      string `json:"whole"`
	Borrowable string `json:"borrowable"`
}

// RoomLine is what a podSet lacks in the domains of a flavor's Topology.
type RoomLine struct {
	Flavor string `json:"flavor"`
	PodSet string `json:"podSet"`
	Pods   int32  `json:"pods"`
	// Domain has room for most of them, for Fits; empty if none is suited. Short is by resource what the others request,
	// where all pods have to be in one domain.
	Domain []string          `json:"domain,omitempty"`
	Fits   int32             `json:"fits"`
	Short  map[string]string `json:"short,omitempty"`
	// Releases would each make room.
	Releases []ReleaseLine `json:"releases,omitempty"`
	// TooSmall says that there would be too little room even without other Workloads: MostFits pods in MostDomain.
	TooSmall   bool     `json:"tooSmall,omitempty"`
	MostDomain []string `json:"mostDomain,omitempty"`
	MostFits   int32    `json:"mostFits,omitempty"`
}

// ReleaseLine is Workloads that make room once they all have ended, in the Domain, which is empty where the pods may be in
// several.
type ReleaseLine struct {
	Domain  []string      `json:"domain,omitempty"`
	Leaving []LeavingLine `json:"leaving"`
}

// LeavingLine is one of them.
type LeavingLine struct {
	Workload string `json:"workload"`
	Pods     int32  `json:"pods"`
	// Moves: its pods would have a place elsewhere then.
	Moves bool `json:"moves,omitempty"`
}

// CapacityLine is what a NodeGroup could provide for the object.
type CapacityLine struct {
	Flavor       string `json:"flavor,omitempty"`
	Group        string `json:"group"`
	CapacityType string `json:"capacityType"`
	USDPerHour   string `json:"usdPerHour"`
	Machines     int    `json:"machines"`
	MaxMachines  int    `json:"maxMachines"`
	// Needed is the number of machines if all came from this group; 0 if none takes its pods. Chance is the
	// probability that such a launch succeeds as a whole, in percent; nil if no such launch is made, but after a backoff.
	Needed int  `json:"needed"`
	Chance *int `json:"chancePercent,omitempty"`
	// LastFailure is empty if none is on record.
	LastFailure string `json:"lastFailure,omitempty"`
	Backoff     string `json:"backoff,omitempty"`
	// Why says what rules it out.
	Why string `json:"why,omitempty"`
}

// HolderLine is a Workload that has quota of which there is too little.
type HolderLine struct {
	Workload string `json:"workload"`
	Queue    string `json:"clusterQueue"`
	Priority int32  `json:"priority"`
	Has      string `json:"has"`
	Borrows  bool   `json:"borrows"`
}

// MachinesLine is a request with machines of a group that is at its maximum size.
type MachinesLine struct {
	Group    string `json:"group"`
	Request  string `json:"provisioningRequest"`
	Priority int32  `json:"priority"`
	Machines int    `json:"machines"`
	// Pods of its gang that run there; 0 before they start.
	Pods int `json:"pods"`
}

// Record adds Muster's Events about the object, the newest first.
func (e *Explanation) Record(now time.Time, events []corev1.Event) {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return happened(&b).Compare(happened(&a)) })
	for i := range events {
		e.Recorded = append(e.Recorded, fmt.Sprintf("%s ago, %s: %s", ago(now, happened(&events[i])), events[i].Reason, events[i].Message))
	}
}

// happened is when the Event was last seen; the API has several fields for it.
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
