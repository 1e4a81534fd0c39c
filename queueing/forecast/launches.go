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

// Launched takes in a ProvisioningRequest. One that is Provisioned with the machines that
// were launched for it teaches how long launches of their groups take. Any other one, also
// one whose launch failed and that fitted elsewhere after that, one that waited for what
// others leave, or one that was seen before teaches nothing.
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
		h.launches[l.Group] = after[max(0, len(after)-mostRuns):]
	}
}

// attemptOf is the last try to launch machines for a request; an empty one where there is
// none that can be read.
func attemptOf(r *autoscaling.ProvisioningRequest) transaction.Attempt {
	a, err := transaction.DecodeAttempt(string(r.Status.ProvisioningClassDetails[transaction.AttemptDetail]))
	if err != nil {
		return transaction.Attempt{Phase: transaction.Done}
	}
	return a
}

// underWay returns what is being launched for a request and since when, or nil if it is not
// known.
func underWay(r *autoscaling.ProvisioningRequest) (*planner.Verdict, time.Time) {
	a := attemptOf(r)
	if a.Phase != transaction.Launching {
		return nil, r.CreationTimestamp.Time
	}
	return &planner.Verdict{Outcome: planner.Launch, Launches: a.Launches, Shares: a.Shares, Chance: certain}, a.Started
}

// certain is the chance of a launch that has begun: those that fail are few.
const certain = 1000

// launchTimes are those of the groups of which enough is known, the shortest first.
func (h *History) launchTimes() map[string][]time.Duration {
	if h == nil {
		return nil
	}
	out := map[string][]time.Duration{}
	for group, list := range h.launches {
		if len(list) < fewestRuns {
			continue
		}
		for _, r := range list {
			out[group] = append(out[group], r.took)
		}
		slices.Sort(out[group])
	}
	return out
}

// LaunchTime is how long half of the past launches of the groups took, the longest of them; known is false, and it is what is taken for
// any group, where too few were seen of one.
func (h *History) LaunchTime(groups []planner.GroupCount) (took time.Duration, known bool) {
	const half = 0.5
	b := &belief{launches: h.launchTimes()}
	for _, g := range groups {
		if len(b.launches[g.Group]) == 0 {
			return LaunchTime, false
		}
	}
	return b.launch(groups, half), len(groups) > 0
}

// launch is how long one takes until the machines of all groups are there, with that much
// luck.
func (b *belief) launch(groups []planner.GroupCount, luck float64) time.Duration {
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
