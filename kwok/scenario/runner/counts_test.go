package runner

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/scenario/report"
)

// metrics in the format of the components.
var metrics = map[string]string{
	cluster.APIServer: `# HELP apiserver_request_total Counter of requests
apiserver_request_total{code="201",resource="pods",verb="POST"} 100
apiserver_request_total{code="200",resource="pods",verb="PATCH"} 50
apiserver_request_total{code="200",resource="pods",verb="LIST"} 9999
apiserver_request_duration_seconds_bucket{verb="POST",le="0.005"} 90
apiserver_request_duration_seconds_bucket{verb="PATCH",le="0.005"} 40
apiserver_request_duration_seconds_bucket{verb="POST",le="60"} 100
apiserver_request_duration_seconds_bucket{verb="PATCH",le="60"} 49
apiserver_request_duration_seconds_bucket{verb="POST",le="+Inf"} 100
apiserver_request_duration_seconds_bucket{verb="PATCH",le="+Inf"} 50
apiserver_request_duration_seconds_bucket{verb="WATCH",le="0.005"} 7
rest_client_requests_total{code="201",method="POST"} 8888
process_cpu_seconds_total 12
`,
	cluster.Scheduler: `rest_client_requests_total{code="201",host="127.0.0.1:1",method="POST"} 30
rest_client_requests_total{code="<error>",host="127.0.0.1:1",method="POST"} 7
rest_client_requests_total{code="200",host="127.0.0.1:1",method="GET"} 500
scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 25
scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 3
`,
	cluster.Muster: `muster_api_writes_total{resource="workloads",verb="POST"} 20
rest_client_requests_total{code="201",method="POST"} 21
`,
}

func TestWhatIsCounted(t *testing.T) {
	now, nothing := newCounts(), newCounts()
	for component, text := range metrics {
		if err := parse(strings.NewReader(text), func(series string, labels map[string]string, value float64) {
			now.take(component, series, labels, int64(value))
		}); err != nil {
			t.Fatal(err)
		}
	}
	var got, none report.Record
	now.minus(nothing).fill(&got, 10)
	want := report.Record{
		Writes: []report.Writer{{Who: "muster", Writes: 20}, {Who: "kube-scheduler", Writes: 30}, {Who: "kwok and others", Writes: 90},
			{Who: "users", Writes: 10}, {Who: "all", Writes: 150}},
		// What took longer than a minute counts as a minute.
		Latency: []report.Bucket{{AtMost: 5 * time.Millisecond, Count: 130}, {AtMost: time.Minute, Count: 149},
			{AtMost: time.Minute, Count: 150}},
		Scheduled: 25, Unschedulable: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if now.minus(now).fill(&none, 0); none.Scheduled != 0 || none.Writes[len(none.Writes)-1].Writes != 0 {
		t.Errorf("from now to now there was something: %+v", none)
	}
}

// apiServerCounts and schedulerCounts are what the metrics of these components may say.
func apiServerCounts(writes int64) counts {
	c := newCounts()
	c.writes[cluster.APIServer], c.latency["1"] = writes, writes
	return c
}

func schedulerCounts(writes, scheduled int64) counts {
	c := newCounts()
	c.writes[cluster.Scheduler], c.attempts["scheduled"] = writes, scheduled
	return c
}

func TestAMeterAddsUpWhatComponentsCount(t *testing.T) {
	start := map[string]counts{cluster.APIServer: apiServerCounts(100), cluster.Scheduler: schedulerCounts(10, 5)}
	both := func(apiserver, scheduler, scheduled int64) map[string]counts {
		return map[string]counts{cluster.APIServer: apiServerCounts(apiserver), cluster.Scheduler: schedulerCounts(scheduler, scheduled)}
	}
	for name, tc := range map[string]struct {
		reads func(*meter)
		want  [3]int64 // writes to kube-apiserver, writes by kube-scheduler, scheduled pods
	}{
		"a program that restarts counts from zero": {reads: func(m *meter) {
			m.add(both(150, 20, 9))
			delete(m.last, cluster.Scheduler) // kube-scheduler dies here
			m.add(both(160, 3, 2))
		}, want: [3]int64{60, 13, 6}},
		"nothing is lost of one that does not answer": {reads: func(m *meter) {
			m.add(map[string]counts{cluster.APIServer: apiServerCounts(150)})
			m.add(both(160, 23, 11))
		}, want: [3]int64{60, 13, 6}},
		"nor of the others, when kube-apiserver dies meanwhile": {reads: func(m *meter) {
			m.add(map[string]counts{cluster.APIServer: apiServerCounts(150)})
			delete(m.last, cluster.APIServer)
			m.add(both(10, 23, 11))
		}, want: [3]int64{60, 13, 6}},
		"nothing is added where none answers": {reads: func(m *meter) { m.add(nil) }},
	} {
		m := &meter{last: maps.Clone(start), total: newCounts()}
		tc.reads(m)
		got := [3]int64{m.total.writes[cluster.APIServer], m.total.writes[cluster.Scheduler], m.total.attempts["scheduled"]}
		if got != tc.want || m.total.latency["1"] != tc.want[0] {
			t.Errorf("%s: counted %v with latencies %v, want %v", name, got, m.total.latency, tc.want)
		}
	}
}

func TestAMetricThatCannotBeReadIsAnError(t *testing.T) {
	err := parse(strings.NewReader("apiserver_request_total{} many\n"), func(string, map[string]string, float64) {})
	if err == nil {
		t.Error("it was read")
	}
}
