package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed"
)

// The programs of Kueue's own performance test, as `make runner` builds them: the
// runner creates and finishes the Workloads; the other is Kueue's core, without
// webhooks and jobs.
const (
	runnerVariable = "MUSTER_RUNNER_BIN"
	coreVariable   = "MUSTER_KUEUE_CORE_BIN"
)

// BenchmarkRunner has a load made by others: Kueue's own performance runner, an
// unmodified program with its own default load of 15,000 Workloads in 30 queues that
// borrow and preempt, or of -scale times fewer. It is put on Kueue's core; on Muster as
// it is shipped, both halves of it; on that without its admission policies; and on the
// same with quota for all Workloads at once, so that none waits, is preempted or admitted
// twice: what the load and its three writes a Workload take with any admitter. All clients
// may send 1,000 requests a second.
//
// The bounds: Muster as shipped takes at most 0.6 times as long as Kueue's core, 20 s of
// CPU and 200 MB.
func BenchmarkRunner(b *testing.B) {
	shipped := musterWith("", "--provisioning=true")
	for _, c := range []struct {
		contender
		policies, ample bool
	}{
		{newKueueCore(), true, false}, // it has none
		{shipped, true, false},
		{shipped.named("muster-without-policies"), false, false},
		{shipped.named("ample-quota"), false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				a := newArena(b, c.contender)
				if !c.policies {
					newPolicies(a).only(b, nil)
				}
				a.runner("baseline", *scale, c.ample)
			}
		})
	}
}

// BenchmarkTopologyRunner has the load that Kueue's runner has for topology-aware scheduling: as many Workloads, of 2, 4
// and 8 pods on 640 nodes in 10 racks; a third each require a rack, prefer one, and have slices.
//
// The bound: Muster as shipped takes at most 1.25 times the 3 writes that a Workload needs at least, and its queues use as much of
// their quota as Kueue's.
func BenchmarkTopologyRunner(b *testing.B) {
	for _, c := range []contender{newKueueCore("--enableTAS"), musterWith("", "--provisioning=true")} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				newArena(b, c).runner("tas", *scale, false)
			}
		})
	}
}

// newKueueCore is Kueue's scheduler, caches and core controllers.
func newKueueCore(flags ...string) contender {
	return contender{"kueue-core", coreVariable, func(a *arena, binary string) (cluster.Config, starter) {
		dir := a.TempDir()
		return cluster.Config{Manifests: a.kueueCRDs}, func() (*managers.Manager, error) {
			return managers.NewKueueCore(a.rest, binary, dir, flags...)
		}
	}}
}

// kueueCRDs are those of Kueue's module.
func (a *arena) kueueCRDs() (out []*unstructured.Unstructured, err error) {
	err = filepath.WalkDir(filepath.Join(a.kueueModule(), "config", "components", "crd", "bases"),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			objects, err := deploy.Decode(text)
			out = append(out, objects...)
			return err
		})
	return out, err
}

