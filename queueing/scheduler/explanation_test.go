package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/test/queues"
)

// account prints the explanation of a Workload.
func account(w *queues.World, t *testing.T, name string) string {
	a, ok := w.State.Explain(w.Find(t, name).UID, w.Now)
	if !ok {
		t.Fatalf("no account of %s", name)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s in %s", a.Reason, a.Queue)
	for _, o := range a.Ahead {
		fmt.Fprintf(&out, " behind %s", o.Name)
	}
	fmt.Fprintf(&out, ", %d wait\n", a.Pending)
	for _, o := range a.Flavors {
		fmt.Fprintf(&out, "%s: %s", o.Flavor, o.Reason)
		for _, q := range o.Quota {
			fmt.Fprintf(&out, " %s asks %d of %d free, %d short; whole %d, %d to be borrowed", q.Resource, q.Requested, q.Free, q.Short(),
				q.Maximum, q.Borrowable)
		}
		if o.Plan != nil {
			fmt.Fprintf(&out, "; machines: %s", o.Plan.Outcome)
		}
		fmt.Fprintln(&out)
	}
	for _, h := range a.Holders {
		fmt.Fprintf(&out, "%s of %s has %v, priority %d, borrows %v\n", h.Workload.Name, h.Queue, h.Usage, h.Priority, h.Borrows)
	}
	return out.String()
}

func TestAnAccountHasEveryFlavorAndTheWorkloadsThatUseIt(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.Flavor("ondemand", nil))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(queues.LocalQueue("lent", "other", ""))
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"cohort": "all"}, "spot gpu=8\nondemand gpu=2"))
	w.Set(queues.ClusterQueue(t, "other", map[string]string{"cohort": "all"}, "spot gpu=4"))
	w.Set(w.Workload(t, "guest", map[string]string{"gpu": "6", "lq": "lent", "priority": "3"}))
	w.Set(w.Workload(t, "own", map[string]string{"gpu": "4"}))
	w.Set(w.Workload(t, "aside", map[string]string{"gpu": "1", "select": "ondemand"}))
	w.Cycles(t)
	w.Set(w.Workload(t, "first", map[string]string{"gpu": "8", "priority": "9"}))
	w.Set(w.Workload(t, "train", map[string]string{"gpu": "5"}))
	w.Cycles(t)
	want := `WaitingForQuota in team behind first, 2 wait
spot: WaitingForQuota gpu asks 5 of 2 free, 3 short; whole 12, 4 to be borrowed
ondemand: ExceedsMaxQuota gpu asks 5 of 1 free, 4 short; whole 2, 0 to be borrowed
guest of other has map[{spot gpu}:6], priority 3, borrows true
own of team has map[{spot gpu}:4], priority 0, borrows false
`
	for range 2 { // an explanation changes nothing
		if got := account(w, t, "train"); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	if out := w.Cycles(t); strings.Contains(out, ":") {
		t.Errorf("having told, the next cycle decides again:\n%s", out)
	}
	if got := account(w, t, "own"); got != " in team, 0 wait\n" {
		t.Errorf("of one that runs: %s", got)
	}
	w.Delete(w.Find(t, "own"))
	if _, ok := w.State.Explain("uid-002", w.Now); ok {
		t.Error("there is an account of a Workload that is gone")
	}
}

func TestAnAccountHasThePlansOfEachFlavor(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.Flavor("ondemand", nil))
	check := &kueue.AdmissionCheck{}
	check.Name, check.Spec.ControllerName = "capacity", cache.CapacityController
	w.Set(check)
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(queues.ClusterQueue(t, "team", map[string]string{"check": "capacity"}, "spot gpu=8\nondemand gpu=2"))
	w.Machines["ondemand"] = 8
	w.Set(w.Workload(t, "train", map[string]string{"gpu": "1", "count": "4"}))
	w.Cycles(t)
	want := `WaitingForCapacity in team, 1 wait
spot: WaitingForCapacity gpu asks 4 of 8 free, 0 short; whole 8, 0 to be borrowed; machines: Wait
ondemand: ExceedsMaxQuota gpu asks 4 of 2 free, 2 short; whole 2, 0 to be borrowed; machines: Launch
`
	if got := account(w, t, "train"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestHoldersUseWhatIsShort: Workloads that use only what is free, or what could never be enough, would end in vain.
func TestHoldersUseWhatIsShort(t *testing.T) {
	w := queues.New()
	w.Set(queues.Flavor("spot", nil))
	w.Set(queues.Flavor("small", nil))
	w.Set(queues.LocalQueue("main", "team", ""))
	w.Set(queues.ClusterQueue(t, "team", nil, "spot cpu=8 gpu=4\nsmall cpu=8 gpu=3"))
	w.Set(w.Workload(t, "gpus", map[string]string{"gpu": "1", "select": "spot"}))
	w.Set(w.Workload(t, "cores", map[string]string{"cpu": "2", "select": "spot"}))
	w.Set(w.Workload(t, "aside", map[string]string{"gpu": "1", "select": "small"}))
	w.Cycles(t)
	w.Set(w.Workload(t, "train", map[string]string{"gpu": "4", "cpu": "2"})) // all of the quota of one flavor
	w.Cycles(t)
	e, _ := w.State.Explain(w.Find(t, "train").UID, w.Now)
	if len(e.Holders) != 1 || e.Holders[0].Workload.Name != "gpus" || len(e.Holders[0].Usage) != 1 {
		t.Errorf("holders are %+v, want gpus with its GPU", e.Holders)
	}
}
