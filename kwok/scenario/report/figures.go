package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/kwok/scenario"
)

// Report is how a run went. It is written as JSON as it is.
type Report struct {
	Scenario    string              `json:"scenario"`
	Description string              `json:"description"`
	Admitter    string              `json:"admitter"`
	Speed       int                 `json:"speed"`
	Resource    corev1.ResourceName `json:"resource"`

	Jobs     Jobs           `json:"jobs"`
	Makespan Makespan       `json:"makespan"`
	Bound    scenario.Bound `json:"bound"`
	// Wait of Jobs from their submission until all of their pods ran together.
	Wait Percentiles `json:"wait"`
	// ToCapacity is from the first reservation of quota until all checks were ready.
	ToCapacity Percentiles `json:"timeToCapacity"`
	Fixed      Usage       `json:"fixedMachines"`
	Bought     Purchases   `json:"boughtMachines"`
	API        API         `json:"api"`
	Scheduling Scheduling  `json:"scheduling"`
	// Faults that came, by type and target.
	Faults   map[string]int `json:"faults,omitempty"`
	Promises Promises       `json:"promises"`

	Curves []Curve `json:"curves"`
	// Uncompressed are times that Speed did not divide; empty at speed 1.
	Uncompressed []string `json:"uncompressed,omitempty"`
}

// Jobs by their outcomes.
type Jobs struct {
	Submitted  int `json:"submitted"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"`
	Unfinished int `json:"unfinished"`
}

// Makespan is from the first submission until the last Job's end.
type Makespan struct {
	Took metav1.Duration `json:"took"`
	// StartUp is how long the pods of the first wave took in this very run, from the
	// first to be created until the last to be bound, which they were at PodsPerSecond of
	// the wall. Both are 0 where the Jobs of that wave do not come at once, which hides
	// what it takes, and where machines are bought: then it is their boots that it takes.
	StartUp       metav1.Duration `json:"startUp"`
	PodsPerSecond float64         `json:"boundPodsPerSecond"`
	// OverFIFO is Took divided by the FIFO bound plus StartUp. A slow start-up does not count
	// here, but in Report.OverFIFOAtRateOf.
	OverFIFO float64 `json:"overFIFO"`
}

// Percentiles of a time that Count of Of Jobs have had. The others are still having it:
// they count with what it had come to by the end, which is the least that it will be.
type Percentiles struct {
	Count int             `json:"count"`
	Of    int             `json:"of"`
	P50   metav1.Duration `json:"p50"`
	P90   metav1.Duration `json:"p90"`
	P99   metav1.Duration `json:"p99"`
	Most  metav1.Duration `json:"most"`
}

// Usage of machines: amounts of the report's resource in use by pods that ran and were
// not lost, over the makespan, by what the machines had.
type Usage struct {
	Machines int     `json:"machines"`
	Share    float64 `json:"utilisation"`
}

// API is what kube-apiserver had to bear.
type API struct {
	Writes []Writer `json:"writes"`
	// P99 of the time that a write took, of the wall.
	P99 metav1.Duration `json:"writeLatencyP99"`
}

// Scheduling is what kube-scheduler did.
type Scheduling struct {
	Scheduled     int64 `json:"scheduled"`
	Unschedulable int64 `json:"unschedulable"`
}

// Promises that were watched all along.
type Promises struct {
	Judged map[string]int `json:"judged,omitempty"`
	// Bounded is the real time in which bounds were checked: after a fault all restart.
	Bounded metav1.Duration `json:"bounded"`
	Broken  []string        `json:"broken,omitempty"`
}

// First of the broken promises, as many as people read: what breaks one often breaks
// hundreds alike. JSON has them all.
func (p Promises) First() []string {
	const most = 10
	if len(p.Broken) <= most {
		return p.Broken
	}
	return append(slices.Clone(p.Broken[:most]), fmt.Sprintf("and %s more", grouped(int64(len(p.Broken)-most))))
}

