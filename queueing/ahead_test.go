package queueing

import (
	"testing"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestARequestAheadIsMadeOnce: as long as its creation is under way it is not decided
// again.
func TestARequestAheadIsMadeOnce(t *testing.T) {
	w := contested(t)
	w.set(w.workload(t, "urgent", map[string]string{"gpu": "8", "priority": "1"}))
	made := 0
	for range 3 {
		for _, v := range w.s.Cycle(w.now) {
			if v.Create != nil {
				made++
			}
		}
		w.set(w.workload(t, "other", map[string]string{"gpu": "1"}))
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
	w.s.plan = planner.Plan
	w.s.SetCapacity(planner.NewSnapshot(w.now, nodeset.New(), []nodegroups.Group{poolOf(8, 1)}, nil))
	older := w.workload(t, "older", map[string]string{"gpu": "8", "priority": "1"})
	w.set(w.workload(t, "urgent", map[string]string{"gpu": "8", "priority": "1"}))
	w.cycles(t)
	full := poolOf(8, 1)
	full.Machines = 1
	w.s.SetCapacity(planner.NewSnapshot(w.now, nodeset.New(), []nodegroups.Group{full}, nil))
	w.set(older)
	w.cycles(t)
	if got := len(w.s.Requests[w.find(t, "urgent").UID]); got != 1 {
		t.Errorf("it has %d requests, want the one that it made", got)
	}
	if older := w.find(t, "older"); workload.HasQuota(older) || len(w.s.Requests[older.UID]) > 0 {
		t.Error("the older one has what is the other one's")
	}
}

// contested returns a queue of 8 GPUs. A workload of low priority uses all of them.
func contested(t *testing.T) *world {
	w := oneQueue(t)
	w.set(clusterQueue(t, "team", map[string]string{"check": "capacity", "within": "LowerPriority"}, "spot gpu=8"))
	w.set(w.workload(t, "victim", map[string]string{"gpu": "8"}))
	w.cycles(t)
	w.condition(t, "victim", map[string]string{"Provisioned": "True"}, "")
	w.cycles(t)
	return w
}
