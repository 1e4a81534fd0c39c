package runner_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/kwok/scenario/report"
	"github.com/muster-dev/muster/test/testbed"
)

// sandbox runs the command as a user does.
func sandbox(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary := os.Getenv("MUSTER_SANDBOX_BIN")
	if binary == "" {
		t.Skip("MUSTER_SANDBOX_BIN does not name a sandbox's binary: run `make test-more`, which builds it")
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	return string(out), err
}

// TestMain has more runs go on at a time than there are cores, since they mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sandboxName is that of the sandbox in which the scenario runs.
func sandboxName(scenario string) string {
	return fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(scenario), ".yaml"), os.Getpid())
}

// run runs a scenario, a file of testdata or one of the library, at speed 10 and reads its
// report.
func run(t *testing.T, name string, args ...string) (r report.Report, dir string) {
	t.Helper()
	t.Parallel()
	dir = t.TempDir()
	if strings.HasSuffix(name, ".yaml") {
		name = filepath.Join("testdata", name)
	}
	args = append([]string{"--name", sandboxName(name), "scenario", "run", name, "--speed", "10", "--report", dir}, args...)
	if out, err := sandbox(t, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", r.Text())
	return r, dir
}

// From no machine to eight gangs: what is bought is what is needed. How long it takes
// depends on what else the machine does, so that is not held against it.
func TestFromZeroNothingIsBoughtInVain(t *testing.T) {
	r, dir := run(t, "from-zero.yaml")
	if want := (report.Jobs{Submitted: 8, Succeeded: 8}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	if r.Bought.Needed == 0 || r.Bought.BoughtPerNeeded > 1.05 {
		t.Errorf("%d machines were bought and %d needed, want at most 1.05 times as many", r.Bought.Machines, r.Bought.Needed)
	}
	if r.Makespan.Took.Duration < r.Bound.Area.Duration {
		t.Errorf("it took %s, less than the %s that no order can beat", r.Makespan.Took.Duration, r.Bound.Area.Duration)
	}
	if r.Scheduling.Unschedulable > 5 || r.Scheduling.Scheduled < 24 {
		t.Errorf("scheduling %+v, want 24 pods at the first attempt", r.Scheduling)
	}
	if len(r.Promises.Broken) > 0 {
		t.Errorf("promises were broken: %v", r.Promises.Broken)
	}
	for _, check := range []string{"P1 created pods", "P2 launched machines", "P3 bookings", "P4 reservations"} {
		if r.Promises.Judged[check] == 0 {
			t.Errorf("nothing was there to check %q: %v", check, r.Promises.Judged)
		}
	}
	for _, name := range []string{"report.txt", "report.html"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "launched ÷ needed") {
			t.Errorf("%s does not tell it: %v", name, err)
		}
	}
	out, err := sandbox(t, "scenario", "compare", filepath.Join(dir, "report.json"), filepath.Join(dir, "report.json"))
	if err != nil || !strings.Contains(out, "1.00") {
		t.Errorf("a report compared with itself: %v\n%s", err, out)
	}
}

// Gangs that are smaller than a machine share upcoming machines. None has a machine of its
// own, and none is evicted because the others' pods have not come yet.
func TestSmallGangsShareMachines(t *testing.T) {
	r, _ := run(t, "small-gangs.yaml")
	if want := (report.Jobs{Submitted: 20, Succeeded: 20}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	if r.Bought.Machines != 4 || r.Bought.Needed != 4 {
		t.Errorf("%d machines were bought and %d needed, want 4 for 20 gangs of a fifth", r.Bought.Machines, r.Bought.Needed)
	}
	if got := r.Promises.Judged["P4 reservations"]; got != 20 {
		t.Errorf("quota was reserved %d times, want once for each gang", got)
	}
	if r.Scheduling.Unschedulable > 5 || len(r.Promises.Broken) > 0 {
		t.Errorf("scheduling %+v, broken promises %v", r.Scheduling, r.Promises.Broken)
	}
}

// The batch reference architecture: one Job of each cohort is on what is reserved, which
// two teams lend each other; the others of teams a and b are on demand, those of c and d
// on spot, and compact work is on the machines for it.
func TestTheReferenceArchitectureIsPlacedAsItSays(t *testing.T) {
	r, _ := run(t, "reference")
	if want := (report.Jobs{Submitted: 26, Succeeded: 26}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	got := map[string]int{}
	for _, g := range r.Bought.Groups {
		got[g.Name] = g.Machines
	}
	if diff := cmp.Diff(map[string]int{"reserved-l4": 4, "on-demand-l4": 22, "spot-l4": 22, "spot-a100": 2}, got); diff != "" {
		t.Errorf("machines by group (-want +got):\n%s", diff)
	}
	if r.Bought.BoughtPerNeeded > 1.05 || len(r.Promises.Broken) > 0 {
		t.Errorf("launched ÷ needed %.2f, scheduling %+v, broken promises %v", r.Bought.BoughtPerNeeded, r.Scheduling, r.Promises.Broken)
	}
}

// JobSets and RayJobs wait with Jobs in one queue, and run on machines of two groups.
func TestJobsOfOtherKindsArrive(t *testing.T) {
	testbed.NeedOperators(t, "jobset", "ray")
	r, _ := run(t, "kinds-small")
	if want := (report.Jobs{Submitted: 10, Succeeded: 10}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	for _, g := range r.Bought.Groups {
		if g.Machines == 0 {
			t.Errorf("no machine of %s was bought", g.Name)
		}
	}
	if got := r.Promises.Judged["P2 machines rolled back"]; got > 0 {
		t.Errorf("%d machines were rolled back though none failed: launchers share machines with other gangs", got)
	}
	if got := r.Promises.Judged["P4 reservations"]; got < 10 || len(r.Promises.Broken) > 0 {
		t.Errorf("quota was reserved %d times, want once for each; broken promises %v", got, r.Promises.Broken)
	}
	if r.Wait.Count != 10 {
		t.Errorf("the pods of %d were seen to run together, want all 10", r.Wait.Count)
	}
}

// Pods that are gated arrive, alone and in groups, and end; what serves is deleted after its time.
func TestGatedPodsArrive(t *testing.T) {
	r, _ := run(t, "pods-small")
	if want := (report.Jobs{Submitted: 10, Succeeded: 10}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	if r.Wait.Count != 10 || r.Bought.Left > 0 || len(r.Promises.Broken) > 0 {
		t.Errorf("the pods of %d were seen to run together, want all 10; %d machines are left; broken promises %v", r.Wait.Count, r.Bought.Left,
			r.Promises.Broken)
	}
	if got := r.Promises.Judged["P4 reservations"]; got < 12 {
		t.Errorf("quota was reserved %d times, want at least once for 3 groups, 4 pods, a StatefulSet and 4 pods of Deployments", got)
	}
}

// What goes wrong costs time, and no Job, machine or promise.
func TestTroubleCostsTimeAlone(t *testing.T) {
	r, _ := run(t, "trouble.yaml")
	if want := (report.Jobs{Submitted: 4, Succeeded: 4}); r.Jobs != want {
		t.Errorf("Jobs %+v, want %+v", r.Jobs, want)
	}
	for _, fault := range []string{"Kill muster", "Kill kube-apiserver", "CutWatches muster", "Refuse muster", "LoseAnswers muster"} {
		if r.Faults[fault] == 0 {
			t.Errorf("no fault %q came: %v", fault, r.Faults)
		}
	}
	if len(r.Promises.Broken) > 0 {
		t.Errorf("promises were broken: %v", r.Promises.Broken)
	}
	for _, w := range r.API.Writes {
		if w.Writes < 0 || w.Who == "muster" && w.Writes == 0 {
			t.Errorf("%s has sent %d writes: those before a death are missing", w.Who, w.Writes)
		}
	}
}

// Kubernetes alone starts all Jobs at once, so parts of gangs wait for each other.
func TestWithoutMusterPodsComeBeforeTheirRoom(t *testing.T) {
	r, _ := run(t, "crowded.yaml", "--admitter", "none")
	if r.Jobs.Unfinished > 0 || r.Jobs.Submitted != 20 {
		t.Errorf("Jobs %+v, want 20 that came to an end", r.Jobs)
	}
	if r.Scheduling.Unschedulable == 0 {
		t.Errorf("scheduling %+v, want failed attempts", r.Scheduling)
	}
	if len(r.Promises.Judged) > 0 {
		t.Errorf("promises were judged without Muster: %v", r.Promises.Judged)
	}
}

// What there was until a run was cut short is reported, and said to be a part.
func TestAnInterruptedRunIsReported(t *testing.T) {
	binary := os.Getenv("MUSTER_SANDBOX_BIN")
	if binary == "" {
		t.Skip("MUSTER_SANDBOX_BIN does not name a sandbox's binary: run `make test-more`, which builds it")
	}
	t.Parallel()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), binary, "--name", sandboxName("interrupted"),
		"scenario", "run", filepath.Join("testdata", "crowded.yaml"), "--report", dir)
	var said strings.Builder
	command.Stderr = &said
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// Without a terminal the first line is printed once some Jobs run.
	var told strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if told.Len() == 0 {
			if err := command.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(&told, lines.Text())
	}
	if err := command.Wait(); err == nil {
		t.Error("the run counts as one that came to its end")
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &told, &said)
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Jobs.Submitted != 20 || r.Jobs.Unfinished == 0 || !strings.HasPrefix(r.Description,
		"PARTIAL, cut short since the run was interrupted: 20 gangs") {
		t.Errorf("%q, Jobs %+v", r.Description, r.Jobs)
	}
}

func TestWhatTheCommandRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	text, err := scenario.Text("thousand-jobs-small")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte(strings.Replace(string(text), "count: 100", "count: many", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a scenario that there is not":      {[]string{"nothing"}, `the library has no scenario "nothing": it has `},
		"a file that there is not":          {[]string{"./nothing.yaml"}, "reading the scenario: open ./nothing.yaml"},
		"a wrong file, by line and field":   {[]string{bad}, `line 34: arrivals[0].count: "many" is not a whole number of 32 bits`},
		"a speed that is none":              {[]string{"thousand-jobs", "--speed", "0"}, "--speed=0: use a number from 1 to 100"},
		"an admitter that there is not":     {[]string{"thousand-jobs", "--admitter", "kueue"}, `--admitter="kueue": use one of muster, none`},
		"groups without a provisioner":      {[]string{"thousand-jobs-from-zero", "--admitter", "none"}, "without Muster no machines are launched"},
		"a folder that cannot be made":      {[]string{"thousand-jobs", "--report", filepath.Join(bad, "folder")}, "making the folder of the report"},
		"a report that is none, to compare": {nil, "is not a report.json"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"scenario", "run"}, tc.args...)
			if tc.args == nil {
				args = []string{"scenario", "compare", bad, bad}
			}
			out, err := sandbox(t, args...)
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("error %v, told:\n%s\nwant %s", err, out, tc.want)
			}
		})
	}
}

