package forecast

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/cache"
)

func TestForecast(t *testing.T) {
	hourly := func(name string) *kueue.Workload { return job(name, 4) }
	tests := []struct {
		name     string
		objects  []metav1.Object
		history  *History
		capacity *planner.Snapshot
		// want is the middle and the range, and a part
		// of the message of the workload "next".
		want    string
		message string
	}{
		{
			name:    "a job for which all is free starts at once",
			objects: []metav1.Object{queue("team", "spot=4"), job("next", 4)},
			want:    "0s (0s to 0s)",
		},
		{
			name: "the maximum execution time of what runs counts from its start",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, atMost(time.Hour),
				running(noon.Add(-20*time.Minute))), job("next", 4)},
			want:    "40m0s (40m0s to 40m0s)",
			message: "4 more needed: 0 of 4 are free",
		},
		{
			name: "those ahead come first, each for its time",
			objects: []metav1.Object{queue("team", "spot=4"), job("next", 4, created(noon)),
				job("first", 4, atMost(time.Hour), created(noon.Add(-2*time.Minute))), job("second", 3, atMost(30*time.Minute), created(noon.Add(-time.Minute)))},
			want: "1h30m0s (1h30m0s to 1h30m0s)",
		},
		{
			name: "one is not overtaken by what is judged beside the one that it is behind",
			objects: []metav1.Object{queue("team", "spot=12"), job("next", 4, created(noon)),
				job("first", 5, atMost(time.Hour), created(noon.Add(-2*time.Minute))), job("second", 6, atMost(time.Hour), created(noon.Add(-time.Minute)))},
			want: "1h0m0s (1h0m0s to 1h0m0s)",
		},
		{
			name:    "runs that all took an hour are expected to take one",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, running(noon)), job("next", 4)},
			history: historyOf(hourly, 60, 60, 60),
			want:    "1h0m0s (1h0m0s to 1h0m0s)",
		},
		{
			name:    "what has run for half an hour is none of the short runs",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, running(noon.Add(-30*time.Minute))), job("next", 4)},
			history: historyOf(hourly, 10, 10, 50, 10, 50, 10, 50, 50, 10, 50, 50, 50),
			want:    "20m0s (20m0s to 20m0s)",
		},
		{
			name:    "the maximum execution time bounds what history tells",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, atMost(30*time.Minute), running(noon)), job("next", 4)},
			history: historyOf(hourly, 60, 60, 60),
			want:    "30m0s (30m0s to 30m0s)",
		},
		{
			name:    "of what nothing is known no time is told",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, running(noon)), job("next", 4)},
			want:    "after first",
			message: "4 more needed",
		},
		{
			name: "one that is known does not help where one that is not has to end, too",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 2, running(noon)), job("second", 2, atMost(time.Minute), running(noon)),
				job("next", 4)},
			want: "after first",
		},
		{
			name: "a start behind one that waits for what is unknown is unknown, too",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, running(noon)),
				job("second", 4, atMost(time.Hour), created(noon.Add(-2*time.Hour))),
				job("next", 4)},
			want: "after first",
		},
		{
			name: "what is unknown does not matter where one that is known ends",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 2, running(noon)), job("second", 2, atMost(time.Minute), running(noon)),
				job("next", 2)},
			want: "1m0s (1m0s to 1m0s)",
		},
		{
			name:    "what the whole quota cannot hold never starts",
			objects: []metav1.Object{queue("team", "spot=4"), job("next", 5)},
			want:    "- (- to -)",
			message: "maximum capacity (4)",
		},
		{
			name:    "what ends after the horizon says what is waited for",
			objects: []metav1.Object{queue("team", "spot=4"), job("first", 4, atMost(100*24*time.Hour), running(noon)), job("next", 4)},
			want:    "- (- to -)",
			message: "4 more needed",
		},
		{
			name: "victims of a higher priority stop first",
			objects: []metav1.Object{queue("team", "spot=4", preempting(kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyNever)),
				job("first", 4, atMost(time.Hour), running(noon)), job("next", 4, priority(1))},
			want: "1m0s (1m0s to 1m0s)",
		},
		{
			name:     "a launch takes its time",
			objects:  []metav1.Object{queue("team", "spot=8", checked("machines")), check("machines", cache.CapacityController), job("next", 8)},
			capacity: groups(group("spot", 1)),
			want:     "4m0s (2m0s to 7m0s)",
		},
		{
			name:    "a group that failed is tried again when its backoff is over",
			objects: []metav1.Object{queue("team", "spot=8", checked("machines")), check("machines", cache.CapacityController), job("next", 8)},
			capacity: groups(group("spot", 1, v1alpha1.Backoff{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 3,
				Until: metav1.NewTime(noon.Add(time.Hour))})), want: "1h4m0s (1h2m0s to 1h7m0s)",
			message: "no machines",
		},
		{
			name:    "no start is foreseen on a group that only a person can mend",
			objects: []metav1.Object{queue("team", "spot=8", checked("machines")), check("machines", cache.CapacityController), job("next", 8)},
			capacity: groups(group("spot", 1, v1alpha1.Backoff{Class: v1alpha1.Config, AtLeast: 1, Failures: 1,
				Until: metav1.NewTime(noon.Add(5 * time.Minute))})), want: "- (- to -)",
		},
		{
			name: "the Workload on the last machine frees it",
			objects: []metav1.Object{queue("team", "spot=16", checked("machines")), check("machines", cache.CapacityController),
				job("first", 8, atMost(time.Hour), created(noon.Add(-2*time.Hour))), job("next", 8)},
			capacity: groups(group("spot", 1)),
			want:     "1h7m0s (1h5m0s to 1h9m0s)",
			message:  "no machines",
		},
		{
			name:    "it is unknown when another controller answers",
			objects: []metav1.Object{queue("team", "spot=4", checked("budget")), check("budget", "people.example.com"), job("next", 4)},
			want:    "- (- to -)",
			message: "waits for admission checks: budget",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.objects, flavor("spot"), localQueue("main", "team"))...)
			s.SetCapacity(tc.capacity)
			report := Forecast(s, tc.history, noon, 7*24*time.Hour)
			for _, e := range report.Estimates {
				if e.Workload.Name != "next" {
					continue
				}
				got := fmt.Sprintf("%s (%s to %s)", minutes(t, e.Start), minutes(t, e.Early), minutes(t, e.Late))
				if e.Unknown {
					got = "after"
					for _, w := range e.After {
						got += " " + w.Name
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("estimate (-want +got):\n%s", diff)
				}
				if !strings.Contains(e.Message, tc.message) {
					t.Errorf("message is %q: want %q in it", e.Message, tc.message)
				}
				return
			}
			t.Error("no estimate")
		})
	}
}

