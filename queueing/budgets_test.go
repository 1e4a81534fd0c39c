package queueing

import (
	"testing"

	"github.com/muster-dev/muster/provisioning"
)

// Namespaces have budgets apart: what one of a queue may not spend another may.
func TestTwinsOfOtherNamespacesHaveOtherBudgets(t *testing.T) {
	w := oneQueue(t)
	lq := localQueueTo("main", "team", "")
	lq.Namespace = "other"
	w.set(lq)
	w.s.plan = func(_ *provisioning.Snapshot, gang provisioning.Gang, _ provisioning.Policy) provisioning.Verdict {
		if gang.Namespace == "default" {
			return provisioning.Verdict{Outcome: provisioning.Wait, Reasons: []provisioning.Reason{{Code: provisioning.CodeBudget, Message: "it is spent"}}}
		}
		return provisioning.Verdict{Outcome: provisioning.Launch}
	}
	s := provisioning.NewSnapshot(w.now, provisioning.NewNodes(), nil, nil)
	s.Budgets = []provisioning.Budget{{Policy: "policy", Name: "default"}}
	w.s.SetCapacity(s)
	w.add(t, "a", nil)
	twin := w.workload(t, "b", map[string]string{"gpu": "1"})
	twin.Namespace = "other"
	w.set(twin)
	if got := outcomes(w.s.Cycle(w.now)); got["a"] != Wait || got["b"] != Reserve {
		t.Errorf("outcomes: %v; want the one in the namespace with a budget to wait, and its twin not", got)
	}
}

// Budgets are told when a Workload's time will be over at the latest.
func TestTheTimeThatAWorkloadHasIsThatOfItsPods(t *testing.T) {
	for _, tc := range []struct {
		name      string
		time      *int32
		own, want *int64
	}{
		{"its own", new(int32(600)), nil, new(int64(600))},
		{"that of its pods where they have less", new(int32(600)), new(int64(60)), new(int64(60))},
		{"not that of its pods where they have more", new(int32(600)), new(int64(6000)), new(int64(600))},
		{"none", nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := oneQueue(t)
			var got *int64
			w.s.plan = func(_ *provisioning.Snapshot, gang provisioning.Gang, _ provisioning.Policy) provisioning.Verdict {
				got = gang.PodSets[0].Template.Spec.ActiveDeadlineSeconds
				return provisioning.Verdict{Outcome: provisioning.Launch}
			}
			object := w.workload(t, "train", map[string]string{"gpu": "1"})
			object.Spec.MaximumExecutionTimeSeconds = tc.time
			object.Spec.PodSets[0].Template.Spec.ActiveDeadlineSeconds = tc.own
			w.set(object)
			w.s.Cycle(w.now)
			if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("pods end after %v, want %v", got, tc.want)
			}
			if own := object.Spec.PodSets[0].Template.Spec.ActiveDeadlineSeconds; own != tc.own {
				t.Errorf("the Workload was changed to %v", own)
			}
		})
	}
}
