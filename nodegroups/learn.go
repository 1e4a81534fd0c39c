package nodegroups

import (
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// keptAttempts is the number of attempts in a NodeGroup's status.
	keptAttempts = 10
	// keptMessage is how many bytes of a cloud's message a status keeps.
	keptMessage = 1024
)

// Recorded reports whether the status has the outcome already, or has dropped it: a full list has dropped the outcomes as old as its last,
// to the second in which statuses are written. So of more than ten outcomes in one second some are ignored. Otherwise, some would count
// twice.
func Recorded(status v1alpha1.NodeGroupStatus, a v1alpha1.LaunchAttempt) bool {
	list := status.Attempts
	return slices.ContainsFunc(list, func(o v1alpha1.LaunchAttempt) bool { return o.Token == a.Token }) ||
		len(list) >= keptAttempts && !seconds(a.Time).After(list[len(list)-1].Time.Time)
}

// Learn returns the status with the outcome of one more launch. An outcome that it has already changes nothing. The given status is not
// changed.
func Learn(status v1alpha1.NodeGroupStatus, a v1alpha1.LaunchAttempt) v1alpha1.NodeGroupStatus {
	if Recorded(status, a) {
		return status
	}
	// The result must be the same after the status was written and read.
	a.Time = seconds(a.Time)
	a.Message = shorten(a.Message, keptMessage)
	newest := slices.IndexFunc(status.Attempts, func(o v1alpha1.LaunchAttempt) bool { return !o.Time.After(a.Time.Time) })
	if newest < 0 {
		newest = len(status.Attempts)
	}
	status.Attempts = slices.Insert(slices.Clone(status.Attempts), newest, a)
	status.Attempts = status.Attempts[:min(len(status.Attempts), keptAttempts)]

	list := remembered(status.Backoffs, a.Time.Time)
	if a.Class == "" {
		status.Ledger = observe(status.Ledger, int(a.Requested), a.Level, observation, 0, a.Time.Time)
		return withBackoffs(status, disproved(list, a))
	}
	if len(a.Taints) > 0 {
		// It failed for what gangs have to tolerate there, which WithTaints remembers: the next that does need not wait.
		return withBackoffs(status, list)
	}
	list, news := backOff(list, a)
	if news && handlingOf(a.Class).isEvidence {
		status.Ledger = observe(status.Ledger, int(a.Requested), a.Level, 0, observation, a.Time.Time)
	}
	return withBackoffs(status, list)
}

// withBackoffs sets the backoffs and their summary.
func withBackoffs(status v1alpha1.NodeGroupStatus, list []v1alpha1.Backoff) v1alpha1.NodeGroupStatus {
	status.Backoffs, status.Failures, status.BackoffUntil = list, 0, nil
	for i := range list {
		status.Failures = max(status.Failures, list[i].Failures)
		if until := list[i].Until; status.BackoffUntil == nil || status.BackoffUntil.Before(&until) {
			status.BackoffUntil = &until
		}
	}
	return status
}

// seconds is t as a status keeps it.
func seconds(t metav1.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// shorten cuts s to at most so many bytes, between two characters.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
