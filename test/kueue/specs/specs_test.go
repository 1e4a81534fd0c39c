package specs

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/test/testbed"
)

var (
	chosen = flag.String("suites", "", "suites to run, separated by commas, by their path in testdata/exceptions.yaml; all is all of them")
	focus  = flag.String("focus", "", "run only specs whose names match")
	keep   = flag.String("keep", "", "`folder` that keeps the reports and logs")
)

// musterVariable names the program of muster.
const musterVariable = "MUSTER_BIN"

// counts are those of a suite's specs.
type counts struct{ passed, applies, all int }

// TestSpecs runs the suites. It is not part of a run of all tests, since it takes long: -suites chooses it.
func TestSpecs(t *testing.T) {
	all := readTable(t)
	if *chosen == "" {
		t.Skip("no -suites: `make specs` runs them")
	}
	for _, v := range []string{testbed.SandboxVariable, musterVariable} {
		if os.Getenv(v) == "" {
			t.Skipf("%s does not name a program: `make specs` builds it", v)
		}
	}
	kueue, dir := module(t), cmp.Or(*keep, t.TempDir())
	ours := filepath.Join(os.TempDir(), "muster-specs-kueue")
	copyModule(t, kueue, ours)
	var mu sync.Mutex
	lines := map[string]string{}
	t.Run("suites", func(t *testing.T) {
		for _, s := range all.Suites {
			if *chosen != "all" && !slices.Contains(strings.Split(*chosen, ","), s.Path) {
				continue
			}
			t.Run(s.Path, func(t *testing.T) {
				t.Parallel() // most of a suite's time is waiting
				began := time.Now()
				c := run(t, s, kueue, ours, dir)
				mu.Lock()
				defer mu.Unlock()
				lines[s.Path] = fmt.Sprintf("| %s | %d | %d | %d | %s |", s.Path, c.passed, c.applies, c.all-c.applies,
					time.Since(began).Round(time.Second))
			})
		}
	})
	fmt.Println("| suite | passed | applicable | left out | time |") //nolint:forbidigo // a test's own output
	for _, path := range slices.Sorted(maps.Keys(lines)) {
		fmt.Println(lines[path]) //nolint:forbidigo // a test's own output
	}
	for _, s := range all.NotRun {
		fmt.Printf("not run: %s: %s\n", s.Path, s.Why) //nolint:forbidigo // a test's own output
	}
}

// compiling is held by the suite that is compiled: one compiler keeps all processors busy.
var compiling sync.Mutex

// run compiles and runs a suite in a cluster of its own, and compares what came of its specs with the table.
func run(t *testing.T, s suite, kueue, ours, dir string) counts {
	files := filepath.Join(dir, strings.ReplaceAll(s.Path, "/", "-"))
	if err := errors.Join(os.RemoveAll(files), os.MkdirAll(files, 0o700)); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	project(t, kueue, home)
	program := filepath.Join(home, "suite")
	compiling.Lock()
	err := compile(t.Context(), ours, s.Path, program)
	compiling.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Config{Only: []string{cluster.Etcd, cluster.APIServer}}
	sandbox.FillHalf(&config, deploy.Queueing)
	running, err := testbed.Start(t.Context(), "specs-"+strings.ToLower(filepath.Base(s.Path)), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := running.Cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	report := filepath.Join(files, "report.json")
	args := []string{"-test.timeout=0", "-ginkgo.no-color", "-ginkgo.timeout=2h", "-ginkgo.json-report=" + report, "-ginkgo.focus=" + *focus}
	play := exec.CommandContext(t.Context(), program, append(args, s.skips()...)...)
	play.Dir = home
	play.Env = append(os.Environ(), "PROJECT_DIR="+filepath.Join(home, "project"), "ARTIFACTS="+files, "MUSTER_SPECS_DIR="+files,
		"MUSTER_SPECS_KUBECONFIG="+running.Kubeconfig(), "MUSTER_SPECS_SUITE="+s.Path,
		"E2E_TEST_AGNHOST_IMAGE=agnhost", "E2E_TEST_SPARK_IMAGE=spark", "E2E_TEST_REDIS_IMAGE=redis") // nothing pulls them
	play.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(files, "suite.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	play.Stdout, play.Stderr = log, log
	failure := play.Run() // whether a spec failed is in the report
	if _, err := os.Stat(report); err != nil {
		testbed.Tail(log.Name())
		t.Fatalf("the suite made no report: %v", failure)
	}
	specs, beside := readReport(t, report)
	for _, b := range beside {
		t.Errorf("%s: %s\n%s", b.LeafNodeType, b.State, b.Failure.Message)
	}
	return judge(t, s, specs)
}

// judge compares what came of the specs with the table.
func judge(t *testing.T, s suite, specs []spec) (c counts) {
	t.Helper()
	for _, one := range specs {
		name, passed := one.name(), one.State == "passed"
		if one.State == "skipped" && *focus != "" {
			continue
		}
		c.all++
		why := s.exceptionFor(name)
		switch {
		case why == nil && !passed:
			t.Errorf("%s: %s\n    %s:%d\n    %s", one.State, name, filepath.Base(one.Failure.Location.FileName), one.Failure.Location.LineNumber,
				strings.ReplaceAll(one.Failure.Message, "\n", "\n    "))
		case why != nil && passed:
			t.Logf("passes, though the table excepts it by %q: %s", why.Specs, name)
		}
		if why == nil || why.Differs != "" {
			c.applies++
			if passed {
				c.passed++
			}
		}
	}
	return c
}
