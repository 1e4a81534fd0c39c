package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// draws that a forecast makes. If the truth is like one more of them, it lies between
	// the first and the last in 8 of 10 cases.
	draws = 9
	// mostCycles is what one draw may take. Usually it takes a few for each step of time.
	mostCycles = 20_000
	// mostRounds is how many cycles are run at one time.
	mostRounds = 50
	// firstStep is the first step in which it is looked at what time alone changes.
	firstStep = 20 * time.Second

	// LaunchTime is what a launch takes until its nodes are ready where nothing is known of
	// its group; drawn from half to twice of it.
	LaunchTime = 4 * time.Minute
	// bookTime is what it takes to book machines that are there.
	bookTime = 5 * time.Second
	// failTime is what it takes to learn that a launch failed.
	failTime = 10 * time.Second
	// stopTime is how long evicted pods have to stop: the grace period that pods have
	// by default.
	stopTime = 30 * time.Second
)

// Horizon is how far ahead the forecasts look that users see.
const Horizon = 7 * 24 * time.Hour

// Estimate is when a Workload is expected to start.
type Estimate struct {
	Workload *kueue.Workload
	// Start is the expected time; zero if it is not within the horizon, or Unknown.
	Start time.Time
	// Early and Late are the range in which it lies in 8 of 10 cases, as far as the past
	// tells. A zero Late is beyond the horizon, as is all of a zero Early.
	Early, Late time.Time
	// Unknown says that it starts only when Workloads have ended whose run times are unknown,
	// so that no time can be told. After are those of them that are likely to be the last it
	// waits for, the likeliest first; none where they have not come yet.
	Unknown bool
	After   []*kueue.Workload
	// Reason and Message say what it waits for now; where Start is zero, what for at the
	// end of the horizon.
	Reason, Message string
}

// Covers says that a time lies in the range.
func (e *Estimate) Covers(at time.Time) bool {
	return !e.Early.IsZero() && !at.Before(e.Early) && (e.Late.IsZero() || !at.After(e.Late))
}

// Report is a forecast for all that wait.
type Report struct {
	// Estimates by namespace and name.
	Estimates []Estimate
	// Known, Limited and Unknown count the Workloads, waiting or running, whose run
	// times are taken from history, from their maximum execution times, or from nothing.
	Known, Limited, Unknown int
	// Daily is how many Workloads a day have come of late, of those that others like them
	// are expected to follow.
	Daily int
}

// Basis tells people what the forecast rests on.
func (r *Report) Basis() string {
	var parts []string
	for _, part := range []struct {
		count int
		words string
	}{{r.Known, "known from past jobs for %d"}, {r.Limited, "the maximum execution time for %d"}, {r.Unknown, "unknown for %d"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf(part.words, part.count))
		}
	}
	out := fmt.Sprintf("of %d workloads, run times are %s", r.Known+r.Limited+r.Unknown, strings.Join(parts, ", "))
	switch {
	case len(parts) == 0:
		out = "no workload has a run time to wait for"
	case len(parts) == 1 && r.Unknown > 0:
		out = fmt.Sprintf("the run times of all %d workloads are unknown: past jobs like them or a maximum execution time would tell", r.Unknown)
	}
	if r.Daily == 0 {
		return out + "; jobs that are still to come are left out, since it is not known how many come"
	}
	return out + fmt.Sprintf("; %d jobs a day were created, and the same rate is expected", r.Daily)
}

// Forecast tells for each Workload that is active and not admitted when it is expected
// to start, up to the horizon. The State is not changed.
func Forecast(state *queueing.State, history *History, now time.Time, horizon time.Duration) Report {
	out, _ := Paced(state, history, now, horizon, unhurried)
	return out
}

// unhurried is the rest of a forecast that takes the time that it needs.
func unhurried() bool { return true }

// Paced is a Forecast that calls rest after every step of its work, so that its caller
// may spread over a longer time what it costs, or end it: there is no Report, and ok is false, if rest reports false.
func Paced(state *queueing.State, history *History, now time.Time, horizon time.Duration, rest func() bool) (out Report, ok bool) {
	all := state.AllWorkloads()
	lengths := make(map[types.UID]*length, len(all))
	var waiting []*cache.Workload
	for _, w := range all {
		if workload.IsFinished(w.Object) {
			continue
		}
		l := history.lengthOf(w.Object)
		lengths[w.Object.UID] = l
		switch {
		case l.unknown():
			out.Unknown++
		case len(l.runs) > 0:
			out.Known++
		default:
			out.Limited++
		}
		if !workload.IsAdmitted(w.Object) && workload.IsActive(w.Object) {
			waiting = append(waiting, w)
		}
	}
	streams, launches := history.streams(state, now), history.launchTimes()
	var hourly float64
	for _, s := range streams {
		hourly += s.hourly()
	}
	out.Daily = int(math.Round(24 * hourly))
	runs := make([]*future, draws)
	for i := range runs {
		runs[i] = newFuture(state, all, streams, believes(i, lengths, launches), now)
		runs[i].rested = rest
		if !rest() {
			return Report{}, false
		}
		if runs[i].unfold(waiting, now.Add(horizon)); runs[i].stopped {
			return Report{}, false
		}
	}
	for _, w := range waiting {
		out.Estimates = append(out.Estimates, estimate(w, runs))
	}
	return out, true
}