// Of makes a report of a record.
func Of(r Record) Report {
	out := Report{
		Scenario: r.Scenario, Description: r.Description, Admitter: r.Admitter, Speed: r.Speed, Resource: r.Resource, Bound: r.Bound,
		Jobs:       jobs(r),
		Makespan:   makespan(r),
		Fixed:      fixed(r),
		Bought:     bought(r),
		API:        API{Writes: r.Writes, P99: metav1.Duration{Duration: quantile(r.Latency, 99)}},
		Scheduling: Scheduling{Scheduled: r.Scheduled, Unschedulable: r.Unschedulable},
		Faults:     r.Faults,
		Promises:   Promises{Judged: r.Judged, Broken: r.Broken, Bounded: metav1.Duration{Duration: r.Bounded}},
		Curves:     curves(r),
	}
	if r.Speed > 1 {
		out.Uncompressed = scenario.Uncompressed
	}
	out.Wait, out.ToCapacity = waits(r)
	return out
}

// scaled is a time of the wall as scenario time.
func (r Record) scaled(d time.Duration) metav1.Duration {
	return metav1.Duration{Duration: (d * time.Duration(r.Speed)).Round(time.Millisecond)}
}

// last is when the last Job ended, or the observation where one had not.
func (r Record) last() time.Duration {
	var last time.Duration
	for _, j := range r.Jobs {
		if j.Outcome == Unfinished {
			return r.End
		}
		last = max(last, j.Ended)
	}
	return last
}

// first is when the first Job was submitted, which a makespan counts from.
func (r Record) first() time.Duration {
	var first time.Duration
	known := false
	for _, j := range r.Jobs {
		if j.Submitted != Never && (!known || j.Submitted < first) {
			first, known = j.Submitted, true
		}
	}
	return first
}

func jobs(r Record) Jobs {
	out := Jobs{Submitted: len(r.Jobs)}
	for _, j := range r.Jobs {
		switch j.Outcome {
		case Succeeded:
			out.Succeeded++
		case Failed:
			out.Failed++
		case Unfinished:
			out.Unfinished++
		}
	}
	return out
}

func makespan(r Record) Makespan {
	out := Makespan{Took: r.scaled(r.last() - r.first())}
	// The first wave is over when so many pods have been bound.
	var created, bound []time.Duration
	for _, p := range r.Pods {
		if p.Bound != Never {
			created, bound = append(created, p.Created), append(bound, p.Bound)
		}
	}
	slices.Sort(created)
	slices.Sort(bound)
	if wave := min(r.Bound.FirstWave, len(bound)); wave > 0 && r.Bound.FirstWaveIn.Duration == 0 && len(r.Machines) == 0 {
		took := max(bound[wave-1]-created[0], time.Millisecond)
		out.StartUp = r.scaled(took)
		out.PodsPerSecond = round(float64(wave) / took.Seconds())
	}
	out.OverFIFO = ratio(float64(out.Took.Duration), float64(r.Bound.FIFO.Duration+out.StartUp.Duration))
	return out
}

// together is for each Job when all of its pods ran at the same time for the first
// time, or Never.
func together(r Record) []time.Duration {
	type change struct {
		at    time.Duration
		job   int
		delta int
	}
	var changes []change
	for _, p := range r.Pods {
		if p.Running == Never {
			continue
		}
		changes = append(changes, change{p.Running, p.Job, 1})
		if p.Ended != Never {
			changes = append(changes, change{p.Ended, p.Job, -1})
		}
	}
	// What begins as something else ends runs beside it for a moment.
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), -cmp.Compare(a.delta, b.delta), cmp.Compare(a.job, b.job))
	})
	running := make([]int, len(r.Jobs))
	out := slices.Repeat([]time.Duration{Never}, len(r.Jobs))
	for _, c := range changes {
		if running[c.job] += c.delta; running[c.job] == r.Jobs[c.job].Pods && out[c.job] == Never {
			out[c.job] = c.at
		}
	}
	return out
}

