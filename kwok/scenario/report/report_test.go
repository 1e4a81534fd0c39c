package report

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/kwok/scenario"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff before you keep it")

func of(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// at is a time in seconds of the wall.
func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// job that was submitted at once.
func job(name string, pods int, ended time.Duration, outcome Outcome) Job {
	return Job{Name: name, Pods: pods, Reserved: Never, Admitted: Never, Ended: ended, Outcome: outcome}
}

// pod returns a pod of a job that requests a CPU, was bound half a second after its creation, ran another half second later, and
// succeeded.
func pod(job int, node string, created, ended float64) Pod {
	return Pod{Job: job, Amount: 1000, Node: node, Created: at(created), Bound: at(created + 0.5), Running: at(created + 1),
		Ended: at(ended), Succeeded: true}
}

func asking(amount int64, p Pod) Pod {
	p.Amount = amount
	return p
}

// sample is a run of four Jobs at speed 10 on a node of 4 CPUs, and on machines of 2
// that are bought: one serves two pods, one is never used, one is reclaimed.
func sample() Record {
	r := Record{
		Scenario: "sample", Description: "Four Jobs on a node and on what is bought", Admitter: "muster", Speed: 10, Resource: "cpu",
		Bound: scenario.Bound{Area: of(60 * time.Second), FIFO: of(100 * time.Second), FirstWave: 2, Binding: "cpu"},
		End:   at(20),
		Jobs: []Job{
			job("default/a", 2, at(11), Succeeded), job("default/b", 2, at(16), Succeeded),
			job("default/c", 1, at(12), Failed), job("default/d", 4, Never, Unfinished),
		},
		Nodes: []Node{{"node-0", 4000}},
		Machines: []Machine{
			{Name: "m-0", Group: "pool", Amount: 2000, MilliUSDPerHour: 3_600, Launched: at(1), Ready: at(3), Gone: at(17)},
			{Name: "m-1", Group: "pool", Amount: 2000, MilliUSDPerHour: 3_600, Launched: at(1), Ready: Never, Gone: Never},
			{Name: "m-2", Group: "spot", Amount: 2000, MilliUSDPerHour: 1_200, Launched: at(2), Ready: at(4), Gone: at(12)},
		},
		Pods: []Pod{
			pod(0, "node-0", 0, 10), pod(0, "node-0", 0.5, 11),
			pod(1, "m-0", 4, 15), pod(1, "m-0", 4, 15),
			pod(2, "m-2", 5, 12),
		},
		Left:      1,
		Writes:    []Writer{{"muster", 12}, {"all", 12_345}},
		Latency:   []Bucket{{5 * time.Millisecond, 900}, {10 * time.Millisecond, 990}, {50 * time.Millisecond, 1000}},
		Scheduled: 5, Unschedulable: 1,
		Faults: map[string]int{"Kill muster": 2},
		Judged: map[string]int{"P1 created pods": 5, "P4 reservations": 3}, Bounded: 20 * time.Second,
		Broken: []string{"P7 explained: Workload default/d: says nothing at 12:00:00.000"},
	}
	r.Jobs[1].Reserved, r.Jobs[1].Admitted = at(1), at(4)
	r.Jobs[3].Reserved = at(13)
	return r
}

func TestGoldenReport(t *testing.T) {
	r := Of(sample())
	// One value shows the form of curves in JSON. The page shows all values, in a line for each series.
	figures := r
	figures.Curves = []Curve{{Title: "Jobs", Unit: "Jobs", Series: []Series{{Name: "waiting", StepMillis: 83, Values: []int64{4}}}}}
	machine, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	other := sample()
	other.Admitter, other.Machines, other.Judged, other.Broken = "none", nil, nil, nil
	other.Jobs[1].Outcome = Failed
	for name, got := range map[string]string{
		"report.txt": r.Text(), "report.json": string(machine) + "\n", "report.html": string(page), "compare.txt": Compare(r, Of(other)),
	} {
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs; run go test -update ./kwok/scenario/report and read the diff (-want +got):\n%s", golden, diff)
		}
	}
}

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	r := Of(sample())
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Read(append(text, '\n'))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("report (-written +read):\n%s", diff)
	}
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`many`:                          "invalid character",
		`{}`:                            "it names no scenario: give the report.json of a run",
		`{"kind": "Pod"}`:               `unknown field "kind": give the report.json of a run of this version`,
		`{"scenario": 3}`:               "cannot unmarshal number",
		`{"scenario": "a"} {"jobs": 1}`: "something comes after the report",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestWhatCannotBeComparedIsSaidSo(t *testing.T) {
	const name, bounds, speeds = "different scenarios", "different bounds", "different speeds"
	for what, tc := range map[string]struct {
		change func(*Report)
		want   []string
	}{
		"a run of the same":           {func(r *Report) { r.Admitter = "none" }, nil},
		"a run of another scenario":   {func(r *Report) { r.Scenario, r.Bound.FirstWave = "other", 7 }, []string{name}},
		"a run of what it was before": {func(r *Report) { r.Bound.FIFO = of(time.Second) }, []string{bounds}},
		"a faster run":                {func(r *Report) { r.Speed = 20 }, []string{speeds}},
		"a faster run of what it was": {func(r *Report) { r.Speed, r.Bound.FirstWave = 20, 7 }, []string{bounds, speeds}},
	} {
		a, b := Of(sample()), Of(sample())
		tc.change(&b)
		var got []string
		for _, warning := range []string{name, bounds, speeds} {
			if strings.Contains(Compare(a, b), warning) {
				got = append(got, warning)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", what, diff)
		}
	}
}

func TestThePageNeedsNothingElse(t *testing.T) {
	r := Of(sample())
	r.Description = "<script>alert(1)</script>"
	page, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "http:", "https:", "<link", "src=", "@import"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
}

// figure is a figure that a test checks.
type figure struct {
	what string
	of   func(Report) any
}

func TestFigures(t *testing.T) {
	var (
		makespan  = figure{"makespan", func(r Report) any { return r.Makespan.Took.Duration }}
		startUp   = figure{"start-up", func(r Report) any { return r.Makespan.StartUp.Duration }}
		overFIFO  = figure{"makespan over FIFO", func(r Report) any { return r.Makespan.OverFIFO }}
		fixed     = figure{"utilisation of fixed machines", func(r Report) any { return r.Fixed.Share }}
		bought    = figure{"machines bought", func(r Report) any { return r.Bought.Machines }}
		needed    = figure{"machines needed", func(r Report) any { return r.Bought.Needed }}
		idle      = figure{"idle share", func(r Report) any { return r.Bought.IdleShare }}
		wasted    = figure{"wasted machine-seconds", func(r Report) any { return r.Bought.Wasted }}
		left      = figure{"machines left", func(r Report) any { return r.Bought.Left }}
		lostUSD   = figure{"lost milli-USD", func(r Report) any { return r.Bought.LostMilliUSD }}
		wastedUSD = figure{"wasted milli-USD", func(r Report) any { return r.Bought.WastedMilliUSD }}
		use       = figure{"utilisation of bought machines", func(r Report) any { return r.Bought.Share }}
		cost      = figure{"cost in milli-USD", func(r Report) any { return r.Bought.MilliUSD }}
		wait      = figure{"most that a Job waited", func(r Report) any { return r.Wait.Most.Duration }}
		waited    = figure{"Jobs that have waited", func(r Report) any { return r.Wait.Count }}
		waiting   = figure{"Jobs that wait or have waited", func(r Report) any { return r.Wait.Of }}
		capacity  = figure{"median time to capacity", func(r Report) any { return r.ToCapacity.P50.Duration }}
		latency   = figure{"p99 of a write", func(r Report) any { return r.API.P99.Duration }}
	)
	// machine of 2 CPUs at 1 USD a second, which is ready at once.
	machine := func(name, group string, launched, gone float64) Machine {
		return Machine{Name: name, Group: group, Amount: 2000, MilliUSDPerHour: 3_600_000, Launched: at(launched),
			Ready: at(launched), Gone: at(gone)}
	}
	// plain is one Job of two pods on a node of two CPUs, at speed 1.
	plain := func(change func(*Record)) Record {
		r := Record{Speed: 1, Bound: scenario.Bound{FIFO: of(9 * time.Second), FirstWave: 2}, End: at(30), Resource: "cpu",
			Jobs:  []Job{job("a", 2, at(11), Succeeded)},
			Nodes: []Node{{"node-0", 2000}},
			Pods:  []Pod{pod(0, "node-0", 0, 11), pod(0, "node-0", 0.5, 11)},
		}
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		record Record
		want   map[*figure]any
	}{
		"a Job that has the node to itself": {
			record: plain(func(*Record) {}),
			want: map[*figure]any{&makespan: at(11), &overFIFO: 1.1, &fixed: 0.886, &wait: at(1.5), &waited: 1,
				&bought: 0, &needed: 0, &latency: time.Duration(0)},
		},
		"a first wave that takes its time to come has no start-up": {
			record: plain(func(r *Record) { r.Bound.FirstWaveIn = of(600 * time.Millisecond) }),
			want:   map[*figure]any{&overFIFO: 1.222},
		},
		"a start-up with machines that are bought would be their boots": {
			record: plain(func(r *Record) { r.Nodes, r.Machines = nil, []Machine{{Name: "node-0", Amount: 2000, Gone: Never}} }),
			want:   map[*figure]any{&startUp: time.Duration(0), &overFIFO: 1.222},
		},
		"the clock starts with the first Job to come": {
			record: plain(func(r *Record) {
				for i := range r.Pods {
					r.Pods[i].Created, r.Pods[i].Bound, r.Pods[i].Running = at(5), at(5.5), at(6)
				}
				r.Jobs[0].Submitted = at(5)
				r.Jobs = append(r.Jobs, job("never came", 1, at(5), Failed))
				r.Jobs[1].Submitted = Never
			}),
			want: map[*figure]any{&makespan: at(6), &fixed: 0.833},
		},
		"times are scenario time at any speed": {
			record: plain(func(r *Record) { r.Speed = 10 }),
			want:   map[*figure]any{&makespan: at(110), &wait: at(15)},
		},
		"a Job that has not ended takes until the end of the observation": {
			record: plain(func(r *Record) { r.Jobs[0].Outcome, r.Jobs[0].Ended = Unfinished, Never }),
			want:   map[*figure]any{&makespan: at(30)},
		},
		"a Job whose pods never ran together has waited until its end at most": {
			record: plain(func(r *Record) {
				r.Pods[1].Created, r.Pods[1].Running = at(10.8), at(11.5)
				r.Jobs = append(r.Jobs, job("late", 1, at(20), Failed))
				r.Jobs[1].Submitted = Never
			}),
			want: map[*figure]any{&waited: 0, &waiting: 1, &wait: at(11)},
		},
		"one that never ran has waited until the end at least": {
			record: plain(func(r *Record) {
				r.Jobs = append(r.Jobs, job("b", 2, Never, Unfinished))
				r.Jobs[1].Submitted = at(10)
			}),
			want: map[*figure]any{&waited: 1, &waiting: 2, &wait: at(20)},
		},
		"so has one that failed before it ran": {
			record: plain(func(r *Record) { r.Jobs = append(r.Jobs, job("b", 2, at(3), Failed)) }),
			want:   map[*figure]any{&waited: 1, &waiting: 2, &wait: at(11)},
		},
		"one that was never submitted has not": {
			record: plain(func(r *Record) {
				r.Jobs = append(r.Jobs, job("b", 2, Never, Unfinished))
				r.Jobs[1].Submitted = Never
			}),
			want: map[*figure]any{&waited: 1, &waiting: 1, &wait: at(1.5)},
		},
		"a Job that lost a pod has waited no longer": {
			record: plain(func(r *Record) {
				r.Pods[1].Ended = at(5)
				r.Pods = append(r.Pods, pod(0, "node-0", 6, 11))
			}),
			want: map[*figure]any{&wait: at(1.5)},
		},
		"a machine is idle when ready without a pod, and wasted while it boots as well": {
			record: plain(func(r *Record) {
				r.Nodes = nil
				r.Machines = []Machine{{Name: "node-0", Amount: 2000, MilliUSDPerHour: 3_600_000, Launched: at(-5), Ready: at(0), Gone: at(21)}}
				r.Jobs = append(r.Jobs, job("late", 1, at(31), Succeeded))
			}),
			want: map[*figure]any{&bought: 1, &needed: 1, &wasted: int64(16), &idle: 0.423, &cost: int64(26_000)},
		},
		"a machine is paid for, and idle, until its own end, but used over the makespan": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 21)}
			}),
			want: map[*figure]any{&makespan: at(11), &use: 0.886, &idle: 0.524, &wasted: int64(11), &cost: int64(21_000), &left: 0},
		},
		"one that nobody took back is paid for until the end of the observation": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines, r.Left = nil, []Machine{machine("node-0", "a", 0, 99)}, 1
				r.Machines[0].Gone = Never
			}),
			want: map[*figure]any{&makespan: at(11), &idle: 0.667, &cost: int64(30_000), &left: 1},
		},
		"one that came when all had ended was bought for nothing": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 11), machine("m-1", "a", 12, 22)}
			}),
			want: map[*figure]any{&bought: 2, &needed: 1, &use: 0.886, &wasted: int64(11), &cost: int64(21_000)},
		},
		"a pod that did not succeed ran for nothing": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 11)}
				r.Pods[0].Running, r.Pods[1].Running, r.Pods[1].Ended = at(1), at(1), at(5)
				r.Pods[1].Succeeded = false
				r.Pods[0].Running = at(3)
			}),
			// From 1 to 3 s it ran alone.
			want: map[*figure]any{&wasted: int64(3), &idle: 0.091, &lostUSD: int64(2_000), &wastedUSD: int64(3_000), &use: 0.364},
		},
		"so did the pods of a Job that failed, whatever they say": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 11)}
				r.Jobs[0].Outcome = Failed
			}),
			want: map[*figure]any{&lostUSD: int64(10_000), &wasted: int64(11), &use: 0.0},
		},
		"lost pods do not count as use of fixed machines": {
			record: plain(func(r *Record) { r.Pods[0].Succeeded = false }),
			want:   map[*figure]any{&fixed: 0.432},
		},
		"what still runs at the end is not lost": {
			record: plain(func(r *Record) {
				r.Jobs[0].Outcome, r.Jobs[0].Ended = Unfinished, Never
				r.Pods[0].Ended, r.Pods[0].Succeeded = Never, false
			}),
			want: map[*figure]any{&fixed: 0.642},
		},
		"a pod has its lost machine no longer than that was paid for": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 6)}
				r.Pods[0].Succeeded, r.Pods[1].Succeeded = false, false
			}),
			want: map[*figure]any{&lostUSD: int64(5_000), &wasted: int64(6), &idle: 0.167},
		},
		"machines of one group that are needed once those of another are not": {
			record: plain(func(r *Record) {
				r.Nodes, r.Machines = nil, []Machine{machine("node-0", "a", 0, 11), machine("m-1", "b", 0, 30), machine("m-2", "b", 0, 30)}
				r.Jobs = append(r.Jobs, job("b", 2, at(25), Succeeded))
				r.Pods = append(r.Pods, asking(2000, pod(1, "m-1", 11, 25)), asking(2000, pod(1, "m-2", 11, 25)))
			}),
			want: map[*figure]any{&bought: 3, &needed: 2},
		},
		"what ran at once is what was needed, in whole machines": {
			record: plain(func(r *Record) {
				r.Nodes = nil
				r.Machines = []Machine{{Name: "node-0", Amount: 3000, Gone: Never}, {Name: "m-1", Amount: 3000, Gone: Never}}
				r.Jobs = append(r.Jobs, job("b", 1, at(11), Succeeded), job("c", 1, at(25), Succeeded))
				r.Pods = append(r.Pods, asking(2000, pod(1, "m-1", 0, 11)), asking(2000, pod(2, "m-1", 11, 25)))
			}),
			want: map[*figure]any{&bought: 2, &needed: 2},
		},
		"two pods that fit on a machine need one": {
			record: plain(func(r *Record) {
				r.Nodes = nil
				r.Machines = []Machine{{Name: "node-0", Amount: 1900, Gone: Never}, {Name: "m-1", Amount: 1900, Gone: Never}}
				r.Jobs = append(r.Jobs, job("b", 1, at(11), Succeeded))
				r.Pods = append(r.Pods, asking(900, pod(1, "m-1", 0, 11)))
				r.Jobs[0].Pods, r.Pods = 1, r.Pods[1:]
			}),
			want: map[*figure]any{&needed: 1},
		},
		"three pods of more than half a machine need three": {
			record: plain(func(r *Record) {
				r.Nodes = nil
				r.Machines = []Machine{{Name: "node-0", Amount: 1900, Gone: Never}, {Name: "m-1", Amount: 1900, Gone: Never},
					{Name: "m-2", Amount: 1900, Gone: Never}}
				r.Jobs = append(r.Jobs, job("b", 1, at(11), Succeeded))
				r.Pods = append(r.Pods, pod(1, "m-1", 0, 11))
			}),
			want: map[*figure]any{&needed: 3},
		},
		"time to capacity is from the first reservation to the admission": {
			record: plain(func(r *Record) { r.Jobs[0].Reserved, r.Jobs[0].Admitted = at(3), at(7) }),
			want:   map[*figure]any{&capacity: at(4)},
		},
		"who has reserved and was never admitted counts until the end": {
			record: plain(func(r *Record) { r.Jobs[0].Reserved = at(3) }),
			want:   map[*figure]any{&capacity: at(8)},
		},
		"the bucket in which 99 of 100 are": {
			record: plain(func(r *Record) { r.Latency = []Bucket{{at(1), 98}, {at(2), 99}, {at(3), 100}} }),
			want:   map[*figure]any{&latency: at(2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Of(tc.record)
			for f, want := range tc.want {
				if got := f.of(r); got != want {
					t.Errorf("%s: %v, want %v", f.what, got, want)
				}
			}
		})
	}
}

