package view

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

// JobPhase is the time that a job was in a state.
type JobPhase struct {
	State JobState
	From  time.Time
	// To is zero for the phase that the job is in.
	To time.Time
}

// PhasesOf returns the phases of the last attempt of a Workload. A Workload has no times of earlier attempts: they are part of the first
// phase, Waiting.
func PhasesOf(w *kueue.Workload) []JobPhase {
	out := []JobPhase{{State: Waiting, From: w.CreationTimestamp.Time}}
	begin := func(state JobState, condition string) {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
			out = begun(out, state, c.LastTransitionTime.Time)
		}
	}
	begin(Starting, kueue.WorkloadQuotaReserved)
	begin(Running, kueue.WorkloadAdmitted)
	switch state, since := stateOf(w); state {
	case Stopping, Held:
		out = begun(out, state, since)
	case Failed, Finished:
		out[len(out)-1].To = since
	}
	return out
}

// PhasesOfEnded returns the phases of the last attempt of a job that has ended.
func PhasesOfEnded(j *history.Job) []JobPhase {
	out := []JobPhase{{State: Waiting, From: j.Created}}
	if !j.Reserved.IsZero() {
		out = begun(out, Starting, j.Reserved)
	}
	if !j.Started.IsZero() {
		out = begun(out, Running, j.Started)
	}
	out[len(out)-1].To = j.Ended
	return out
}

// begun ends the last phase with the begin of another one.
func begun(phases []JobPhase, state JobState, at time.Time) []JobPhase {
	last := &phases[len(phases)-1]
	if at.Before(last.From) {
		at = last.From
	}
	last.To = at
	return append(phases, JobPhase{State: state, From: at})
}

// NodesOf lists the nodes that a job of a namespace, such as job/train, has booked or runs on.
func (p *Picture) NodesOf(namespace, job string) []NodeLine {
	return slices.DeleteFunc(p.NodesIn("").Nodes, func(n NodeLine) bool { return !slices.Contains(n.Jobs, namespace+"/"+job) })
}

// Eviction is a reason for which a job was evicted, and how often.
type Eviction struct {
	Reason string `json:"reason"`
	Count  int32  `json:"count"`
}

// EvictionsOf counts the evictions of a Workload by reason.
func EvictionsOf(w *kueue.Workload) (out []Eviction) {
	if w.Status.SchedulingStats == nil {
		return nil
	}
	for i := range w.Status.SchedulingStats.Evictions {
		e := &w.Status.SchedulingStats.Evictions[i]
		at := slices.IndexFunc(out, func(o Eviction) bool { return o.Reason == e.Reason })
		if at < 0 {
			out = append(out, Eviction{Reason: e.Reason})
			at = len(out) - 1
		}
		out[at].Count += e.Count
	}
	return out
}

// HasStarted reports whether a job of a Workload has or had quota, as far as its last attempt shows.
func HasStarted(w *kueue.Workload) bool {
	return workload.HasQuota(w) || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
}
