package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// flood returns a world with the queues crowd and calm in one cohort. crowd has so many pending Workloads. All of them differ, and none
// of them can have machines.
func flood(t *testing.T, workloads int) (w *queues.World, planned *int) {
	t.Helper()
	w, planned = queues.NewWith(config.Config{}), new(int)
	plan := w.Plan
	w.Plan = func(s *planner.Snapshot, g state.Gang, p state.Policy) planner.Verdict {
		*planned++
		return plan(s, g, p)
	}
	ac := &kueue.AdmissionCheck{}
	ac.Name, ac.Spec.ControllerName = "capacity", cache.CapacityController
	w.Set(ac)
	w.Set(queues.Flavor("spot", nil))
	w.Machines["spot"] = 1
	for _, name := range []string{"crowd", "calm"} {
		w.Set(queues.ClusterQueue(t, name, map[string]string{"cohort": "all", "check": "capacity"}, "spot cpu=10000000"))
		w.Set(queues.LocalQueue(name, name, ""))
	}
	for i := range workloads {
		w.Set(w.Workload(t, fmt.Sprintf("crowd-%04d", i), map[string]string{"lq": "crowd", "cpu": fmt.Sprint(i + 2), "count": "2"}))
	}
	return w, planned
}

// applyCycle runs one cycle and carries out its verdicts.
func applyCycle(w *queues.World) {
	for _, v := range w.State.Cycle(w.Now) {
		w.Apply(&v, nil)
	}
}

// TestAQueueOfManyShapesDelaysNoOther has a Workload arrive in another queue while thousands are evaluated.
func TestAQueueOfManyShapesDelaysNoOther(t *testing.T) {
	w, planned := flood(t, 3000)
	perCycle := scheduler.DefaultBudget / scheduler.EffortOfPlan
	w.Set(w.Workload(t, "small", map[string]string{"lq": "calm", "cpu": "1"}))
	applyCycle(w)
	if *planned > perCycle+1 || !w.HasQuota(t, "small") {
		t.Errorf("the first cycle made %d plans, want at most %d; small has quota: %t", *planned, perCycle+1, w.HasQuota(t, "small"))
	}
	cycles := 1
	for ; !w.State.ResumeAt.IsZero(); cycles++ {
		if !w.State.WakeAt().Equal(w.Now) {
			t.Fatalf("%d Workloads are not evaluated, and the next cycle is at %s", len(w.State.Queues["crowd"].Unevaluated), w.State.WakeAt())
		}
		applyCycle(w)
	}
	if least := 3000 / perCycle; cycles < least || cycles > least+2 {
		t.Errorf("all are evaluated after %d cycles, want about %d", cycles, least)
	}
	for _, x := range w.State.Queues["crowd"].WithQuota {
		t.Errorf("%s has quota", x.Object.Name)
	}
	for _, x := range w.State.PendingInOrder("crowd") {
		if x.Status.Conditions == nil {
			t.Errorf("%s has no reason", x.Name)
		}
	}
}

// TestManyCrowdedQueuesShareACycle has as many queues with many shapes as make one evaluation of each a cycle's budget.
func TestManyCrowdedQueuesShareACycle(t *testing.T) {
	w, planned := flood(t, 0)
	const number = 300
	for i := range number {
		name := fmt.Sprintf("queue-%d", i)
		w.Set(queues.ClusterQueue(t, name, map[string]string{"check": "capacity"}, "spot cpu=10000000"))
		w.Set(queues.LocalQueue(name, name, ""))
		for k := range 10 {
			w.Set(w.Workload(t, fmt.Sprintf("w-%d-%d", i, k), map[string]string{"lq": name, "cpu": fmt.Sprint(k + 2), "count": "2"}))
		}
	}
	for cycle := 0; cycle == 0 || !w.State.ResumeAt.IsZero(); cycle++ {
		*planned = 0
		applyCycle(w)
		if most := 2*scheduler.DefaultBudget/scheduler.EffortOfPlan + 2*number; *planned > most {
			t.Errorf("cycle %d made %d plans, want at most %d", cycle, *planned, most)
		}
		for _, q := range w.State.Order {
			if cycle == 0 && q.Pending.Len() > 0 && len(q.Unevaluated) == q.Pending.Len() {
				t.Errorf("nothing of %s was evaluated", q.Object.Name)
			}
		}
		if cycle > number*10 {
			t.Fatal("the cycles have no end")
		}
	}
}

// TestTheEndOfAQueueIsEvaluated releases quota in every cycle, so that Workloads are evaluated again before the cycle has reached the end
// of the queue.
func TestTheEndOfAQueueIsEvaluated(t *testing.T) {
	w, _ := flood(t, 1000)
	w.Now = w.Now.Add(time.Second)
	w.Set(w.Workload(t, "small", map[string]string{"lq": "crowd", "cpu": "1"}))
	most := 2*1000*scheduler.EffortOfPlan/scheduler.DefaultBudget + 2
	for cycle := range most {
		applyCycle(w)
		if workload.HasQuota(w.Find(t, "small")) {
			t.Logf("small has quota in cycle %d", cycle+1)
			return
		}
		w.State.Queues["crowd"].Tree.QuotaReleased = true
	}
	t.Errorf("small has no quota after %d cycles", most)
}