func waits(r Record) (wait, toCapacity Percentiles) {
	var started, capacity times
	end := r.last()
	for i, at := range together(r) {
		j := r.Jobs[i]
		switch {
		case j.Submitted == Never:
		case at != Never:
			started.had(at - j.Submitted)
		case j.Outcome == Succeeded:
			started.has(j.Ended - j.Submitted) // its pods ran one after another
		default:
			// A Job that failed before it ran counts like one that still waits.
			started.has(end - j.Submitted)
		}
		switch {
		case j.Reserved == Never:
		case j.Admitted != Never:
			capacity.had(j.Admitted - j.Reserved)
		default:
			capacity.has(end - j.Reserved)
		}
	}
	return r.percentiles(started), r.percentiles(capacity)
}

// times that Jobs had, or have had so far.
type times struct {
	all   []time.Duration
	count int
}

func (t *times) had(d time.Duration) {
	t.all = append(t.all, d)
	t.count++
}

func (t *times) has(d time.Duration) { t.all = append(t.all, d) }

// percentiles by the nearest rank: each is the time of one Job.
func (r Record) percentiles(t times) Percentiles {
	times := t.all
	if len(times) == 0 {
		return Percentiles{}
	}
	slices.Sort(times)
	at := func(percent int) metav1.Duration {
		return r.scaled(times[(len(times)*percent+99)/100-1])
	}
	return Percentiles{Count: t.count, Of: len(times), P50: at(50), P90: at(90), P99: at(99), Most: at(100)}
}

// quantile of a histogram is the bound of the bucket that it falls in.
func quantile(buckets []Bucket, percent int64) time.Duration {
	if len(buckets) == 0 {
		return 0
	}
	all := buckets[len(buckets)-1].Count
	for _, b := range buckets {
		if all > 0 && b.Count*100 >= all*percent {
			return b.AtMost
		}
	}
	return 0
}

// span of time in which a pod ran on a node.
type span struct {
	from, to time.Duration
	amount   int64
	// lost says that it came to nothing.
	lost bool
}

// runs are the spans by node.
func runs(r Record) map[string][]span {
	// A pod whose machine was lost is seen to end long after.
	gone := map[string]time.Duration{}
	for _, m := range r.Machines {
		gone[m.Name] = r.gone(m)
	}
	out := map[string][]span{}
	for _, p := range r.Pods {
		to := r.End
		if at, ok := gone[p.Node]; ok {
			to = at
		}
		if p.Ended != Never {
			to = min(p.Ended, to)
		}
		if p.Running == Never || p.Running >= to {
			continue
		}
		j := r.Jobs[p.Job]
		// What still runs at the end may yet come to something.
		lost := j.Outcome == Failed || p.Ended != Never && !p.Succeeded
		out[p.Node] = append(out[p.Node], span{p.Running, to, p.Amount, lost})
	}
	return out
}

// useful are the spans that were not lost.
func useful(spans []span) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.lost })
}

// used is amount × time of the spans, in thousandths × nanoseconds; a float, since it
// passes what 64 bits hold.
func used(spans []span) (sum float64) {
	for _, s := range spans {
		sum += float64(s.amount) * float64(s.to-s.from)
	}
	return sum
}

// busy is for how long at least one of the spans lasted.
func busy(spans []span) (sum time.Duration) {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var until time.Duration
	for _, s := range spans {
		if from := max(s.from, until); s.to > from {
			sum += s.to - from
			until = s.to
		}
	}
	return sum
}

func fixed(r Record) Usage {
	byNode, took := runs(r), r.last()-r.first()
	var use, had float64
	for _, n := range r.Nodes {
		use += used(useful(byNode[n.Name]))
		had += float64(n.Amount) * float64(took)
	}
	return Usage{Machines: len(r.Nodes), Share: ratio(use, had)}
}

// steps of the spans in order.
func steps(spans []span) []step {
	var out []step
	for _, s := range spans {
		out = append(out, step{s.from, s.amount}, step{s.to, -s.amount})
	}
	slices.SortFunc(out, compareSteps)
	return out
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a / b)
}

// round keeps three digits after the decimal point.
func round(f float64) float64 { return math.Round(f*1000) / 1000 }
