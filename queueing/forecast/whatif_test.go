package forecast

import (
	"container/heap"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
)

func TestWhatIf(t *testing.T) {
	team := queue("team", "spot=8", checked("machines"))
	inZone := func(zone, pool string) *planner.Snapshot {
		g := group(pool, 4)
		g.Zone = zone
		return groups(g)
	}
	quotaOf := func(gpus string) func(*testing.T, *queueing.State) {
		return func(t *testing.T, s *queueing.State) {
			cq, err := WithQuota(team, "spot", "gpu", resource.MustParse(gpus))
			if err != nil {
				t.Fatal(err)
			}
			s.Set(cq)
		}
	}
	tests := []struct {
		name     string
		capacity *planner.Snapshot
		pods     int32
		what     func(*testing.T, *queueing.State)
		// want is what would be, and wantNow what is.
		wantNow, want string
	}{
		{"more quota lets a larger job start", groups(group("spot", 4)), 16, quotaOf("16"), "waits (ExceedsMaxQuota)", "starts on spot at 4m0s with [{spot 2}]"},
		{"less quota keeps it waiting", groups(group("spot", 4)), 8, quotaOf("4"), "starts on spot", "waits (ExceedsMaxQuota)"},
		{"a group more gives it machines", inZone("a", "other"), 8, func(_ *testing.T, s *queueing.State) {
			s.SetCapacity(WithGroup(s.Capacity(), group("spot", 4)))
		}, "waits (WaitingForCapacity)", "starts on spot at 4m0s with [{spot 1}]"},
		{"a zone that is lost has no machines to launch", groups(group("spot", 4)), 8, func(_ *testing.T, s *queueing.State) {
			s.SetCapacity(WithoutZone(s.Capacity(), "a"))
		}, "starts on spot at 4m0s", "waits (WaitingForCapacity)"},
		{"nor those that were there", func() *planner.Snapshot {
			s := groups()
			s.Nodes.Set(node("free", group("spot", 0)))
			return s
		}(), 8, func(_ *testing.T, s *queueing.State) {
			s.SetCapacity(WithoutZone(s.Capacity(), "a"))
		}, "starts on spot at 0s", "waits (WaitingForCapacity)"},
		{"another zone does not matter", groups(group("spot", 4)), 8, func(_ *testing.T, s *queueing.State) {
			s.SetCapacity(WithoutZone(s.Capacity(), "b"))
		}, "starts on spot at 4m0s", "starts on spot at 4m0s"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(team, flavor("spot"), localQueue("main", "team"), check("machines", cache.CapacityController))
			s.SetCapacity(tc.capacity)
			changed := Copy(s)
			changed.Cycle(noon)
			tc.what(t, changed)
			for _, of := range []struct {
				what, want string
				state      *queueing.State
			}{{"it would be that it", tc.want, changed}, {"as it is it", tc.wantNow, s}} {
				if got := inALine(Simulate(of.state, job("new", tc.pods), noon)); !strings.HasPrefix(got, of.want) {
					t.Errorf("%s %s\nwant: it %s", of.what, got, of.want)
				}
			}
		})
	}
}

func TestNoQuotaToChange(t *testing.T) {
	_, err := WithQuota(queue("team", "spot=8"), "ondemand", "gpu", resource.MustParse("1"))
	if err == nil || !strings.Contains(err.Error(), "ClusterQueue team has no nominalQuota of gpu in flavor ondemand") {
		t.Errorf("error is %v, want one that names the queue, the resource and the flavor", err)
	}
}

// TestSimulationsChangeNothing runs all forecasts and simulations on a State in which a job is about to start, and verifies its next
// decision.
func TestSimulationsChangeNothing(t *testing.T) {
	objects := []metav1.Object{queue("team", "spot=4", preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
		flavor("spot"), localQueue("main", "team"), job("old", 2, running(noon)), job("next", 2), job("after", 2)}
	decided := func(asked bool) string {
		s := stateOf(objects...)
		if asked {
			Forecast(s, nil, noon, forever)
			Simulate(s, job("new", 4, priority(9)), noon)
			Copy(s).Cycle(noon)
		}
		var out []string
		for _, v := range s.Cycle(noon) {
			out = append(out, v.Workload.Object.Name+" "+v.Action.String()+" "+v.Reason)
		}
		return strings.Join(out, ", ")
	}
	if with, without := decided(true), decided(false); with != without {
		t.Errorf("decided is %q, and %q without a question", with, without)
	}
}

// TestAForecastIsTheSameTwice: it must not depend on the order of maps.
func TestAForecastIsTheSameTwice(t *testing.T) {
	forecast := func() string {
		d := newDay(0)
		var out strings.Builder
		for range 60 {
			heap.Pop(&d.events).(event).do()
		}
		report := Forecast(d.state, d.history, noon, forever)
		for _, e := range report.Estimates {
			out.WriteString(e.Workload.Name + e.Start.String() + e.Early.String() + e.Late.String() + e.Message + "\n")
		}
		return out.String()
	}
	if one, other := forecast(), forecast(); one != other {
		t.Errorf("one time\n%s\nanother time\n%s", one, other)
	}
}