func TestAMakespanIsHeldAgainstTheRateOfAnotherRun(t *testing.T) {
	bound := scenario.Bound{FIFO: of(100 * time.Second), FirstWave: 50}
	came := bound
	came.FirstWaveIn = of(time.Second)
	run := func(took float64, speed int, rate float64, bound scenario.Bound) Report {
		return Report{Speed: speed, Bound: bound, Makespan: Makespan{Took: of(at(took)), PodsPerSecond: rate}}
	}
	for name, tc := range map[string]struct {
		run, other Report
		want       float64
	}{
		"its own rate does not matter":             {run(132, 1, 1, bound), run(200, 1, 5, bound), 1.2},
		"the rate is of the wall, the rest is not": {run(132, 2, 1, bound), run(200, 2, 10, bound), 1.2},
		"the other's pods do not come at once":     {run(132, 1, 1, bound), run(200, 1, 0, came), 0},
		"its own pods do not come at once":         {run(132, 1, 0, came), run(200, 1, 5, bound), 0},
		"its machines boot, which is in the bound": {run(132, 1, 0, bound), run(200, 1, 5, bound), 1.2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.run.OverFIFOAtRateOf(tc.other); got != tc.want {
				t.Errorf("%v times the bound, want %v", got, tc.want)
			}
		})
	}
}

