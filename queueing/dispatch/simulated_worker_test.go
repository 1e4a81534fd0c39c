package dispatch

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// listener is the process of a worker that stops copies, with the manager's Lease.
type listener struct {
	process          int
	silence          *Silence
	skew             time.Duration
	down, again      time.Time
	question, answer string
	late             []lateAnswer
}

type lateAnswer struct {
	at   time.Time
	text string
}

// skewed returns the time of a clock that is wrong.
func (w *world) skewed(by time.Duration) time.Time { return w.now.Add(by) }

func (w *world) skew() time.Duration { return w.within(10*time.Minute) - 5*time.Minute }

const simulatedFence = 2 * time.Minute

// listen models the worker's side of the fence.
func (w *world) listen(x *worker) {
	l := &x.listener
	l.late = slices.DeleteFunc(l.late, func(a lateAnswer) bool {
		if w.now.Before(a.at) {
			return false
		}
		l.answer = a.text
		return true
	})
	if w.chance(5000) {
		w.seen["worker restarts"]++
		w.note("the process of %s ends", x.name)
		l.silence, l.down = nil, w.now.Add(w.within(20*time.Second))
	}
	if w.now.Before(l.down) || w.now.Before(l.again) {
		return
	}
	l.again = w.now.Add(w.within(4 * time.Second))
	if l.silence == nil {
		l.process++
		l.skew = w.skew()
		l.silence = NewSilence(fmt.Sprint(l.process), l.question, l.answer, w.skewed(l.skew))
	}
	now := w.skewed(l.skew)
	before := l.silence.lasts(now)
	l.silence.Hear(l.answer)
	if before > simulatedFence*2/3 && l.silence.lasts(now) < before && x.copy != nil && !x.copy.inactive {
		w.seen["forgiven"]++
	}
	if q := l.silence.Question(now); q != "" {
		l.question = q
		l.silence.Written(now)
	}
	if c := x.copy; c != nil && !c.inactive && !c.Finished && c.Fence > 0 && l.silence.Over(c.Fence, now) {
		w.seen["stopped by its fence"]++
		w.note("%s stops the copy by its fence", x.name)
		c.inactive, c.stops = true, w.now.Add(w.within(time.Minute))
		c.Reserved, c.Admitted, c.Refused = false, false, Rejected
		w.updateCaches(x)
	}
}

// renew models the manager's side of the fence. It reads the questions live, and its answers may arrive late. Each process starts on a
// machine with another clock.
func (w *world) renew() {
	switch {
	case w.now.Before(w.muster.begins):
		return
	case !w.muster.begins.IsZero():
		w.muster.begins, w.muster.skew = time.Time{}, w.skew()
		for _, x := range w.workers {
			x.renewal = NewRenewal(w.skewed(w.muster.skew))
		}
	}
	for _, x := range w.workers {
		if w.now.Before(x.asked) || w.now.Before(x.cutUntil) || w.now.Before(x.swappedUntil) {
			continue
		}
		x.asked = w.now.Add(3 * time.Second)
		if l := &x.listener; x.renewal.Answer(l.question, w.skewed(w.muster.skew)) {
			at := w.now.Add(w.within(300 * time.Millisecond))
			if w.chance(10) {
				w.seen["late answer"]++
				at = w.now.Add(w.within(10 * time.Minute))
			}
			l.late = append(l.late, lateAnswer{at, l.question})
		}
	}
}

type arrival struct {
	at         time.Time
	fence      time.Duration
	generation int
	// answered: the dispatcher waits for it.
	answered bool
}

type grant struct {
	at  time.Time
	uid types.UID
}

// cachedCopy is a copy that arrives in the dispatcher's cache at a time.
type cachedCopy struct {
	at         time.Time
	copy       *Copy
	generation int
}

// remote is a copy and its machines.
type remote struct {
	Copy
	// since is when it came to its state. goesAt is when its deletion ends.
	since, goesAt time.Time
	spends        bool
	// hasJob: the job was created there.
	hasJob bool
	// generation of its Workload.
	generation int
	// inactive: the fence has stopped it, and its pods have stopped by then.
	inactive bool
	stops    time.Time
}

// declareDead removes a worker for good, with all that it ran, and deletes its MultiKueueCluster.
func (w *world) declareDead(x *worker) {
	w.seen["declared dead"]++
	w.note("%s is gone, and declared dead", x.name)
	w.ended = nil
	w.workers = slices.DeleteFunc(w.workers, func(o *worker) bool { return o == x })
	w.connectionChanged()
}