// estimate sums up the draws for one Workload.
func estimate(w *cache.Workload, runs []*future) Estimate {
	starts := make([]time.Time, 0, len(runs))
	for _, f := range runs {
		if at, ok := f.started[w.Object.UID]; ok {
			starts = append(starts, at)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	nth := func(i int) time.Time {
		if i >= len(starts) {
			return time.Time{}
		}
		return starts[i]
	}
	e := Estimate{Workload: w.Object, Early: nth(0), Start: nth(len(runs) / 2), Late: nth(len(runs) - 1)}
	if _, ok := runs[len(runs)-1].started[w.Object.UID]; !ok && !e.Start.IsZero() {
		return Estimate{Workload: w.Object, Unknown: true, After: lastEnds(w, runs),
			Reason: runs[0].first[w.Object.UID].reason, Message: runs[0].first[w.Object.UID].message}
	}
	told := runs[0].first[w.Object.UID]
	if e.Start.IsZero() {
		told = runs[0].last[w.Object.UID]
	}
	e.Reason, e.Message = told.reason, told.message
	return e
}

// lastEnds are the Workloads of unknown run times at whose ends a Workload got its quota, the
// most frequent first. Where it was one of a known run time, or one that has not come yet, what
// that waited for counts.
func lastEnds(w *cache.Workload, runs []*future) []*kueue.Workload {
	times, by := map[types.UID]int{}, map[types.UID]*kueue.Workload{}
	for _, f := range runs {
		at := f.after[w.Object.UID]
		for at != nil && (!f.lengths[at.Object.UID].unknown() || at.Object.CreationTimestamp.After(f.began)) {
			at = f.after[at.Object.UID]
		}
		if at != nil {
			times[at.Object.UID]++
			by[at.Object.UID] = at.Object
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *kueue.Workload) int {
		return cmp.Or(cmp.Compare(times[b.UID], times[a.UID]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// unanswered tells of a Workload that has its quota which checks it waits for.
func unanswered(w *kueue.Workload) told {
	var open []string
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
			open = append(open, fmt.Sprintf("%s: %s", c.Name, c.Message))
		}
	}
	return told{kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks,
		"it has quota and waits for admission checks: " + strings.Join(open, "; ")}
}

// future is one draw of how things may go on.
type future struct {
	*world
	belief
	// started is when Workloads start that wait now; unstarted are the others of these.
	started   map[types.UID]time.Time
	unstarted map[types.UID]bool
	// lanes are those that wait for their turn to be judged, by LocalQueue; inOrder has them
	// in the order of the names.
	lanes   map[types.NamespacedName]*lane
	inOrder []*lane
	lineOf  map[types.UID]*line
	// ended is the Workload that ended last, and after, by UID, the one that had ended last when
	// another was given its quota for its first start.
	ended *cache.Workload
	after map[types.UID]*cache.Workload
	// came counts those of each stream that have come.
	came map[*stream]int
	// first and last are what Workloads are told at the beginning and at the end.
	first, last map[types.UID]told
}

type told struct{ reason, message string }

func newFuture(state *queueing.State, all []*cache.Workload, streams []*stream, believes belief, now time.Time) *future {
	f := &future{
		belief: believes,
		lanes:  map[types.NamespacedName]*lane{}, came: map[*stream]int{}, after: map[types.UID]*cache.Workload{},
		started: map[types.UID]time.Time{}, unstarted: map[types.UID]bool{}, lineOf: map[types.UID]*line{},
		first: map[types.UID]told{}, last: map[types.UID]told{},
	}
	f.world = newWorld(state, f, now)
	f.sees, f.saw, f.begins, f.ends = f.note, f.tell, f.begin, func(w *cache.Workload) { f.ended = w }
	for _, s := range streams {
		f.laneOf(s.like.Object)
	}
	for _, w := range all {
		if workload.IsFinished(w.Object) {
			continue
		}
		if workload.HasQuota(w.Object) && !workload.IsAdmitted(w.Object) {
			f.last[w.Object.UID] = unanswered(w.Object)
		}
		requests := state.RequestsOf(w)
		if len(requests) > 0 || !isPlain(w.Object) {
			f.join(w, requests)
			continue
		}
		f.lineOf[w.Object.UID] = f.laneOf(w.Object).add(w)
	}
	for _, q := range slices.SortedFunc(maps.Keys(f.lanes), func(a,
		b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	}) {
		f.lanes[q].order()
		f.inOrder = append(f.inOrder, f.lanes[q])
	}
	f.expect(streams)
	return f
}

// laneOf is the lane that a Workload waits in.
func (f *future) laneOf(w *kueue.Workload) *lane {
	q := queueOf(w)
	if f.lanes[q] == nil {
		f.lanes[q] = &lane{lines: map[likeness]*line{}}
	}
	return f.lanes[q]
}

// unfold lets time pass until all that wait have started, or to the end.
func (f *future) unfold(waiting []*cache.Workload, end time.Time) {
	for _, w := range waiting {
		f.unstarted[w.Object.UID] = true
	}
	f.settle()
	f.tellBehind()
	maps.Copy(f.first, f.last)
	for len(f.unstarted) > 0 && f.advance(end) {
		f.settle()
	}
	f.tellBehind()
}

// settle runs cycles until they decide nothing and no further Workload may be next.
func (f *future) settle() {
	f.fill()
	for again := true; again && f.mayDecide(); again = f.fill() {
		f.rest()
	}
}

// fill adds the Workloads that may be next, and reports whether there are any.
func (f *future) fill() bool {
	some := false
	for _, l := range f.inOrder {
		for w := l.next(); w != nil; w = l.next() {
			f.join(w, nil)
			some = true
		}
	}
	return some
}

// note notes after whose end a Workload is given its quota for its first start.
func (f *future) note(v *lifecycle.Verdict) {
	uid := v.Workload.Object.UID
	if _, before := f.started[uid]; v.Action == lifecycle.Reserve && !before {
		f.after[uid] = f.ended
	}
}

// tell notes what a verdict tells a Workload that waits.
func (f *future) tell(v *lifecycle.Verdict) {
	uid := v.Workload.Object.UID
	if l := f.lineOf[uid]; l != nil && (v.Action == lifecycle.Reserve || v.Reason != "" && !waitsForOthers[v.Reason]) {
		l.lane.left(l, uid)
		delete(f.lineOf, uid)
	}
	if v.Action == lifecycle.Reserve {
		f.last[uid] = unanswered(v.Workload.Object)
		return
	}
	if f.unstarted[uid] && v.Action == lifecycle.Wait && v.Reason != "" {
		f.last[uid] = told{v.Reason, v.Message}
	}
}

// waitsForOthers are the reasons of Workloads that start when others end. A Workload that
// waits for anything else must not keep those behind it from being judged.
var waitsForOthers = map[string]bool{
	kueue.WorkloadQuotaReservedReasonWaitingForQuota:              true,
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads: true,
	workload.ReasonWaitingForCapacity:                             true,
}

// tellBehind tells those that have not been judged.
func (f *future) tellBehind() {
	for _, l := range f.inOrder {
		if len(l.judged) == 0 {
			continue
		}
		head := slices.MinFunc(l.judged, func(a, b waiting) int { return compare(a.Workload, b.Workload) }).Object
		for i, w := range l.unjudged() {
			f.last[w.Object.UID] = told{f.last[head.UID].reason,
				fmt.Sprintf("%d workloads are ahead of it in LocalQueue %s, and the first, %s, waits: %s",
					len(l.judged)+i, head.Spec.QueueName, head.Name, f.last[head.UID].message)}
		}
	}
}

// begin notes the first start of those that wait now.
func (f *future) begin(w *cache.Workload) {
	if uid := w.Object.UID; f.unstarted[uid] {
		f.started[uid] = f.now
		delete(f.unstarted, uid)
		delete(f.last, uid)
	}
}

func (f *future) runs(w *cache.Workload, now time.Time) time.Duration {
	o := w.Object
	elapsed := ranBefore(o) + max(0, now.Sub(admittedAt(o)))
	return f.total(o.UID, elapsed) - elapsed
}

func (f *future) boots(w *kueue.Workload, request string, plan *planner.Verdict) (time.Duration, bool) {
	switch {
	case plan != nil && plan.Outcome == planner.Fits:
		return bookTime, true
	case plan != nil && plan.Outcome == planner.Launch && len(plan.Launches) > 0 && plan.Chance <= nodegroups.NoChance:
		return failTime, false
	case plan != nil && int(1000*f.chance("chance of "+w.Namespace+"/"+request)) >= plan.Chance:
		return failTime, false
	}
	var groups []planner.GroupCount
	if plan != nil {
		groups = slices.Concat(plan.Launches, plan.Shares)
	}
	return f.launch(groups, f.chance("boot of "+w.Namespace+"/"+request)), true
}

func (*future) stops() time.Duration { return stopTime }