// All that the API server refuses is reported with its line before the first Job comes.
func TestWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	out, err := sandbox(t, "--name", sandboxName("refused"), "scenario", "run", filepath.Join("testdata", "refused.yaml"), "--speed", "10")
	if err == nil {
		t.Fatalf("it was run:\n%s", out)
	}
	for _, want := range []string{
		`line 6: nodes[0]: creating node-0: Node "node-0" is invalid: metadata.labels`,
		`line 11: groups[0]: creating pool: NodeGroup.muster.dev "pool" is invalid: spec: Invalid value: minNodes must not be greater than maxNodes`,
		`line 20: objects[0]: creating fixed: `, `unknown field "spec.nodelabels"`,
		`line 24: objects[1]: creating default/settings: `, `unknown field "date"`,
		`line 32: arrivals[0].shapes[0]: creating default/job-0: Job.batch "job-0" is invalid: spec.template.spec.tolerations[0].effect`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not told", want)
		}
	}
	if t.Failed() {
		t.Logf("told:\n%s", out)
	}
}

func TestShellsCompleteTheLibrary(t *testing.T) {
	for _, command := range []string{"run", "check", "show"} {
		out, err := sandbox(t, "__complete", "scenario", command, "")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, ":") {
				break
			}
			names = append(names, line)
		}
		if diff := cmp.Diff(scenario.Names(), names); diff != "" {
			t.Errorf("completions of %s (-want +got):\n%s", command, diff)
		}
	}
}

