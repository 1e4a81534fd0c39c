package queueing

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
)

// flood returns a world with the queues crowd and calm in one cohort. crowd has so many pending Workloads. All of them differ, and none
// of them can have machines.
func flood(t *testing.T, workloads int) (w *world, planned *int) {
	t.Helper()
	w, planned = newWorldWith(config.Config{}), new(int)
	plan := w.s.plan
	w.s.plan = func(s *planner.Snapshot, g state.Gang, p state.Policy) planner.Verdict {
		*planned++
		return plan(s, g, p)
	}
	ac := &kueue.AdmissionCheck{}
	ac.Name, ac.Spec.ControllerName = "capacity", cache.CapacityController
	w.set(ac)
	w.set(flavor("spot", nil))
	w.machines["spot"] = 1
	for _, name := range []string{"crowd", "calm"} {
		w.set(clusterQueue(t, name, map[string]string{"cohort": "all", "check": "capacity"}, "spot cpu=10000000"))
		w.set(localQueueTo(name, name, ""))
	}
	for i := range workloads {
		w.set(w.workload(t, fmt.Sprintf("crowd-%04d", i), map[string]string{"lq": "crowd", "cpu": fmt.Sprint(i + 2), "count": "2"}))
	}
	return w, planned
}

// applyCycle runs one cycle and carries out its verdicts.
func (w *world) applyCycle() {
	for _, v := range w.s.Cycle(w.now) {
		w.apply(&v, nil)
	}
}

// TestAQueueOfManyShapesDelaysNoOther has a Workload arrive in another queue while thousands are evaluated.
func TestAQueueOfManyShapesDelaysNoOther(t *testing.T) {
	w, planned := flood(t, 3000)
	perCycle := scheduler.DefaultBudget / scheduler.EffortOfPlan
	w.set(w.workload(t, "small", map[string]string{"lq": "calm", "cpu": "1"}))
	w.applyCycle()
	if *planned > perCycle+1 || !w.hasQuota(t, "small") {
		t.Errorf("the first cycle made %d plans, want at most %d; small has quota: %t", *planned, perCycle+1, w.hasQuota(t, "small"))
	}
	cycles := 1
	for ; !w.s.ResumeAt.IsZero(); cycles++ {
		if !w.s.WakeAt().Equal(w.now) {
			t.Fatalf("%d Workloads are not evaluated, and the next cycle is at %s", len(w.s.Queues["crowd"].Unevaluated), w.s.WakeAt())
		}
		w.applyCycle()
	}
	if least := 3000 / perCycle; cycles < least || cycles > least+2 {
		t.Errorf("all are evaluated after %d cycles, want about %d", cycles, least)
	}
	for _, x := range w.s.Queues["crowd"].WithQuota {
		t.Errorf("%s has quota", x.Object.Name)
	}
	for _, x := range w.s.PendingInOrder("crowd") {
		if x.Status.Conditions == nil {
			t.Errorf("%s has no reason", x.Name)
		}
	}
}

// TestManyCrowdedQueuesShareACycle has as many queues with many shapes as make one evaluation of each a cycle's budget.
func TestManyCrowdedQueuesShareACycle(t *testing.T) {
	w, planned := flood(t, 0)
	const queues = 300
	for i := range queues {
		name := fmt.Sprintf("queue-%d", i)
		w.set(clusterQueue(t, name, map[string]string{"check": "capacity"}, "spot cpu=10000000"))
		w.set(localQueueTo(name, name, ""))
		for k := range 10 {
			w.set(w.workload(t, fmt.Sprintf("w-%d-%d", i, k), map[string]string{"lq": name, "cpu": fmt.Sprint(k + 2), "count": "2"}))
		}
	}
	for cycle := 0; cycle == 0 || !w.s.ResumeAt.IsZero(); cycle++ {
		*planned = 0
		w.applyCycle()
		if most := 2*scheduler.DefaultBudget/scheduler.EffortOfPlan + 2*queues; *planned > most {
			t.Errorf("cycle %d made %d plans, want at most %d", cycle, *planned, most)
		}
		for _, q := range w.s.Order {
			if cycle == 0 && q.Pending.Len() > 0 && len(q.Unevaluated) == q.Pending.Len() {
				t.Errorf("nothing of %s was evaluated", q.Object.Name)
			}
		}
		if cycle > queues*10 {
			t.Fatal("the cycles have no end")
		}
	}
}

// TestTheEndOfAQueueIsEvaluated releases quota in every cycle, so that Workloads are evaluated again before the cycle has reached the end
// of the queue.
func TestTheEndOfAQueueIsEvaluated(t *testing.T) {
	w, _ := flood(t, 1000)
	w.now = w.now.Add(time.Second)
	w.set(w.workload(t, "small", map[string]string{"lq": "crowd", "cpu": "1"}))
	most := 2*1000*scheduler.EffortOfPlan/scheduler.DefaultBudget + 2
	for cycle := range most {
		w.applyCycle()
		if workload.HasQuota(w.find(t, "small")) {
			t.Logf("small has quota in cycle %d", cycle+1)
			return
		}
		w.s.Queues["crowd"].Tree.QuotaReleased = true
	}
	t.Errorf("small has no quota after %d cycles", most)
}
