package main

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/history"
)

// TestThePastIsPrinted as a table, and as CSV with seconds and all columns.
func TestThePastIsPrinted(t *testing.T) {
	started := noon.Add(-time.Hour)
	jobs := pastJobs{{Job: history.Job{Namespace: "default", Name: "job/train", Workload: "job-train", Outcome: history.Failed,
		Why: `exit code 1, "OOM"`, Queue: "main", Devices: map[string]int64{gpu: 8}, Created: started, Started: started,
		Ended: noon, User: "alice"}, RanSeconds: 3600, RanText: "60m",
		WaitedText: "0s", USD: "98.32"}}
	lacks(t, printed(t, jobs), "NAMESPACE NAME OUTCOME QUEUE DEVICES WAITED RAN USD ENDED CLUSTERQUEUE",
		"default job/train Failed main 8 nvidia.com/gpu 0s 60m 98.32 2026-11-20T12:00:00Z - 0 0 0")
	sums := pastSums{"queue", []view.PastSum{{Of: "default/main", Jobs: 1, Failed: 1, RanText: "60m", WaitedText: "0s", DeviceHours: 8,
		USD: "98.32", Unused: "0.00"}, {USD: "1.00", Unused: "1.00"}}}
	lacks(t, printed(t, sums), "QUEUE JOBS NOT FINISHED WAITED RAN DEVICE HOURS USD UNUSED", "default/main 1 1 0s 60m 8.0 98.32 0.00",
		"(none) 0 0 - - 0.0 1.00 1.00")
	byUser := pastSums{"user", []view.PastSum{{Of: "alice", Jobs: 1, RanText: "60m", WaitedText: "0s", DeviceHours: 8, USD: "98.32",
		Unused: "0.00"}}}
	lacks(t, printed(t, byUser), "USER JOBS NOT FINISHED WAITED RAN DEVICE HOURS USD UNUSED", "alice 1 0 0s 60m 8.0 98.32 0.00")
	var out strings.Builder
	if err := jobs.print(newPrinter(&out, asCSV)); err != nil {
		t.Fatal(err)
	}
	lacks(t, out.String(), "NAMESPACE,NAME,OUTCOME,QUEUE,DEVICES,WAITED,RAN,USD,ENDED,CLUSTERQUEUE,",
		`default,job/train,Failed,main,8 nvidia.com/gpu,0,3600,98.32,2026-11-20T12:00:00Z,,0,0,0,2026-11-20T11:00:00Z,2026-11-20T11:00:00Z,`+
			`job-train,alice,"exit code 1, ""OOM"""`)
	for _, empty := range []answer{pastJobs{}, pastSums{by: "week"}} {
		if text := printed(t, empty); !strings.HasPrefix(text, "No job has ended") && !strings.HasPrefix(text, "Nothing has been recorded") {
			t.Errorf("an empty history says %q", text)
		}
	}
}