func TestTheFirstOfManyViolationsAreReported(t *testing.T) {
	r := sample()
	r.Broken = slices.Repeat([]string{"it broke"}, 1012)
	out := Of(r)
	page, err := out.HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.Text(), string(page)} {
		if n := strings.Count(text, "it broke"); n != 10 || !strings.Contains(text, "and 1,002 more") {
			t.Errorf("%d of 1,012 are told:\n%s", n, text)
		}
	}
	if len(out.Promises.Broken) != 1012 {
		t.Errorf("the report itself has %d of 1,012", len(out.Promises.Broken))
	}
}

func TestACurveEndsWithTheRun(t *testing.T) {
	r := sample()
	r.Jobs, r.Pods = r.Jobs[:1], r.Pods[:2]
	r.Jobs[0].Ended = at(11) + 7*time.Millisecond // no multiple of the steps
	for _, s := range Of(r).Curves[0].Series {
		if last := s.Values[len(s.Values)-1]; s.Name == "succeeded" && last != 1 {
			t.Errorf("the curve ends with %d Jobs that succeeded, the run with 1", last)
		}
	}
}

func TestNumbersAsPeopleReadThem(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 12340 * time.Millisecond: "12.3s", 61*time.Second + 400*time.Millisecond: "1m1s",
		90*time.Minute + 20*time.Second: "1h30m",
	} {
		if got := short(d); got != want {
			t.Errorf("%d ns are written %s, want %s", d, got, want)
		}
	}
}