// kueueModule is the folder of Kueue's module.
func (a *arena) kueueModule() string {
	out, err := exec.CommandContext(a.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		a.Fatalf("finding Kueue's module: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// runner has the runner play one of its loads, or one of so many times fewer Workloads, maybe with ample quota.
func (a *arena) runner(name string, fewer int, ample bool) {
	binary := os.Getenv(runnerVariable)
	if binary == "" {
		a.Skipf("%s does not name a program: run `make bench`, which builds it", runnerVariable)
	}
	dir := a.TempDir()
	load, err := generatorConfig(filepath.Join(a.kueueModule(), "test", "performance", "scheduler", "configs", name,
		"generator.yaml"), fewer, ample)
	if err != nil {
		a.Fatal(err)
	}
	file, kubeconfig := filepath.Join(dir, "generator.yaml"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, load.text, 0o600); err != nil {
		a.Fatal(err)
	}
	if err := managers.WriteKubeconfig(kubeconfig, a.rest); err != nil {
		a.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "runner.log"))
	if err != nil {
		a.Fatal(err)
	}
	defer log.Close()
	runner := exec.CommandContext(a.Context(), binary,
		"--o="+dir, "--generatorConfig="+file, "--qps=1000", "--burst=2000", fmt.Sprintf("--timeout=%s", longest), "--zap-log-level=error")
	runner.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	runner.Stdout, runner.Stderr = log, log
	before, began := a.count(), time.Now()
	if err := runner.Start(); err != nil {
		a.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- runner.Wait() }()
	// It writes its summary when all Workloads are finished, and cleans up after that.
	for over := false; !over; {
		select {
		case err := <-ended:
			testbed.Tail(log.Name())
			a.Fatalf("the runner ended without a summary: %v", err)
		case <-time.After(50 * time.Millisecond):
			_, err := os.Stat(filepath.Join(dir, "summary.yaml"))
			if over = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
				a.Fatal(err)
			}
		}
	}
	took := time.Since(began)
	a.allFinished(load.workloads)
	a.report(before, took, load.workloads)
	a.measured(100*load.work/took.Seconds()/load.quota, "worked-%")
	a.summary(filepath.Join(dir, "summary.yaml"))
	_ = runner.Process.Kill() // what it would clean up goes with the cluster
	a.Log("the runner ended:", <-ended)
}

// summary reports the average usage of the queues' quota, and how long Workloads waited, as measured by the runner. Usage includes
// Workloads that have ended but are not finished yet; a slow admitter has more of them.
func (a *arena) summary(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		a.Fatal(err)
	}
	var s struct {
		ClusterQueueClasses map[string]struct{ CPUAverageUsage, NominalQuota int64 }
		WorkloadClasses     map[string]struct{ AverageTimeToAdmissionMs int64 }
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		a.Fatalf("%s: %v", path, err)
	}
	var used, quota int64
	for _, c := range s.ClusterQueueClasses {
		used, quota = used+c.CPUAverageUsage, quota+c.NominalQuota
	}
	if quota == 0 {
		a.Fatalf("%s tells of no quota:\n%s", path, text)
	}
	a.measured(100*float64(used)/float64(quota), "quota-%")
	for _, name := range slices.Sorted(maps.Keys(s.WorkloadClasses)) {
		a.Logf("%s were admitted after %s on average", name, time.Duration(s.WorkloadClasses[name].AverageTimeToAdmissionMs)*time.Millisecond)
	}
}

// allFinished fails unless so many Workloads have finished: the runner takes it from the status of the ClusterQueues, which
// may be late.
func (a *arena) allFinished(want int) {
	var list kueue.WorkloadList
	if err := a.kube.List(a.Context(), &list); err != nil {
		a.Fatal(err)
	}
	finished := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, kueue.WorkloadFinished) {
			finished++
		}
	}
	if finished != want {
		a.Fatalf("the runner ended when %d of %d Workloads had finished: the load is too small for it", finished, want)
	}
}

// runnerLoad is a load of the runner.
type runnerLoad struct {
	text      []byte
	workloads int
	// work is the product of requests and run times of its Workloads, in CPU-seconds. quota is the quota of all its queues, in CPUs.
	work, quota float64
}

// generatorConfig reads the runner's load with so many times fewer Workloads. If ample, there is quota for all of them.
func generatorConfig(path string, fewer int, ample bool) (runnerLoad, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return runnerLoad{}, err
	}
	var config map[string]any
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return runnerLoad{}, fmt.Errorf("%s: %w", path, err)
	}
	var out runnerLoad
	for _, c := range config["cohorts"].([]any) {
		cohort := c.(map[string]any)
		for _, set := range cohort["queuesSets"].([]any) {
			queues := set.(map[string]any)
			if ample {
				queues["nominalQuota"] = 1_000_000
			}
			number := queues["count"].(float64) * cohort["count"].(float64)
			out.quota += number * cpus(queues["nominalQuota"])
			for _, workloads := range queues["workloadsSets"].([]any) {
				w := workloads.(map[string]any)
				count := float64(int(w["count"].(float64)) / fewer)
				w["count"] = count
				for _, one := range w["workloads"].([]any) {
					each := one.(map[string]any)
					pods, many := each["podCount"].(float64)
					if !many {
						pods = 1
					}
					seconds := each["runtimeMs"].(float64) / 1000
					out.workloads += int(count * number)
					out.work += count * number * pods * cpus(each["request"]) * seconds
				}
			}
		}
	}
	out.text, err = yaml.Marshal(config)
	return out, err
}

// cpus are those of a quantity, which YAML may take for a number.
func cpus(quantity any) float64 {
	q := resource.MustParse(fmt.Sprint(quantity))
	return q.AsApproximateFloat64()
}
