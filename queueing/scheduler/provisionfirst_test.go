package scheduler_test

import (
	"testing"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestARequestAheadIsMadeOnce: as long as its creation is under way it is not decided
// again.
func TestARequestAheadIsMadeOnce(t *testing.T) {
	w := contested(t)
	w.Set(w.Workload(t, "urgent", map[string]string{"gpu": "8", "priority": "1"}))
	made := 0
	for range 3 {
		for _, v := range w.State.Cycle(w.Now) {
			if v.Create != nil {
				made++
			}
		}
		w.Set(w.Workload(t, "other", map[string]string{"gpu": "1"}))
	}
	if made != 1 {
		t.Errorf("it is made %d times, want once", made)
	}
}

// TestAVerdictIsNotSharedOnceAWorkloadHasRequested: two Workloads are of one equivalence
// class, but machines that are launched for one do not serve the other, which is older and
// comes first.
func TestAVerdictIsNotSharedOnceAWorkloadHasRequested(t *testing.T) {
	w := contested(t)
	w.Plan = planner.Plan
	w.State.SetCapacity(planner.NewSnapshot(w.Now, nodeset.New(), []nodegroups.Group{poolOf(8, 1)}, nil))
	older := w.Workload(t, "older", map[string]string{"gpu": "8", "priority": "1"})
	w.Set(w.Workload(t, "urgent", map[string]string{"gpu": "8", "priority": "1"}))
	w.Cycles(t)
	full := poolOf(8, 1)
	full.Machines = 1
	w.State.SetCapacity(planner.NewSnapshot(w.Now, nodeset.New(), []nodegroups.Group{full}, nil))
	w.Set(older)
	w.Cycles(t)
	if got := len(w.State.Requests[w.Find(t, "urgent").UID]); got != 1 {
		t.Errorf("it has %d requests, want the one that it made", got)
	}
	if older := w.Find(t, "older"); workload.HasQuota(older) || len(w.State.Requests[older.UID]) > 0 {
		t.Error("the older one has what is the other one's")
	}
}

// contested returns a queue of 8 GPUs. A workload of low priority uses all of them.
func contested(t *testing.T) *queues.World {
	w := queues.WithCapacityCheck(t)
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"check": "capacity", "within": "LowerPriority"}, "spot gpu=8"))
	w.Set(w.Workload(t, "victim", map[string]string{"gpu": "8"}))
	w.Cycles(t)
	w.Condition(t, "victim", map[string]string{"Provisioned": "True"}, "")
	w.Cycles(t)
	return w
}
