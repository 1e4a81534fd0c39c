package dispatch

import (
	"fmt"
	"slices"
	"time"
)

// connectionChanged wakes the dispatcher if the job waits for a cluster.
func (w *world) connectionChanged() {
	if v := w.cached(); v.quota && v.cluster == "" || w.managed && (v.quota || v.record != "") {
		w.wake(w.now)
	}
}

// act runs an actor on a state that is old by up to the lag.
func (w *world) act(a *actor, lag time.Duration, turn func(seen version)) {
	if w.now.Before(a.again) {
		return
	}
	a.again = w.now.Add(tick + w.within(200*time.Millisecond))
	seen := w.now.Add(-w.within(lag))
	turn(w.lastOf(func(v version) bool { return !v.at.After(seen) }))
}

// cached returns the manager's Workload from the dispatcher's cache.
func (w *world) cached() version {
	return w.lastOf(func(v version) bool { return !v.shown.After(w.now) })
}

func (w *world) lastOf(is func(version) bool) version {
	for i := len(w.history) - 1; ; i-- {
		if i == 0 || is(w.history[i]) {
			return w.history[i]
		}
	}
}

// wake requeues the job at that time.
func (w *world) wake(at time.Time) { w.muster.wakes = append(w.muster.wakes, at) }

// outcome is the result of a step, which decides when the job is requeued.
type outcome int

const (
	// done: requeue at the step's time. Events may come earlier.
	done outcome = iota
	// goesOn: the written version is known, so that the next step follows at once.
	goesOn
	// notAsSeen: a live read showed another state. leaving: a deletion is not finished.
	notAsSeen
	leaving
	// failed: a call has failed. Retries back off.
	failed
)

// wakeful runs the dispatcher if an event or a timer is due. Otherwise it verifies that there was nothing to do.
func (w *world) wakeful(turn func(version) (Step, outcome), decide func(*Job, []Cluster, time.Time) Step) {
	a := &w.muster
	if w.now.Before(a.again) {
		return
	}
	n := len(a.wakes)
	if a.wakes = slices.DeleteFunc(a.wakes, func(at time.Time) bool { return !at.After(w.now) }); len(a.wakes) == n {
		w.sleeps(decide)
		return
	}
	a.again, a.could = w.now.Add(tick+w.within(200*time.Millisecond)), time.Time{}
	begins := a.begins
	s, is := turn(w.cached())
	if a.begins != begins {
		return // it has crashed
	}
	if is != failed {
		a.failed = 0
	}
	switch is {
	case done:
		if !s.At.IsZero() {
			w.wake(later(s.At, w.now.Add(tick)))
		}
	case goesOn:
		w.wake(w.now)
	case notAsSeen:
		w.wake(w.now.Add(300 * time.Millisecond))
	case leaving:
		w.wake(w.now.Add(2 * time.Second))
	case failed:
		w.wake(w.now.Add(min(5*time.Millisecond<<a.failed, 1000*time.Second)))
		a.failed = min(a.failed+1, 20)
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// oversleeps is how long the dispatcher may sleep although the job could go on, since changes of prospects have no event.
const oversleeps = weighAgain + 2*time.Second

// sleeps verifies that the dispatcher may sleep: unless its caches are stale, there is nothing to do for the job.
func (w *world) sleeps(decide func(*Job, []Cluster, time.Time) Step) {
	step := func(v version, as reading) Step {
		j, err := w.job(v)
		if err != nil {
			w.wrong = err.Error()
			return Step{}
		}
		return decide(j, w.clusters(&j.Record, as), w.now)
	}
	a := &w.muster
	if w.now.Before(a.judged.Add(time.Second)) {
		return
	}
	a.judged = w.now
	s := step(w.cached(), asCached)
	if s.Do == Rest || s.Do == Follow || a.failed > 0 || w.hearsNothing(&s) {
		a.could = time.Time{}
		return
	}
	switch truly := step(w.manager, asIs); {
	case truly.Do != s.Do || truly.Cluster != s.Cluster:
		a.could = time.Time{}
	case a.could.IsZero():
		a.could = w.now
	case w.now.Sub(a.could) > oversleeps:
		w.wrong = fmt.Sprintf("the dispatcher sleeps, and since %.2fs could: %s %s %s", a.could.Sub(noon).Seconds(), s.Do, s.Cluster, s.Message)
	}
}

// hearsNothing reports whether the watch of a cluster of the step stalls.
func (w *world) hearsNothing(s *Step) bool {
	return slices.ContainsFunc(w.workers, func(x *worker) bool {
		about := x.name == s.Cluster || slices.Contains(s.Gone, x.name) || slices.Contains(w.manager.nominated, x.name)
		return about && w.now.Before(x.stalledUntil.Add(time.Second))
	})
}

// job returns the Job of a version of the Workload.
func (w *world) job(v version) (*Job, error) {
	record, err := w.decode(v.record)
	return &Job{
		Open: v.quota && !v.ready && v.cluster == "" && !v.deleted && !v.finished, Over: w.managed && (!v.quota || v.deleted || v.finished),
		Runs: v.cluster, Nominated: v.nominated, Hedge: w.hedge, Record: record,
	}, err
}