// connect models how the dispatcher polls a worker.
func (w *world) connect(x *worker) {
	if !x.queueless.IsZero() && !w.now.Before(x.queueless) {
		x.queueless = time.Time{}
		w.connectionChanged()
	}
	if w.now.Before(x.pollAt) {
		return
	}
	x.pollAt = w.now.Add(3 * time.Second)
	up := !w.now.Before(x.cutUntil) && !w.now.Before(x.swappedUntil)
	idle := up && w.now.Before(x.hangsUntil) && w.now.Sub(x.hangsSince) >= time.Minute
	if x.connected != up || x.idle != idle {
		x.connected, x.idle = up, idle
		w.connectionChanged()
	}
	if up {
		x.lostSince = time.Time{}
	} else if x.lostSince.IsZero() {
		x.lostSince = w.now
	}
	switch {
	case !x.deleted:
	case up && x.copy == nil && len(x.arrives) == 0:
		w.seen["cleared after that"]++
		w.declareDead(x)
	case !up && w.now.Sub(x.lostSince) >= time.Minute:
		w.declareDead(x)
	}
}

// work models what a worker does with its copy.
func (w *world) work(x *worker) {
	x.arrives = slices.DeleteFunc(x.arrives, func(a arrival) bool {
		if w.now.Before(a.at) {
			return false
		}
		if x.copy == nil && !w.now.Before(x.foreignUntil) {
			w.next++
			x.copy = &remote{since: w.now, generation: a.generation,
				Copy: Copy{UID: types.UID(fmt.Sprint(w.next)), Gated: w.managed, Fence: a.fence}}
			if a.answered {
				x.made, x.madeAt = new(x.copy.Copy), w.now
			}
			w.note("a copy is made in %s", x.name)
			w.updateCaches(x)
		}
		return true
	})
	c := x.copy
	x.grants = slices.DeleteFunc(x.grants, func(a grant) bool {
		if w.now.Before(a.at) {
			return false
		}
		if c != nil && c.UID == a.uid && c.Gated {
			c.Gated, c.Unjudged, c.since = false, true, w.now
			w.note("the copy in %s is granted", x.name)
			w.updateCaches(x)
		}
		return true
	})
	if c == nil || c.Gated && !c.Leaving {
		return
	}
	age := w.now.Sub(c.since)
	before := *c
	switch {
	case c.Leaving && !w.now.Before(c.goesAt):
		w.note("the copy in %s is gone", x.name)
		x.copy = nil
		w.updateCaches(x)
		return
	case c.Leaving || c.Finished || w.now.Before(x.hangsUntil):
		return
	case c.inactive:
		c.spends = c.spends && w.now.Before(c.stops)
		return
	case c.Refused == Evicted || c.Refused == NoCapacity:
		if c.spends && age > time.Second {
			c.spends = false // it has been rolled back
		}
		if c.Refused == NoCapacity && !c.Reserved && age > time.Minute {
			c.Refused, c.since = "", w.now // its worker tries again
		}
		return
	case !c.Reserved && w.now.Before(x.fullUntil):
		c.Refused = NoQuota
	case !c.Reserved && age > 200*time.Millisecond:
		c.Reserved, c.spends, c.since, c.Refused = true, true, w.now, ""
	case c.Reserved && !c.Admitted && w.now.Before(x.dryUntil) && age > 2*time.Second:
		w.seen["refused"]++
		w.stop(x, NoCapacity)
		return
	case c.Reserved && !c.Admitted && age > 5*time.Second:
		c.Admitted, c.Held, c.since = true, true, w.now
	case c.Held && (c.hasJob || !w.managed) && age > 5*time.Second && x.name == w.manager.cluster:
		c.Held = false
	case c.Admitted && !c.Held && age > 30*time.Second:
		if (w.calm || w.random.IntN(w.runs) == 0) && x.name == w.manager.cluster {
			if c.Finished, c.spends = true, false; c.Changed == "" && w.manager.quota && !w.manager.deleted {
				w.ended = c
			}
		}
	}
	c.Unjudged = c.Unjudged && !c.Reserved && c.Refused == ""
	if *c != before {
		w.note("%s: reserved %t, admitted %t, finished %t, refused %q", x.name, c.Reserved, c.Admitted, c.Finished, c.Refused)
		w.updateCaches(x)
	}
}

func (w *world) stop(x *worker, why Reason) {
	x.copy.Reserved, x.copy.Admitted, x.copy.Held, x.copy.Refused, x.copy.since = false, false, false, why, w.now
	w.note("%s: refused %q", x.name, why)
	w.updateCaches(x)
}

func (w *world) delete(x *worker) {
	x.copy.Leaving, x.copy.goesAt = true, w.now.Add(w.within(3*time.Second))
	w.updateCaches(x)
}

// updateCaches updates the caches some time after the copy has changed.
func (w *world) updateCaches(x *worker) {
	var c *Copy
	generation := 0
	if x.copy != nil {
		c, generation = new(x.copy.Copy), x.copy.generation
	}
	at := w.now
	if at.Before(x.stalledUntil) {
		at = x.stalledUntil // it is connected to again
	}
	at = at.Add(w.within(300 * time.Millisecond))
	if n := len(x.deliveries); n > 0 && at.Before(x.deliveries[n-1].at) {
		at = x.deliveries[n-1].at
	}
	x.deliveries = append(x.deliveries, cachedCopy{at, c, generation})
	w.wake(at)
}
