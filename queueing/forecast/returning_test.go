package forecast

import (
	"fmt"
	"slices"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestFreedMachinesGoToThePreemptor although the quota of its victims is back a moment before
// their machines are. Otherwise a smaller Workload behind it would take the quota meanwhile
// and be preempted next, for ever.
func TestFreedMachinesGoToThePreemptor(t *testing.T) {
	for _, tc := range []struct {
		name string
		// end ends the Workload that has the machines, unless it is preempted.
		end func(*cluster)
		new *kueue.Workload
		// want are the Workloads that are evicted and that reserve quota, in this order.
		want []string
	}{
		{"by preemption", func(*cluster) {}, job("large", 8, priority(1), created(noon)), []string{"Evict old", "Reserve large"}},
		{"because it has finished", func(c *cluster) {
			old := c.find("old").DeepCopy()
			old.Status = *workload.Finished(old, kueue.WorkloadFinishedReasonSucceeded, "done", c.now)
			c.set(old)
		}, job("large", 8, created(noon)), []string{"Reserve large"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cluster{now: noon, sees: func(*lifecycle.Verdict) {}, capacity: groups(group("spot", 1)), state: stateOf(
				flavor("spot"), check("machines", cache.CapacityController), localQueue("main", "team"),
				queue("team", "spot=8", checked("machines"), preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
			)}
			c.set(job("old", 6, created(noon)))
			c.rest()
			var got []string
			c.sees = func(v *lifecycle.Verdict) {
				if v.Action == lifecycle.Evict || v.Action == lifecycle.Reserve {
					got = append(got, fmt.Sprintf("%v %s", v.Action, v.Workload.Object.Name))
				}
			}
			c.set(tc.new)
			c.set(job("small", 2, created(noon)))
			tc.end(c)
			c.rest()
			if !slices.Equal(got, tc.want) || c.restless {
				t.Errorf("%v happened, want %v; restless: %t", got, tc.want, c.restless)
			}
		})
	}
}

func (c *cluster) find(name string) *kueue.Workload {
	for _, w := range c.state.AllWorkloads() {
		if w.Object.Name == name {
			return w.Object
		}
	}
	panic("no workload " + name)
}
