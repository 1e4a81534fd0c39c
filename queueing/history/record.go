// Package history is the record of what ran, waited and cost: a Record for each week, which outlives the process in a ConfigMap of
// bounded size.
//
// A job is recorded when it has ended. What machines cost is recorded by day, payer, group and purpose, as it is spent; the job of a
// cost is named by its Workload, whether it has ended or not.
package history

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// Slots is how many weeks are kept, each in the ConfigMap of its slot: a full month and the week that has begun.
	Slots = 5
	// Key of a ConfigMap that has the record, as compressed JSON.
	Key = "record.json.gz"
	// MaxBytes of a record. A job with its costs takes some 60 bytes of it.
	MaxBytes = 512 << 10
	// version of the format; records of another one are not read.
	version = 1
)

// Name of the ConfigMap of a slot.
func Name(slot int) string { return fmt.Sprintf("muster-history-%d", slot) }

// Week is the Monday on which it begins, at midnight UTC.
type Week struct{ time.Time }

// WeekOf returns the week of a time.
func WeekOf(t time.Time) Week {
	day := t.UTC().Truncate(24 * time.Hour)
	return Week{day.AddDate(0, 0, -(int(day.Weekday())+6)%7)}
}

// Slot returns the index of the slot that holds the record of the week.
func (w Week) Slot() int { return int(w.Unix()/int64(7*24*time.Hour/time.Second)) % Slots }

func (w Week) String() string { return w.Format(time.DateOnly) }

// Record is that of a week.
type Record struct {
	Version int `json:"version"`
	// Week by its Monday, such as 2026-11-23.
	Week string `json:"week"`
	// Jobs that ended in the week, the first to end first.
	Jobs []Job `json:"jobs,omitempty"`
	// LeftOut jobs ended earlier in the week, and were dropped for want of room: their costs are on lines without a Workload.
	LeftOut int    `json:"leftOut,omitempty"`
	Costs   []Cost `json:"costs,omitempty"`
	// Groups that costs are of.
	Groups map[string]Offering `json:"groups,omitempty"`
}

// Outcome of a job.
type Outcome string

const (
	Finished Outcome = "Finished"
	Failed   Outcome = "Failed"
	// Cancelled: it was deleted before it had ended.
	Cancelled Outcome = "Cancelled"
)

