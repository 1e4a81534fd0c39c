package queueing

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestPreemptionGates: a closed gate keeps a Workload from having others leave,
// not from quota that is free.
func TestPreemptionGates(t *testing.T) {
	victims, free := &proposal{victims: []victim{{}}}, &proposal{}
	for name, c := range map[string]struct {
		gates  []kueue.PreemptionGate
		states []kueue.PreemptionGateState
		of     *proposal
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
			w := oneQueue(t)
			w.add(t, "train", nil)
			object := w.find(t, "train")
			object.Spec.PreemptionGates, object.Status.PreemptionGates = c.gates, c.states
			w.set(object)
			h := w.s.at(w.now).withheld(w.s.workloads[object.UID], c.of)
			if (h != nil) != c.held {
				t.Fatalf("withheld: %+v; want %v", h, c.held)
			}
			if h == nil {
				return
			}
			status := Waiting(object, nil, h.reason, h.message, w.now)
			if blocked := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadBlockedOnPreemptionGates); blocked == nil || blocked.Reason != kueue.PreemptionGated {
				t.Errorf("whoever opens gates is not told: %+v", status.Conditions)
			}
		})
	}
}

// TestAnEvictionClosesTheGates: the next attempt has to ask again.
func TestAnEvictionClosesTheGates(t *testing.T) {
	object := &kueue.Workload{}
	object.Status.PreemptionGates = []kueue.PreemptionGateState{{Name: "a", Position: kueue.PreemptionGatePositionOpen}}
	object.Status.Conditions = append(object.Status.Conditions, conditionTrue(kueue.WorkloadBlockedOnPreemptionGates))
	status := Evicted(object, kueue.WorkloadEvictedByPreemption, "", newWorld().now)
	if status.PreemptionGates[0].Position != kueue.PreemptionGatePositionClosed || apimeta.IsStatusConditionTrue(status.Conditions, kueue.WorkloadBlockedOnPreemptionGates) {
		t.Errorf("after the eviction: %+v", status)
	}
	// It waits for nothing but quota.
	if !apimeta.IsStatusConditionTrue(status.Conditions, kueue.WorkloadRequeued) {
		t.Error("a preempted workload is not requeued at once")
	}
}
