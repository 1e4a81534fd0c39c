package runner

import (
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

func TestARestartedProgramCountsFromZero(t *testing.T) {
	counted := func(apiserver, scheduler, scheduled int64) counts {
		c := newCounts()
		c.writes[cluster.APIServer], c.writes[cluster.Scheduler], c.attempts["scheduled"] = apiserver, scheduler, scheduled
		return c
	}
	last, total := counted(100, 10, 5), newCounts()
	total.add(counted(150, 20, 9).minus(last))
	last = counted(150, 20, 9)
	last.forget(cluster.Scheduler) // kube-scheduler dies here
	total.add(counted(160, 3, 2).minus(last))
	if diff := cmp.Diff(counted(60, 13, 6), total, cmp.AllowUnexported(counts{})); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestAComponentThatDoesNotAnswerLosesNoCounts(t *testing.T) {
	last := newCounts()
	last.writes = map[string]int64{cluster.APIServer: 100, cluster.Scheduler: 10}
	last.latency, last.attempts = map[string]int64{"1": 100}, map[string]int64{"scheduled": 5}
	for name, want := range map[string]counts{
		cluster.APIServer:         {writes: map[string]int64{cluster.APIServer: 100}, latency: last.latency, attempts: map[string]int64{}},
		cluster.Scheduler:         {writes: map[string]int64{cluster.Scheduler: 10}, latency: map[string]int64{}, attempts: last.attempts},
		cluster.ControllerManager: newCounts(),
	} {
		if diff := cmp.Diff(want, last.of(name), cmp.AllowUnexported(counts{})); diff != "" {
			t.Errorf("counts of %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAMetricThatCannotBeReadIsAnError(t *testing.T) {
	err := parse(strings.NewReader("apiserver_request_total{} many\n"), func(string, map[string]string, float64) {})
	if err == nil {
		t.Error("it was read")
	}
}