// Job is one that has ended.
type Job struct {
	Namespace string `json:"namespace"`
	// Name with the kind, as in job/train.
	Name     string  `json:"name"`
	Workload string  `json:"workload"`
	Outcome  Outcome `json:"outcome"`
	Why      string  `json:"why,omitempty"`
	Queue    string  `json:"queue"`
	// User that created the job, where users are recorded.
	User         string `json:"user,omitempty"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Priority     int32  `json:"priority,omitempty"`
	Pods         int32  `json:"pods,omitempty"`
	// Devices that all of its pods requested.
	Devices   map[string]int64 `json:"devices,omitempty"`
	Evictions int32            `json:"evictions,omitempty"`
	// Reserved is when it last got its quota, and Started when it last started; both are zero for a job that never did.
	Created  time.Time `json:"created"`
	Reserved time.Time `json:"reserved,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended"`
}

// Waited is the time before the last start, or before the end of a job that never started.
func (j *Job) Waited() time.Duration {
	if j.Started.IsZero() {
		return j.Ended.Sub(j.Created)
	}
	return j.Started.Sub(j.Created)
}

// Ran is the time from the last start to the end.
func (j *Job) Ran() time.Duration {
	if j.Started.IsZero() {
		return 0
	}
	return j.Ended.Sub(j.Started)
}

// Cost is what machines of a group have cost on a day, for a purpose and because of a tenant.
type Cost struct {
	Day string `json:"day"`
	// Namespace and Queue have caused it; both are empty for machines that no gang has had.
	Namespace string `json:"namespace,omitempty"`
	Queue     string `json:"queue,omitempty"`
	// User that created the job that pays, where users are recorded.
	User string `json:"user,omitempty"`
	// Workload that pays, or provisioningrequest/NAME without one; empty for idle machines, and for jobs that were left out.
	Workload string `json:"workload,omitempty"`
	Group    string `json:"group"`
	// Purpose is a purpose of the metric muster_machine_cost_usd_total.
	Purpose string `json:"purpose"`
	// Milliseconds of machines, their price and their list price, in millionths of a USD.
	Milliseconds int64 `json:"ms"`
	MicroUSD     int64 `json:"microUSD"`
	ListMicroUSD int64 `json:"listMicroUSD"`
}

// Offering is what a group is of.
type Offering struct {
	Provider     string `json:"provider"`
	Region       string `json:"region,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType"`
	MachineType  string `json:"machineType,omitempty"`
}

// NewRecord is that of a week, without anything.
func NewRecord(w Week) *Record {
	return &Record{Version: version, Week: w.String(), Groups: map[string]Offering{}}
}

// Has reports whether the record has a job that ended.
func (r *Record) Has(j *Job) bool {
	return slices.ContainsFunc(r.Jobs, func(o Job) bool {
		return o.Namespace == j.Namespace && o.Workload == j.Workload && o.Created.Equal(j.Created)
	})
}

// Charge adds a cost to its line.
func (r *Record) Charge(c Cost) {
	i, found := slices.BinarySearchFunc(r.Costs, c, compareLines)
	if !found {
		r.Costs = slices.Insert(r.Costs, i, c)
		return
	}
	line := &r.Costs[i]
	line.Milliseconds, line.MicroUSD, line.ListMicroUSD = line.Milliseconds+c.Milliseconds, line.MicroUSD+c.MicroUSD,
		line.ListMicroUSD+c.ListMicroUSD
}

// compareLines orders costs by what makes a line.
func compareLines(a, b Cost) int {
	return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Queue, b.Queue),
		strings.Compare(a.Workload, b.Workload), strings.Compare(a.Group, b.Group), strings.Compare(a.Purpose, b.Purpose),
		strings.Compare(a.User, b.User))
}

// Encode writes the record within MaxBytes: where it would be larger, it drops the half of its jobs that ended first, and adds their costs
// to those of their queues.
func (r *Record) Encode() ([]byte, error) {
	for {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if err := errors.Join(json.NewEncoder(w).Encode(r), w.Close()); err != nil {
			return nil, fmt.Errorf("writing the history of the week of %s: %w", r.Week, err)
		}
		if out.Len() <= MaxBytes {
			return out.Bytes(), nil
		}
		if len(r.Jobs) == 0 {
			return nil, fmt.Errorf("the costs of the week of %s take %d bytes, more than %d: its namespaces, queues and groups are too many",
				r.Week, out.Len(), MaxBytes)
		}
		r.drop((len(r.Jobs) + 1) / 2)
	}
}

// drop takes out the jobs that ended first.
func (r *Record) drop(n int) {
	dropped := map[[2]string]bool{}
	for _, j := range r.Jobs[:n] {
		dropped[[2]string{j.Namespace, j.Workload}] = true
	}
	r.Jobs, r.LeftOut = slices.Clone(r.Jobs[n:]), r.LeftOut+n
	costs := r.Costs
	r.Costs = nil
	for _, c := range costs {
		if dropped[[2]string{c.Namespace, c.Workload}] {
			c.Workload = ""
		}
		r.Charge(c)
	}
}

// Decode reads a record that Encode has written. One of another version is refused.
func Decode(text []byte) (*Record, error) {
	in, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading a record of the history: %w", err)
	}
	out := &Record{}
	if err := json.NewDecoder(in).Decode(out); err != nil {
		return nil, fmt.Errorf("reading a record of the history: %w", err)
	}
	if out.Version != version {
		return nil, fmt.Errorf("the history of the week of %s is of version %d, and not %d", out.Week, out.Version, version)
	}
	if out.Groups == nil {
		out.Groups = map[string]Offering{}
	}
	return out, nil
}
