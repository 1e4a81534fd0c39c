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
	// draws of a forecast. If the actual start is distributed like a draw, it is between the first and the last in 8
	// of 10 cases.
	draws = 9
	// maxCycles bounds the cycles of one draw. Usually a draw takes a few for each step of time.
	maxCycles = 20_000
	// maxRounds bounds the cycles at one time.
	maxRounds = 50
	// firstStep is the first step at which changes by time alone are evaluated.
	firstStep = 20 * time.Second

	// LaunchTime is the default time from a launch until its nodes are Ready. Draws use from half to twice of it.
	LaunchTime = 4 * time.Minute
	// bookTime is the time to book existing machines.
	bookTime = 5 * time.Second
	// failTime is the time until a launch fails.
	failTime = 10 * time.Second
	// stopTime is the time in which evicted pods stop: the default grace period of pods.
	stopTime = 30 * time.Second
)

// Horizon is the horizon of the forecasts shown to users.
const Horizon = 7 * 24 * time.Hour

// Estimate is when a Workload is expected to start.
type Estimate struct {
	Workload *kueue.Workload
	// Start is the expected time; zero if it is beyond the horizon, or Unknown.
	Start time.Time
	// Early and Late are the range of the start in 8 of 10 cases, as far as past starts show. A zero Late is beyond
	// the horizon; with a zero Early the whole range is.
	Early, Late time.Time
	// Unknown: it starts only after Workloads with unknown run times have ended. After are those of them that it most
	// likely waits for last, the most likely first; none if they have not arrived yet.
	Unknown bool
	After   []*kueue.Workload
	// Reason and Message are why it waits now; if Start is zero, why it waits at the end of the horizon.
	Reason, Message string
}

// Covers reports whether a time is in the range.
func (e *Estimate) Covers(at time.Time) bool {
	return !e.Early.IsZero() && !at.Before(e.Early) && (e.Late.IsZero() || !at.After(e.Late))
}

// Report is a forecast for all pending Workloads.
type Report struct {
	// Estimates are sorted by namespace and name.
	Estimates []Estimate
	// Known, Limited and Unknown count the Workloads, pending or running, whose run times come from history, from
	// their maximum execution times, or are unknown.
	Known, Limited, Unknown int
	// Daily is the recent number of arrivals per day, of the kinds that are expected to continue.
	Daily int
}

// Basis describes for users what the forecast is based on.
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

// Forecast returns when each active Workload that is not admitted is expected to start, up to the horizon. It does not
// change the State.
func Forecast(state *queueing.State, history *History, now time.Time, horizon time.Duration) Report {
	out, _ := Paced(state, history, now, horizon, unhurried)
	return out
}

// unhurried never ends a forecast.
func unhurried() bool { return true }

// Paced is a Forecast that calls rest after every step, so that its caller can spread the cost over a longer time, or
// end it: if rest returns false there is no Report, and ok is false.
func Paced(state *queueing.State, history *History, now time.Time, horizon time.Duration, rest func() bool) (out Report, ok bool) {
	all := state.AllWorkloads()
	lengths := make(map[types.UID]*runTime, len(all))
	var waiting []*cache.Workload
	for _, w := range all {
		if workload.IsFinished(w.Object) {
			continue
		}
		l := history.runTimeOf(w.Object)
		lengths[w.Object.UID] = l
		switch {
		case l.isUnknown():
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
		hourly += s.perHour()
	}
	out.Daily = int(math.Round(24 * hourly))
	runs := make([]*draw, draws)
	for i := range runs {
		runs[i] = newDraw(state, all, streams, newAssumptions(i, lengths, launches), now)
		runs[i].afterCycle = rest
		if !rest() {
			return Report{}, false
		}
		if runs[i].runUntil(waiting, now.Add(horizon)); runs[i].stopped {
			return Report{}, false
		}
	}
	for _, w := range waiting {
		out.Estimates = append(out.Estimates, estimate(w, runs))
	}
	return out, true
}

// estimate summarizes the draws for one Workload.
func estimate(w *cache.Workload, runs []*draw) Estimate {
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
		return Estimate{Workload: w.Object, Unknown: true, After: blockingWorkloads(w, runs),
			Reason: runs[0].first[w.Object.UID].reason, Message: runs[0].first[w.Object.UID].message}
	}
	wait := runs[0].first[w.Object.UID]
	if e.Start.IsZero() {
		wait = runs[0].last[w.Object.UID]
	}
	e.Reason, e.Message = wait.reason, wait.message
	return e
}

