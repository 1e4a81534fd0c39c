package nodegroups

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// pause is how long a group is left alone after a failure: first, doubled with
// each further one in a row, up to most.
type pause struct{ first, most time.Duration }

// pauses by what went wrong. A stockout may be over in half a minute; quota,
// credentials and configuration wait for a person.
var pauses = map[v1alpha1.ErrorClass]pause{
	v1alpha1.Stockout: {30 * time.Second, 10 * time.Minute},
	v1alpha1.Quota:    {5 * time.Minute, 30 * time.Minute},
	v1alpha1.Throttle: {5 * time.Second, time.Minute},
	v1alpha1.Auth:     {5 * time.Minute, 30 * time.Minute},
	v1alpha1.Config:   {5 * time.Minute, 30 * time.Minute},
	v1alpha1.Timeout:  {30 * time.Second, 10 * time.Minute},
	v1alpha1.Lost:     {30 * time.Second, 10 * time.Minute},
}

// Backoff is how long a group is left alone after its failures-th failure in a
// row (counted from 1).
func Backoff(class v1alpha1.ErrorClass, failures int) time.Duration {
	p, ok := pauses[class]
	if !ok {
		p = pauses[v1alpha1.Config]
	}
	d := p.first
	for range failures - 1 {
		if d *= 2; d >= p.most {
			return p.most
		}
	}
	return d
}

// keptAttempts is how many attempts a NodeGroup's status remembers.
const keptAttempts = 10

// Knows says whether the status has the outcome already, or is past it: a full
// list has dropped those that are older than its last.
func Knows(status v1alpha1.NodeGroupStatus, a v1alpha1.LaunchAttempt) bool {
	list := status.Attempts
	return slices.ContainsFunc(list, func(o v1alpha1.LaunchAttempt) bool { return o.Token == a.Token }) ||
		len(list) >= keptAttempts && a.Time.Before(&list[len(list)-1].Time)
}

// Learn returns the status with the outcome of one more launch in it. An outcome
// that it knows already changes nothing.
func Learn(status v1alpha1.NodeGroupStatus, a v1alpha1.LaunchAttempt) v1alpha1.NodeGroupStatus {
	if Knows(status, a) {
		return status
	}
	status.Attempts = slices.Concat([]v1alpha1.LaunchAttempt{a}, status.Attempts)
	status.Attempts = status.Attempts[:min(len(status.Attempts), keptAttempts)]
	if a.Class == "" {
		status.Failures, status.BackoffUntil = 0, nil
		return status
	}
	status.Failures++
	until := metav1.NewTime(a.Time.Add(Backoff(a.Class, int(status.Failures))))
	status.BackoffUntil = &until
	return status
}
