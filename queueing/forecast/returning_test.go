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

// TestMachinesGoToWhomTheyWereVacatedFor though the quota of those who left is back a
// moment before their machines are. Else somebody smaller behind would have the quota
// meanwhile, and were to leave in his turn, for ever.
func TestMachinesGoToWhomTheyWereVacatedFor(t *testing.T) {
	for _, tc := range []struct {
		name string
		// end is how the one who has the machines ends, if nobody has him leave.
		end func(*cluster)
		new *kueue.Workload
		// want is who stops and who gets quota, in this order.
		want []string
	}{
		{"by preemption", func(*cluster) {}, job("large", 8, priority(1), created(noon)), []string{"Evict old", "Reserve large"}},
		{"because he is done", func(c *cluster) {
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