func TestCheckStartsNothing(t *testing.T) {
	out, err := sandbox(t, "scenario", "check", "thousand-jobs-small")
	if err != nil || !strings.Contains(out, "Jobs      100, ") || !strings.Contains(out, "Pods      1000\n") ||
		strings.Contains(out, "Starting") {
		t.Errorf("error %v, told:\n%s", err, out)
	}
	text, err := scenario.Text("thousand-jobs-small")
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte(strings.Replace(string(text), "queue: batch", "queue: btach", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	want := bad + ":\n" +
		`line 33: arrivals[0].queue: there is no LocalQueue "btach" in namespace default; there are batch: choose one, or add it to objects`
	if out, err = sandbox(t, "scenario", "check", bad); err == nil || !strings.Contains(out, want) {
		t.Errorf("error %v, told:\n%s\nwant %s", err, out, want)
	}
}

func TestTheAdmitterIsExplained(t *testing.T) {
	out, err := sandbox(t, "scenario", "run", "--help")
	if err != nil || !strings.Contains(out, "none: all Jobs start at once, for a comparison with kube-scheduler alone") {
		t.Errorf("error %v, told:\n%s", err, out)
	}
}

func TestListAndShow(t *testing.T) {
	out, err := sandbox(t, "scenario", "list")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out, "\n"); lines != len(scenario.Names())+1 {
		t.Errorf("%d lines for %d scenarios:\n%s", lines, len(scenario.Names()), out)
	}
	text, err := scenario.Text("reference")
	if err != nil {
		t.Fatal(err)
	}
	if out, err = sandbox(t, "scenario", "show", "reference"); err != nil || out != string(text) {
		t.Errorf("error %v, shown:\n%s", err, out)
	}
}
