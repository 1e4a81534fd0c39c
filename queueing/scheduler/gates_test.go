package scheduler

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestPreemptionGates: a closed gate keeps a Workload from having others leave,
// not from quota that is free.
func TestPreemptionGates(t *testing.T) {
	victims, free := &Assignment{victims: []victim{{}}}, &Assignment{}
	for name, c := range map[string]struct {
		gates  []kueue.PreemptionGate
		states []kueue.PreemptionGateState
		of     *Assignment
		held   bool
	}{
		"no gate":                   {of: victims},
		"a gate without a state":    {gates: []kueue.PreemptionGate{{Name: "a"}}, of: victims, held: true},
		"a closed gate":             {gates: []kueue.PreemptionGate{{Name: "a"}}, states: []kueue.PreemptionGateState{{Name: "a", Position: kueue.PreemptionGatePositionClosed}}, of: victims, held: true},
		"an open gate":              {gates: []kueue.PreemptionGate{{Name: "a"}}, states: []kueue.PreemptionGateState{{Name: "a", Position: kueue.PreemptionGatePositionOpen}}, of: victims},
		"one of two is open":        {gates: []kueue.PreemptionGate{{Name: "a"}, {Name: "b"}}, states: []kueue.PreemptionGateState{{Name: "a", Position: kueue.PreemptionGatePositionOpen}}, of: victims, held: true},
		"closed, but quota is free": {gates: []kueue.PreemptionGate{{Name: "a"}}, of: free},
	} {
		t.Run(name, func(t *testing.T) {
			object := &kueue.Workload{}
			object.Spec.PreemptionGates, object.Status.PreemptionGates = c.gates, c.states
			h := (&Cycle{}).closedGate(&cache.Workload{Object: object}, c.of)
			if (h != nil) != c.held {
				t.Fatalf("gated: %+v; want %v", h, c.held)
			}
			if h == nil {
				return
			}
			status := workload.Waiting(object, nil, h.reason, h.message, time.Now())
			if blocked := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadBlockedOnPreemptionGates); blocked == nil ||
				blocked.Reason != kueue.PreemptionGated {
				t.Errorf("the condition for those that open gates is missing: %+v", status.Conditions)
			}
		})
	}
}
