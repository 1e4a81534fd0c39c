package report

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/kwok/scenario"
)

// Never is the time of what has not happened.
const Never time.Duration = -1

// Record is what was observed of a run.
type Record struct {
	Scenario    string
	Description string
	Admitter    string
	// Speed by which the times of the scenario were divided.
	Speed int
	Bound scenario.Bound
	// Resource of the utilisation. Amounts of it are in thousandths.
	Resource corev1.ResourceName
	// End of the observation.
	End time.Duration
	// Jobs in the order of their submission.
	Jobs []Job
	Pods []Pod
	// Nodes are the machines that were there from the beginning.
	Nodes []Node
	// Machines that were bought, in the order of their launches.
	Machines []Machine
	// Left is how many of these existed at the end, beyond the minimum of their groups.
	Left int

	// Writes to the API server by their sender.
	Writes []Writer
	// Latency of writes at kube-apiserver: how many took at most so long.
	Latency []Bucket
	// Scheduled and Unschedulable are kube-scheduler's attempts by their result.
	Scheduled, Unschedulable int64
	// Faults counts what went wrong on purpose, by type and target.
	Faults map[string]int
	// Judged counts the checks of each promise, and Broken are the violations. Both are empty if Muster took no part.
	Judged map[string]int
	Broken []string
	// Bounded is the real time in which promises with bounds were checked: after a fault all
	// bounds restart.
	Bounded time.Duration
}

// Job that was submitted.
type Job struct {
	Name      string
	Pods      int
	Submitted time.Duration
	// Reserved is when its Workload first had quota, Admitted when all of its checks were
	// ready. Never for Jobs of no queue.
	Reserved, Admitted time.Duration
	Ended              time.Duration
	Outcome            Outcome
}

// Outcome of a Job.
type Outcome string

// The outcomes. A Job that had none by the end is Unfinished.
const (
	Succeeded  Outcome = "Succeeded"
	Failed     Outcome = "Failed"
	Unfinished Outcome = ""
)

// Pod that was created.
type Pod struct {
	// Job is an index into those of the record.
	Job int
	// Amount that it requests.
	Amount int64
	// Node that it was bound to; empty where it never was.
	Node                           string
	Created, Bound, Running, Ended time.Duration
	// Succeeded says that it ended so, or was deleted since its Job had.
	Succeeded bool
}

// Node that is there for pods.
type Node struct {
	Name   string
	Amount int64
}

// Machine that was bought.
type Machine struct {
	Name, Group string
	// Amount that its node has for pods.
	Amount int64
	// MilliUSDPerHour is its price.
	MilliUSDPerHour int64
	// Launched, Ready (its node is, with all of Amount) and Gone, which is Never for
	// machines that stood at the end.
	Launched, Ready, Gone time.Duration
}

// Writer is a client of the API server, with its number of writes.
type Writer struct {
	Who    string `json:"who"`
	Writes int64  `json:"writes"`
}

// Bucket of a histogram: so many took at most as long.
type Bucket struct {
	AtMost time.Duration
	Count  int64
}
