// Package notify decides which changes of jobs and budgets are worth a Notification, and writes it in the formats of receivers.
package notify

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

// Kind of a Notification.
type Kind string

const (
	Started Kind = "job.started"
	// Delayed: the job waits longer than the first estimate of its start said.
	Delayed  Kind = "job.delayed"
	Evicted  Kind = "job.evicted"
	Finished Kind = "job.finished"
	// BudgetReached: 80 or 100 percent of the budget are spent.
	BudgetReached Kind = "budget.reached"
)

// Notification reports a change to a receiver. Exactly one of Job and Budget is set.
type Notification struct {
	// ID is the same each time the same change is reported, and differs between changes.
	ID   string
	Kind Kind
	Time time.Time
	// Summary is one sentence.
	Summary string
	Job     *Job
	Budget  *Budget
}

// Namespace of the job; empty for a budget.
func (n *Notification) Namespace() string {
	if n.Job == nil {
		return ""
	}
	return n.Job.Namespace
}

// Job is the data of a Notification about one.
type Job struct {
	Namespace string `json:"namespace"`
	// Job with its kind, as in job/train.
	Job          string           `json:"job"`
	Workload     string           `json:"workload"`
	Queue        string           `json:"queue"`
	ClusterQueue string           `json:"clusterQueue,omitempty"`
	Pods         int32            `json:"pods,omitempty"`
	Devices      map[string]int64 `json:"devices,omitempty"`
	Created      time.Time        `json:"created"`
	// Reason and Message are those of the eviction.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Outcome of a job that has ended: Finished, Failed or Cancelled.
	Outcome history.Outcome `json:"outcome,omitempty"`
	// ExpectedBy is the latest start of the first estimate, and NowExpected the start of the newest one.
	ExpectedBy  time.Time `json:"expectedBy,omitzero"`
	NowExpected time.Time `json:"nowExpected,omitzero"`
}

// Budget is the data of a Notification about one.
type Budget struct {
	CapacityPolicy string    `json:"capacityPolicy"`
	Budget         string    `json:"budget"`
	Percent        int32     `json:"percent"`
	SpentUSD       string    `json:"spentUSD"`
	LimitUSD       string    `json:"limitUSD"`
	PeriodStart    time.Time `json:"periodStart"`
	PeriodEnd      time.Time `json:"periodEnd"`
}

// jobOf has what all Notifications about the job of a Workload have. Before is the Workload while it still had its pod sets.
func jobOf(w, before *kueue.Workload) *Job {
	ended := history.End(w, before, time.Time{})
	return &Job{
		Namespace: ended.Namespace, Job: ended.Name, Workload: ended.Workload, Queue: ended.Queue, ClusterQueue: ended.ClusterQueue,
		Pods: ended.Pods, Devices: ended.Devices, Created: ended.Created,
	}
}

func about(w *kueue.Workload, kind Kind, at time.Time, job *Job, summary string) Notification {
	return Notification{
		ID: fmt.Sprintf("%s-%s-%d", w.UID, strings.TrimPrefix(string(kind), "job."), at.Unix()), Kind: kind, Time: at.UTC(), Job: job,
		Summary: fmt.Sprintf("%s/%s %s", w.Namespace, job.Job, summary),
	}
}

// OfWorkload returns the Notifications of a change of a Workload. Before is nil when the process sees the Workload first: then changes
// after since are reported, which the process before it may not have done. Copies in worker clusters are reported by their manager.
func OfWorkload(before, now *kueue.Workload, since time.Time) (out []Notification) {
	if workload.IsCopy(now) {
		return nil
	}
	pods := now
	if before != nil && before.UID == now.UID {
		pods = before
	} else {
		before = nil
	}
	if c := became(before, now, kueue.WorkloadAdmitted, since); c != nil && workload.ReplacedKey(now).Name == "" {
		at := c.LastTransitionTime.Time
		out = append(out, about(now, Started, at, jobOf(now, pods),
			fmt.Sprintf("started after %s.", at.Sub(workload.WaitsSince(now)).Truncate(time.Second))))
	}
	if c := became(before, now, kueue.WorkloadEvicted, since); c != nil && stops(before, now, c.Reason) {
		job := jobOf(now, pods)
		job.Reason, job.Message = c.Reason, c.Message
		out = append(out, about(now, Evicted, c.LastTransitionTime.Time, job,
			fmt.Sprintf("was evicted (%s): %s", c.Reason, c.Message)))
	}
	if c := became(before, now, kueue.WorkloadFinished, since); c != nil && !workload.IsReplaced(now) {
		job := jobOf(now, pods)
		job.Outcome, job.Message = history.Finished, c.Message
		summary := "has finished."
		if !history.Succeeded(now) {
			job.Outcome, job.Reason, summary = history.Failed, c.Reason, "has failed: "+c.Message
		}
		out = append(out, about(now, Finished, c.LastTransitionTime.Time, job, summary))
	}
	return out
}