// TestAllHaveTheirTurn has more Workloads wait in a LocalQueue than are judged at a time.
func TestAllHaveTheirTurn(t *testing.T) {
	many := func(n int, of func(i int) *kueue.Workload) (out []metav1.Object) {
		for i := range n {
			out = append(out, of(i))
		}
		return out
	}
	like := func(i int) *kueue.Workload { return job(fmt.Sprintf("w-%d", i), 1) }
	tooLarge := func(i int) *kueue.Workload { return job(fmt.Sprintf("large-%d", i), int32(101+i)) }
	each := func(i int) *kueue.Workload {
		return job(fmt.Sprintf("w-%d", i), int32(51+i%40), atMost(time.Hour), of(fmt.Sprint(i)))
	}
	tests := []struct {
		name    string
		objects []metav1.Object
		last    *kueue.Workload
		want    string
	}{
		{"all that are alike start at once where there is room", many(30, like), job("last", 1, created(noon)), "0s"},
		{"what can never start keeps no other waiting", many(60, tooLarge), job("last", 1, created(noon)), "0s"},
		{"the highest priority comes first, however many others were there before", many(40, each), job("last", 60, priority(1), created(noon), atMost(time.Hour)), "0s"},
		{"the last comes after all others", many(40, each), job("last", 60, created(noon), atMost(time.Hour)), "40h0m0s"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := stateOf(append(tc.objects, tc.last, queue("team", "spot=100"), flavor("spot"), localQueue("main", "team"))...)
			for _, e := range Forecast(s, nil, noon, 7*24*time.Hour).Estimates {
				if got := minutes(t, e.Start); e.Workload == tc.last && got != tc.want {
					t.Errorf("the last starts at %s (%s), want %s", got, e.Message, tc.want)
				}
			}
		})
	}
}

// TestAForecastEndsWhenItsCallerSaysSo at once, without a Report.
func TestAForecastEndsWhenItsCallerSaysSo(t *testing.T) {
	objects := []metav1.Object{flavor("spot"), queue("team", "spot=4"), localQueue("main", "team")}
	for i := range 50 {
		objects = append(objects, job(fmt.Sprintf("w-%d", i), 4))
	}
	s := stateOf(objects...)
	for _, most := range []int{1, 5, 20} {
		for name, run := range map[string]func(rest func() bool) bool{
			"Paced": func(rest func() bool) bool {
				report, ok := Paced(s, &History{}, noon, Horizon, rest)
				return ok || len(report.Estimates) > 0
			},
			"Arrivals": func(rest func() bool) bool {
				out, ok := Arrivals(s, &History{}, []*kueue.Workload{job("new", 4)}, noon, noon, Horizon, rest)
				return ok || len(out) > 0
			},
		} {
			steps := 0
			if run(func() bool { steps++; return steps < most }) || steps != most {
				t.Errorf("%s went on for %d steps, of at most %d, or has a result", name, steps, most)
			}
		}
	}
}
