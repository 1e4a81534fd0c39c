package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/kwok/scenario/report"
	"github.com/muster-dev/muster/kwok/scenario/runner"
)

// BenchmarkThousandJobs runs the public test of batch schedulers by kube-scheduler alone,
// then by Muster. What counts is what Muster's line has beside that run: the ratio of the
// makespans as x-none, and as x-bound that by the bound, first come, first served, and the
// start-up of the first wave at the rate at which kube-scheduler alone bound pods.
//
// It is played at double speed, where all Jobs have to succeed by Muster, and at speed 10,
// where kube-apiserver is the limit: two cores have no time left for the kubelets then,
// whose pods miss deadlines under any admitter, so failures are only reported there. At speed
// 1, as `muster-sandbox scenario run thousand-jobs` plays it, the bound is 1.05 times what
// x-bound is held against.
func BenchmarkThousandJobs(b *testing.B) {
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		b.Skipf("%s does not name a sandbox's binary: run `make bench`, which builds it", binaryVariable)
	}
	name, speeds := "thousand-jobs", []int{2, 10}
	if *scale > 1 {
		// A tenth of the pods, so ten times as fast.
		name, speeds = "thousand-jobs-small", []int{20}
	}
	for _, speed := range speeds {
		var alone report.Report
		for _, admitter := range []runner.Admitter{runner.None, runner.Muster} {
			b.Run(fmt.Sprintf("speed=%d/%s", speed, admitter), func(b *testing.B) {
				for b.Loop() {
					r := played(b, binary, name, speed, admitter)
					b.ReportMetric(r.Makespan.Took.Seconds(), "makespan-s")
					b.ReportMetric(float64(r.Jobs.Failed+r.Jobs.Unfinished), "failed")
					b.ReportMetric(float64(r.Scheduling.Unschedulable), "attempts-in-vain")
					if admitter == runner.None {
						alone = r
						b.ReportMetric(r.OverFIFOAtRateOf(r), "x-bound")
						continue
					}
					judge(b, r)
					if alone.Speed > 0 { // -bench may have left it out
						b.ReportMetric(r.OverFIFOAtRateOf(alone), "x-bound")
						b.ReportMetric(r.Makespan.Took.Seconds()/alone.Makespan.Took.Seconds(), "x-none")
					}
				}
			})
		}
	}
}

// judge holds a run of Muster's to what it has to keep at its speed.
func judge(b *testing.B, r report.Report) {
	b.Helper()
	for _, broken := range r.Promises.First() {
		b.Error(broken)
	}
	const fair = 2 // beyond this speed kubelets fall behind
	if bad := r.Jobs.Failed + r.Jobs.Unfinished; bad > 0 && r.Speed <= fair {
		b.Errorf("%d of %d Jobs did not succeed at speed %d", bad, r.Jobs.Submitted, r.Speed)
	}
}

// played is the report of a scenario. The run's end says by its exit code that promises
// were broken, and the report which.
func played(b *testing.B, binary, name string, speed int, admitter runner.Admitter) (r report.Report) {
	b.Helper()
	dir := b.TempDir()
	out, err := exec.CommandContext(b.Context(), binary, "--name", fmt.Sprintf("bench-%d", os.Getpid()),
		"scenario", "run", name, "--speed", fmt.Sprint(speed), "--admitter", string(admitter), "--report", dir).CombinedOutput()
	text, missing := os.ReadFile(filepath.Join(dir, "report.json"))
	if missing != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	if r, err = report.Read(text); err != nil {
		b.Fatal(err)
	}
	return r
}