// OfDeleted returns the Notification of a Workload that was deleted before its job had ended; nil for others.
func OfDeleted(w *kueue.Workload, now time.Time) []Notification {
	if workload.IsCopy(w) || workload.IsFinished(w) {
		return nil
	}
	job := jobOf(w, w)
	job.Outcome = history.Cancelled
	return []Notification{about(w, Finished, now, job, "was cancelled: its Workload was deleted.")}
}

// became returns a condition that is true and was not, or became so after since where the Workload before is not known.
func became(before, now *kueue.Workload, condition string, since time.Time) *metav1.Condition {
	c := apimeta.FindStatusCondition(now.Status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	if before == nil {
		if c.LastTransitionTime.Time.Before(since) {
			return nil
		}
		return c
	}
	was := apimeta.FindStatusCondition(before.Status.Conditions, condition)
	if was != nil && was.Status == c.Status && was.Reason == c.Reason && was.LastTransitionTime.Equal(&c.LastTransitionTime) {
		return nil
	}
	return c
}

// stops reports whether an eviction stops a job that ran, or ends its wait: a Workload that loses quota before it is admitted goes on
// waiting.
func stops(before, now *kueue.Workload, reason string) bool {
	return workload.IsAdmitted(now) || before != nil && workload.IsAdmitted(before) ||
		strings.HasPrefix(reason, kueue.WorkloadDeactivated+workload.DueTo)
}

// OfPolicy returns the Notifications of a change of a CapacityPolicy: each budget whose share that Muster warns of has grown. Before
// is nil when the process sees the policy first: then what was measured after since is reported.
func OfPolicy(before, now *v1alpha1.CapacityPolicy, since time.Time) (out []Notification) {
	for i := range now.Status.Budgets {
		b := &now.Status.Budgets[i]
		if b.WarnedPercent == 0 || before == nil && b.At.Time.Before(since) || before != nil && warned(before, b) {
			continue
		}
		data := &Budget{
			CapacityPolicy: now.Name, Budget: b.Name, Percent: b.WarnedPercent, SpentUSD: b.Spent,
			PeriodStart: b.PeriodStart.UTC(), PeriodEnd: b.PeriodEnd.UTC(),
		}
		for j := range now.Spec.Budgets {
			if now.Spec.Budgets[j].Name == b.Name {
				data.LimitUSD = text.USD(nodegroups.MicroUSD(&now.Spec.Budgets[j].USD))
			}
		}
		out = append(out, Notification{
			ID: fmt.Sprintf("%s-%s-%d-%d", now.UID, b.Name, b.PeriodStart.Unix(), b.WarnedPercent), Kind: BudgetReached,
			Time: b.At.UTC(), Budget: data,
			Summary: fmt.Sprintf("Budget %s of CapacityPolicy %s has reached %d%%: %s of %s USD are spent, and it ends at %s.",
				b.Name, now.Name, b.WarnedPercent, b.Spent, data.LimitUSD, data.PeriodEnd.Format(time.RFC3339)),
		})
	}
	return out
}

// warned reports whether a policy had the warning of a budget before.
func warned(before *v1alpha1.CapacityPolicy, b *v1alpha1.BudgetStatus) bool {
	for i := range before.Status.Budgets {
		if o := &before.Status.Budgets[i]; o.Name == b.Name && o.PeriodStart.Equal(&b.PeriodStart) {
			return o.WarnedPercent >= b.WarnedPercent
		}
	}
	return false
}