// blockingWorkloads returns the Workloads of unknown run times whose end let a Workload start, the most frequent first.
// If the one that ended has a known run time, or has not arrived yet, it continues with what that one waited for.
func blockingWorkloads(w *cache.Workload, runs []*draw) []*kueue.Workload {
	times, by := map[types.UID]int{}, map[types.UID]*kueue.Workload{}
	for _, f := range runs {
		at := f.after[w.Object.UID]
		for at != nil && (!f.runTimes[at.Object.UID].isUnknown() || at.Object.CreationTimestamp.After(f.began)) {
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

// pendingChecks returns which checks a Workload with quota waits for.
func pendingChecks(w *kueue.Workload) waitReason {
	var open []string
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; c.State != kueue.CheckStateReady {
			open = append(open, fmt.Sprintf("%s: %s", c.Name, c.Message))
		}
	}
	return waitReason{kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks,
		"it has quota and waits for admission checks: " + strings.Join(open, "; ")}
}

// draw is one possible course of events.
type draw struct {
	*simulatedCluster
	assumptions
	// started are the start times of Workloads that wait now; unstarted are those that have not started.
	started   map[types.UID]time.Time
	unstarted map[types.UID]bool
	// queues are the Workloads that wait to be evaluated, by LocalQueue. inOrder has them sorted by name.
	queues  map[types.NamespacedName]*pendingQueue
	inOrder []*pendingQueue
	groupOf map[types.UID]*workloadGroup
	// ended is the Workload that ended last. after maps the UID of a Workload to the one that had ended last when it
	// got its quota for the first time.
	ended *cache.Workload
	after map[types.UID]*cache.Workload
	// arrived counts the arrivals of each stream.
	arrived map[*arrivalStream]int
	// first and last are the reasons of pending Workloads at the beginning and at the end.
	first, last map[types.UID]waitReason
}

type waitReason struct{ reason, message string }

func newDraw(state *queueing.State, all []*cache.Workload, streams []*arrivalStream, believes assumptions, now time.Time) *draw {
	f := &draw{
		assumptions: believes,
		queues:      map[types.NamespacedName]*pendingQueue{}, arrived: map[*arrivalStream]int{}, after: map[types.UID]*cache.Workload{},
		started: map[types.UID]time.Time{}, unstarted: map[types.UID]bool{}, groupOf: map[types.UID]*workloadGroup{},
		first: map[types.UID]waitReason{}, last: map[types.UID]waitReason{},
	}
	f.simulatedCluster = newSimulatedCluster(state, f, now)
	f.beforeApply, f.afterApply, f.onStart, f.onEnd = f.recordCause, f.recordReason, f.begin, func(w *cache.Workload) { f.ended = w }
	for _, s := range streams {
		f.pendingQueueOf(s.like.Object)
	}
	for _, w := range all {
		if workload.IsFinished(w.Object) {
			continue
		}
		if workload.HasQuota(w.Object) && !workload.IsAdmitted(w.Object) {
			f.last[w.Object.UID] = pendingChecks(w.Object)
		}
		requests := state.RequestsOf(w)
		if len(requests) > 0 || !isPlain(w.Object) {
			f.join(w, requests)
			continue
		}
		f.groupOf[w.Object.UID] = f.pendingQueueOf(w.Object).add(w)
	}
	for _, q := range slices.SortedFunc(maps.Keys(f.queues), func(a,
		b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	}) {
		f.queues[q].order()
		f.inOrder = append(f.inOrder, f.queues[q])
	}
	f.addArrivals(streams)
	return f
}

// pendingQueueOf returns the pending queue of a Workload.
func (f *draw) pendingQueueOf(w *kueue.Workload) *pendingQueue {
	q := queueOf(w)
	if f.queues[q] == nil {
		f.queues[q] = &pendingQueue{groups: map[groupKey]*workloadGroup{}}
	}
	return f.queues[q]
}

// runUntil advances time until all of the Workloads have started, or to the end.
func (f *draw) runUntil(waiting []*cache.Workload, end time.Time) {
	for _, w := range waiting {
		f.unstarted[w.Object.UID] = true
	}
	f.settle()
	f.recordUnevaluated()
	maps.Copy(f.first, f.last)
	for len(f.unstarted) > 0 && f.advance(end) {
		f.settle()
	}
	f.recordUnevaluated()
}

// settle runs cycles until they decide nothing and no further Workload may be next.
func (f *draw) settle() {
	f.fill()
	for again := true; again && f.mayDecide(); again = f.fill() {
		f.runCycles()
	}
}

// fill adds the Workloads that may be next, and reports whether there are any.
func (f *draw) fill() bool {
	some := false
	for _, l := range f.inOrder {
		for w := l.next(); w != nil; w = l.next() {
			f.join(w, nil)
			some = true
		}
	}
	return some
}

// recordCause records which Workload ended last before another one gets its quota for the first time.
func (f *draw) recordCause(v *lifecycle.Verdict) {
	uid := v.Workload.Object.UID
	if _, before := f.started[uid]; v.Action == lifecycle.Reserve && !before {
		f.after[uid] = f.ended
	}
}

// recordReason records the reason in a verdict on a pending Workload.
func (f *draw) recordReason(v *lifecycle.Verdict) {
	uid := v.Workload.Object.UID
	if l := f.groupOf[uid]; l != nil && (v.Action == lifecycle.Reserve || v.Reason != "" && !waitsForOthers[v.Reason]) {
		l.queue.remove(l, uid)
		delete(f.groupOf, uid)
	}
	if v.Action == lifecycle.Reserve {
		f.last[uid] = pendingChecks(v.Workload.Object)
		return
	}
	if f.unstarted[uid] && v.Action == lifecycle.Wait && v.Reason != "" {
		f.last[uid] = waitReason{v.Reason, v.Message}
	}
}

// waitsForOthers are the reasons of Workloads that start when others end. A Workload that waits for anything else must
// not keep those behind it from being evaluated.
var waitsForOthers = map[string]bool{
	kueue.WorkloadQuotaReservedReasonWaitingForQuota:              true,
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads: true,
	workload.ReasonWaitingForCapacity:                             true,
}

// recordUnevaluated records the reasons of Workloads that have not been evaluated.
func (f *draw) recordUnevaluated() {
	for _, l := range f.inOrder {
		if len(l.evaluated) == 0 {
			continue
		}
		head := slices.MinFunc(l.evaluated, func(a, b evaluatedWorkload) int { return compare(a.Workload, b.Workload) }).Object
		for i, w := range l.unevaluated() {
			f.last[w.Object.UID] = waitReason{f.last[head.UID].reason,
				fmt.Sprintf("%d workloads are ahead of it in LocalQueue %s, and the first, %s, waits: %s",
					len(l.evaluated)+i, head.Spec.QueueName, head.Name, f.last[head.UID].message)}
		}
	}
}

// begin records the first start of a Workload that waits now.
func (f *draw) begin(w *cache.Workload) {
	if uid := w.Object.UID; f.unstarted[uid] {
		f.started[uid] = f.now
		delete(f.unstarted, uid)
		delete(f.last, uid)
	}
}

func (f *draw) remaining(w *cache.Workload, now time.Time) time.Duration {
	o := w.Object
	elapsed := ranBefore(o) + max(0, now.Sub(admittedAt(o)))
	return f.total(o.UID, elapsed) - elapsed
}

func (f *draw) provisionTime(w *kueue.Workload, request string, plan *planner.Verdict) (time.Duration, bool) {
	switch {
	case plan != nil && plan.Outcome == planner.Fits:
		return bookTime, true
	case plan != nil && plan.Outcome == planner.Launch && len(plan.Launches) > 0 && plan.Chance <= nodegroups.NoChance:
		return failTime, false
	case plan != nil && int(1000*f.random("chance of "+w.Namespace+"/"+request)) >= plan.Chance:
		return failTime, false
	}
	var groups []planner.GroupCount
	if plan != nil {
		groups = slices.Concat(plan.Launches, plan.Shares)
	}
	return f.launch(groups, f.random("boot of "+w.Namespace+"/"+request)), true
}

func (*draw) stops() time.Duration { return stopTime }
