package scheduler_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/test/queues"
)

// Namespaces, and LocalQueues of one, have budgets apart: what one of a ClusterQueue may
// not spend another may.
func TestTwinsOfOtherTenantsHaveOtherBudgets(t *testing.T) {
	for _, other := range []state.Tenant{{Namespace: "other", Queue: "main"}, {Namespace: "default", Queue: "rich"}} {
		t.Run(other.Namespace+"/"+other.Queue, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			lq := queues.LocalQueue(other.Queue, "team", "")
			lq.Namespace = other.Namespace
			w.Set(lq)
			w.Plan = func(_ *planner.Snapshot, gang state.Gang, _ state.Policy) planner.Verdict {
				if gang.Namespace == "default" && gang.Queue == "main" {
					return planner.Verdict{Outcome: planner.Wait, Reasons: []planner.Reason{{Code: planner.CodeBudget, Message: "it is spent"}}}
				}
				return planner.Verdict{Outcome: planner.Launch}
			}
			s := planner.NewSnapshot(w.Now, nodeset.New(), nil, nil)
			s.Budgets = []spend.Budget{{Policy: "policy", Name: "default"}}
			w.State.SetCapacity(s)
			w.Submit(t, "a", nil)
			twin := w.Workload(t, "b", map[string]string{"gpu": "1", "lq": other.Queue})
			twin.Namespace = other.Namespace
			w.Set(twin)
			if got := queues.Outcomes(w.State.Cycle(w.Now)); got["a"] != lifecycle.Wait || got["b"] != lifecycle.Reserve {
				t.Errorf("outcomes: %v; want the one that has spent its budget to wait, and its twin not", got)
			}
		})
	}
}

// What a Workload of a cycle is promised counts for its queue.
func TestPromisesOfACycleAreChargedToTheQueue(t *testing.T) {
	w := queues.WithCapacityCheck(t)
	var charges []spend.Charge
	w.Plan = func(on *planner.Snapshot, _ state.Gang, _ state.Policy) planner.Verdict {
		charges = on.Charges
		return planner.Verdict{Outcome: planner.Launch, MicroUSDPerHour: 1e6}
	}
	s := planner.NewSnapshot(w.Now, nodeset.New(), nil, nil)
	s.Budgets = []spend.Budget{{Policy: "policy", Name: "main"}}
	w.State.SetCapacity(s)
	w.Submit(t, "a", nil)
	w.Submit(t, "b", nil)
	w.State.Cycle(w.Now)
	if got := charges; len(got) != 1 || got[0].Tenant != (state.Tenant{Namespace: "default", Queue: "main"}) {
		t.Errorf("charges: %+v; want one of LocalQueue main in namespace default", got)
	}
}

// A Workload with a maximum execution time is not put on machines that have less time left, also
// where they are cheaper.
func TestAWorkloadIsNotPutOnAnHourThatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name string
		time *int32
		want string
	}{
		{"one that ends before the machines do", new(int32(1200)), "block"},
		{"one that may run for longer", new(int32(3600)), "ondemand"},
		{"one whose time is not known", nil, "block"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := queues.WithCapacityCheck(t)
			group := func(name string, capacityType v1alpha1.CapacityType, ends *metav1.Time) nodegroups.Group {
				g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
				g.Spec.CapacityType, g.Spec.MaxNodes, g.Spec.EndsAt = capacityType, 1, ends
				g.Spec.PricePerHour = new(resource.MustParse("1"))
				g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("96"), "gpu": resource.MustParse("8")}
				g.Spec.Template.Labels = map[string]string{"pool": "spot"}
				return nodegroups.GroupFrom(g, g.Status, 0)
			}
			s := planner.NewSnapshot(w.Now, nodeset.New(), []nodegroups.Group{
				group("block", v1alpha1.Reserved, &metav1.Time{Time: w.Now.Add(time.Hour)}), group("ondemand", v1alpha1.OnDemand, nil),
			}, nil)
			var got planner.Verdict
			w.Plan = func(s *planner.Snapshot, gang state.Gang, policy state.Policy) planner.Verdict {
				got = planner.Plan(s, gang, policy)
				return got
			}
			w.State.SetCapacity(s)
			object := w.Workload(t, "train", map[string]string{"gpu": "1"})
			object.Spec.MaximumExecutionTimeSeconds = tc.time
			w.Set(object)
			w.State.Cycle(w.Now)
			if len(got.Launches) != 1 || got.Launches[0].Group != tc.want {
				t.Errorf("the plan is %+v, want a launch in %s", got, tc.want)
			}
		})
	}
}
