package checks_test

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/checks"
	"github.com/muster-dev/muster/test/queues"
)

// The request has a label with its queue, if the name is a valid label value.
func TestRequestsNameTheirQueue(t *testing.T) {
	for queue, want := range map[string]string{"main": "main", strings.Repeat("x", 64): ""} {
		w := queues.WithCapacityCheck(t)
		object := w.Workload(t, "train", map[string]string{"lq": queue})
		w.Set(object)
		r := checks.NewEvaluator(w.State.Cache, w.Now).NewRequest(w.State.Workloads[object.UID], "train-1", checks.CapacityClass, nil, nil)
		if got := r.Object.Labels[state.QueueLabel]; got != want {
			t.Errorf("the request of queue %s is labelled %q, want %q", queue, got, want)
		}
	}
}

// The budget limits the latest end of a Workload.
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
			w := queues.WithCapacityCheck(t)
			var got *int64
			w.Plan = func(_ *planner.Snapshot, gang state.Gang, _ state.Policy) planner.Verdict {
				got = gang.PodSets[0].Template.Spec.ActiveDeadlineSeconds
				return planner.Verdict{Outcome: planner.Launch}
			}
			object := w.Workload(t, "train", map[string]string{"gpu": "1"})
			object.Spec.MaximumExecutionTimeSeconds = tc.time
			object.Spec.PodSets[0].Template.Spec.ActiveDeadlineSeconds = tc.own
			w.Set(object)
			w.State.Cycle(w.Now)
			if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("pods end after %v, want %v", got, tc.want)
			}
			if own := object.Spec.PodSets[0].Template.Spec.ActiveDeadlineSeconds; own != tc.own {
				t.Errorf("the Workload was changed to %v", own)
			}
		})
	}
}
