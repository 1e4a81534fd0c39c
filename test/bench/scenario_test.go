package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/kwok/scenario/report"
	"github.com/muster-dev/muster/kwok/scenario/runner"
)

// BenchmarkThousandJobs runs the public test of batch schedulers by kube-scheduler alone,
// then by Muster. What counts is the ratio of the makespans in one run, which Muster's
// line has as x-none, and what came of the Jobs. It is played at double speed: much
// faster, and two cores have no time left for the kubelets, whose pods then miss deadlines
// whoever admits them. At speed 1, as `muster-sandbox scenario run thousand-jobs` plays
// it, the bound is 1.05 times first come, first served and the start-up of the first wave.
func BenchmarkThousandJobs(b *testing.B) {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		b.Skipf("%s does not name a sandbox's binary: run `make bench`, which builds it", binaryVariable)
	}
	name, speed := "thousand-jobs", 2
	if *scale > 1 {
		// A tenth of the pods, so ten times as fast.
		name, speed = "thousand-jobs-small", 20
	}
	var alone report.Report
	for _, admitter := range []runner.Admitter{runner.None, runner.Muster} {
		b.Run(string(admitter), func(b *testing.B) {
			for b.Loop() {
				r := played(b, binary, name, speed, admitter)
				b.ReportMetric(r.Makespan.Took.Seconds(), "makespan-s")
				b.ReportMetric(r.Makespan.OverFIFO, "x-bound")
				b.ReportMetric(float64(r.Jobs.Failed), "failed")
				b.ReportMetric(float64(r.Scheduling.Unschedulable), "attempts-in-vain")
				if admitter == runner.None {
					alone = r
				} else if alone.Speed > 0 {
					b.ReportMetric(r.Makespan.Took.Seconds()/alone.Makespan.Took.Seconds(), "x-none")
				}
			}
		})
	}
}

// played is the report of a scenario. That promises were broken, as the run's end says
// then, is for the tests: the report has it, too.
func played(b *testing.B, binary, name string, speed int, admitter runner.Admitter) (r report.Report) {
	b.Helper()
	dir := b.TempDir()
	out, err := exec.CommandContext(b.Context(), binary, "--name", fmt.Sprintf("bench-%d", os.Getpid()),
		"scenario", "run", name, "--speed", fmt.Sprint(speed), "--admitter", string(admitter), "--report", dir).CombinedOutput()
	text, missing := os.ReadFile(filepath.Join(dir, "report.json"))
	if missing != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		b.Fatal(err)
	}
	return r
}
