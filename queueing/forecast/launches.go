package forecast

import (
	"math"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Launched records the duration of a launch for a ProvisioningRequest that is Provisioned with the launched machines.
// It ignores all other requests: one whose launch failed before it fitted elsewhere, one that waited for machines that
// others release, and one that was recorded before.
func (h *History) Launched(r *autoscaling.ProvisioningRequest) {
	c := apimeta.FindStatusCondition(r.Status.Conditions, autoscaling.Provisioned)
	attempt := attemptOf(r)
	if c == nil || c.Status != metav1.ConditionTrue || attempt.Failure != nil || len(attempt.Shares) > 0 {
		return
	}
	for _, l := range attempt.Launches {
		before := h.launches[l.Group]
		if slices.ContainsFunc(before, func(o run) bool { return o.of == r.UID }) {
			continue
		}
		if h.launches == nil {
			h.launches = map[string][]run{}
		}
		after := append(before, run{r.UID, max(0, c.LastTransitionTime.Sub(attempt.Started))})
		h.launches[l.Group] = after[max(0, len(after)-maxRuns):]
	}
}

// attemptOf returns the last attempt to launch machines for a request; an empty one if there is none that can be
// decoded.
func attemptOf(r *autoscaling.ProvisioningRequest) transaction.Attempt {
	a, err := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	if err != nil {
		return transaction.Attempt{Phase: transaction.Done}
	}
	return a
}

// launchInProgress returns what is being launched for a request and since when; nil if it is unknown.
func launchInProgress(r *autoscaling.ProvisioningRequest) (*planner.Verdict, time.Time) {
	a := attemptOf(r)
	if a.Phase != transaction.Launching {
		return nil, r.CreationTimestamp.Time
	}
	return &planner.Verdict{Outcome: planner.Launch, Launches: a.Launches, Shares: a.Shares, Chance: certain}, a.Started
}

// certain is the chance of a launch that has begun, because few of those fail.
const certain = 1000

// launchTimes returns the launch times of the groups with enough launches, the shortest first.
func (h *History) launchTimes() map[string][]time.Duration {
	if h == nil {
		return nil
	}
	out := map[string][]time.Duration{}
	for group, list := range h.launches {
		if len(list) < minRuns {
			continue
		}
		for _, r := range list {
			out[group] = append(out[group], r.took)
		}
		slices.Sort(out[group])
	}
	return out
}

// LaunchTime returns the median launch time of the slowest of the groups. Known is false, and the time is the default,
// if a group has too few launches.
func (h *History) LaunchTime(groups []planner.GroupCount) (took time.Duration, known bool) {
	const half = 0.5
	b := &assumptions{launches: h.launchTimes()}
	for _, g := range groups {
		if len(b.launches[g.Group]) == 0 {
			return LaunchTime, false
		}
	}
	return b.launch(groups, half), len(groups) > 0
}

// launch returns how long a launch takes until the machines of all groups are ready. Luck is the quantile, from 0 to 1.
func (b *assumptions) launch(groups []planner.GroupCount, luck float64) time.Duration {
	unknown := time.Duration(float64(LaunchTime) * math.Pow(4, luck) / 2)
	if len(groups) == 0 {
		return unknown
	}
	var longest time.Duration
	for _, g := range groups {
		took := unknown
		if known := b.launches[g.Group]; len(known) > 0 {
			took = known[int(luck*float64(len(known)))]
		}
		longest = max(longest, took)
	}
	return longest
}
