package dispatch

import (
	"fmt"
	"slices"
	"time"
)

// connectionChanged wakes the dispatcher, if the job is one that waits for a cluster.
func (w *world) connectionChanged() {
	if v := w.cached(); v.quota && v.cluster == "" || w.managed && (v.quota || v.record != "") {
		w.wake(w.now)
	}
}

// act lets an actor have its turn, on a picture that is late by up to the lag.
func (w *world) act(a *actor, lag time.Duration, turn func(seen version)) {
	if w.now.Before(a.again) {
		return
	}
	a.again = w.now.Add(tick + w.within(200*time.Millisecond))
	seen := w.now.Add(-w.within(lag))
	turn(w.lastOf(func(v version) bool { return !v.at.After(seen) }))
}

// cached is the manager's Workload as the dispatcher's cache has it.
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

// wake has the dispatcher look at the job at that time.
func (w *world) wake(at time.Time) { w.muster.wakes = append(w.muster.wakes, at) }

// outcome is what became of a step of the dispatcher, as its controller tells its queue.
type outcome int

const (
	// done: it looks again at the step's time, or once something happens.
	done outcome = iota
	// goesOn: what it has written is known, so that it takes the next step at once.
	goesOn
	// notAsSeen: what was decided on is not how it is; leaving: it waits for a deletion.
	notAsSeen
	leaving
	// failed: a call has, and the more often the longer it waits.
	failed
)

// wakeful lets the dispatcher have its turn if something has woken it. Otherwise it must have a reason to sleep.
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

// oversleeps is for how long the dispatcher may sleep though the job could go on: what is known of prospects comes without an event.
const oversleeps = weighAgain + 2*time.Second

// sleeps judges whether the dispatcher may: unless what it knows is not true any more, there is nothing to do for the job.
func (w *world) sleeps(decide func(*Job, []Cluster, time.Time) Step) {
	step := func(v version, as look) Step {
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

// hearsNothing reports whether the watch of a cluster stalls that the step is about.
func (w *world) hearsNothing(s *Step) bool {
	return slices.ContainsFunc(w.workers, func(x *worker) bool {
		about := x.name == s.Cluster || slices.Contains(s.Gone, x.name) || slices.Contains(w.manager.nominated, x.name)
		return about && w.now.Before(x.stalledUntil.Add(time.Second))
	})
}

// job is what a version of the Workload says.
func (w *world) job(v version) (*Job, error) {
	record, err := w.decode(v.record)
	return &Job{
		Open: v.quota && !v.ready && v.cluster == "" && !v.deleted && !v.finished, Over: w.managed && (!v.quota || v.deleted || v.finished),
		Runs: v.cluster, Nominated: v.nominated, Hedge: w.hedge, Record: record,
	}, err
}
