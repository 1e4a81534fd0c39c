package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

// JobState is the state of a job that queues, in a word.
type JobState string

// The states of jobs, in the order in which they are listed.
const (
	// Running: it is admitted.
	Running JobState = "Running"
	// Stopping: it is evicted, or about to be since it is held, and pods of it may still run.
	Stopping JobState = "Stopping"
	// Starting: it has quota, and waits for machines or another admission check.
	Starting JobState = "Starting"
	// Waiting: it has no quota.
	Waiting JobState = "Waiting"
	// Held: its Workload is not active, so it stays out of the queue.
	Held JobState = "Held"
	// Failed and Finished: it has ended, without or with success.
	Failed   JobState = "Failed"
	Finished JobState = "Finished"
)

// JobStates are all of them, in their order.
var JobStates = []JobState{Running, Stopping, Starting, Waiting, Held, Failed, Finished}

// JobLine is a job that queues, in whatever state.
type JobLine struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Workload  string   `json:"workload"`
	State     JobState `json:"state"`
	// Since is when the state began.
	Since        time.Time `json:"since"`
	LocalQueue   string    `json:"localQueue"`
	ClusterQueue string    `json:"clusterQueue,omitempty"`
	// User that created it, where users are recorded.
	User     string `json:"user,omitempty"`
	Priority int32  `json:"priority"`
	Pods     int32  `json:"pods"`
	// Devices are the extended resources that all of its pods request.
	Devices corev1.ResourceList `json:"devices,omitempty"`
	// USDPerHour is the price of the machines that it has, and USDSoFar what it has paid for machines. Both are empty if it has none, or
	// if the caller may not read what costs are computed from. The cost of a job that has ended is in
	// the history, see Past.AddCosts.
	USDPerHour string `json:"usdPerHour,omitempty"`
	USDSoFar   string `json:"usdSoFar,omitempty"`
	// Words say what it waits for, or why it has ended.
	Words string `json:"words,omitempty"`

	// Age is Since as text, DevicesText the devices.
	Age         string `json:"-"`
	DevicesText string `json:"-"`
}

// Jobs lists the jobs that queue in a namespace, or in all if that is empty: by state, and the longest in it first.
func (p *Picture) Jobs(namespace string) []JobLine {
	words := map[types.NamespacedName]string{}
	if p.KnowsQueues() {
		for _, l := range p.Lines() {
			words[types.NamespacedName{Namespace: l.Namespace, Name: l.Workload}] = l.Words
		}
	}
	costs := map[types.NamespacedName]JobCost{}
	if p.Decides() {
		for _, c := range p.CostsIn(namespace).Jobs {
			costs[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = c
		}
	}
	out := []JobLine{}
	for _, w := range p.Workloads {
		if namespace != "" && w.Namespace != namespace || workload.IsReplaced(w) {
			continue
		}
		l := p.Job(w)
		if decided := words[workload.KeyOf(w)]; decided != "" && l.State != Failed {
			l.Words = decided
		}
		c := costs[types.NamespacedName{Namespace: l.Namespace, Name: l.Name}]
		l.USDPerHour, l.USDSoFar = c.USDPerHour, c.SoFar
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b JobLine) int {
		return cmp.Or(cmp.Compare(slices.Index(JobStates, a.State), slices.Index(JobStates, b.State)), a.Since.Compare(b.Since),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Job describes the job of a Workload as it is recorded, without its costs.
func (p *Picture) Job(w *kueue.Workload) JobLine {
	l := JobLine{
		Namespace: w.Namespace, Name: history.NameOf(w), Workload: w.Name, LocalQueue: string(w.Spec.QueueName), Priority: priorityOf(w),
		User: w.Annotations[workload.SubmittedByAnnotation],
	}
	if w.Status.Admission != nil {
		l.ClusterQueue = string(w.Status.Admission.ClusterQueue)
	}
	l.State, l.Since = stateOf(w)
	l.Age, l.Words = ago(p.Now, l.Since), p.recordedWords(w, l.State)
	pods, devices := history.DevicesOf(w)
	l.Pods = pods
	l.Devices, l.DevicesText = devices.List(), DevicesText(devices)
	return l
}

// DevicesText lists numbers of devices, such as 8 nvidia.com/gpu.
func DevicesText[K ~string](devices map[K]int64) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		texts = append(texts, fmt.Sprintf("%d %s", devices[name], name))
	}
	return strings.Join(texts, ", ")
}

// stateOf returns the state of a Workload, and when it began.
func stateOf(w *kueue.Workload) (JobState, time.Time) {
	since := func(condition string) time.Time {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, condition); c != nil {
			return c.LastTransitionTime.Time
		}
		return w.CreationTimestamp.Time
	}
	switch {
	case workload.IsFinished(w):
		if history.Succeeded(w) {
			return Finished, since(kueue.WorkloadFinished)
		}
		return Failed, since(kueue.WorkloadFinished)
	case workload.HasQuota(w) && (workload.IsEvicted(w) || !workload.IsActive(w)):
		return Stopping, since(kueue.WorkloadEvicted)
	case !workload.IsActive(w):
		return Held, since(kueue.WorkloadEvicted)
	case workload.IsAdmitted(w):
		return Running, since(kueue.WorkloadAdmitted)
	case workload.HasQuota(w):
		return Starting, since(kueue.WorkloadQuotaReserved)
	}
	return Waiting, workload.WaitsSince(w)
}

// recordedWords say what Muster recorded on a Workload of the state.
func (p *Picture) recordedWords(w *kueue.Workload, state JobState) string {
	switch state {
	case Starting:
		return "has quota and waits for admission checks"
	case Stopping:
		return strings.Join(causesOf(w, kueue.WorkloadEvicted), "; ")
	case Failed:
		return strings.Join(causesOf(w, kueue.WorkloadFinished), "; ")
	case Waiting:
		if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
			return p.wordsFor(w, c.Reason)
		}
		return "nothing is recorded yet"
	}
	return ""
}
