package dispatch

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	worlds = flag.Int("worlds", 60, "how many random worlds of several clusters are simulated")
	replay = flag.Int64("world", -1, "simulate the random world of this seed alone, and print what happens in it with -v")
)

// TestOneClusterSpends: workers that provision, refuse, evict and finish, a manager, which is a stock Kueue or Muster itself, and a
// dispatcher that crashes between any two of its writes, behind caches that lag and networks that break one way and come back. No two
// workers ever have machines for the job, and it runs in the end if any of them is whole. The dispatcher looks at the job only where an
// event or a time of its own has it do so, and never sleeps while the job could go on.
func TestOneClusterSpends(t *testing.T) {
	t.Run("kueue", func(t *testing.T) {
		simulate(t, false, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "stale create", "stalled", "manager evicts",
			"foreign", "without queue", "declared dead")
	})
	t.Run("muster", func(t *testing.T) {
		simulate(t, true, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "late create", "late award",
			"stalled", "manager evicts", "foreign", "without queue", "refuses copies", "declared dead")
	})
}

// TestHedgedClustersSpend: where a job asks for two clusters at once, they may both have machines for it, and never three.
func TestHedgedClustersSpend(t *testing.T) {
	for name, managed := range map[string]bool{"kueue": false, "muster": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, managed, "hedged", "the second was sooner", "crash", "cut", "refused", "evicted", "stalled", "manager evicts")
		})
	}
}

// TestOneClusterSpendsBehindFences: workers are cut off for longer than their fence, their processes and the manager's end and begin
// with other clocks, and what the manager has sent arrives late. The job is never in two workers, and moves from one that is cut off.
func TestOneClusterSpendsBehindFences(t *testing.T) {
	simulate(t, true, "cut for long", "worker restarts", "crash", "late answer", "late create", "late award", "stopped by its fence",
		"moved behind a fence", "forgiven")
}

func simulate(t *testing.T, managed bool, mishaps ...string) {
	fenced, hedged := slices.Contains(mishaps, "cut for long"), slices.Contains(mishaps, "hedged")
	var moved, ran int
	seen := map[string]int{}
	first, n := uint64(0), uint64(*worlds)
	if fenced {
		n /= 3 // they last longer
	}
	if *replay >= 0 {
		first, n = uint64(*replay), 1
	}
	for seed := first; seed < first+n; seed++ {
		w := newWorld(seed)
		if w.managed, w.fenced = managed, fenced; hedged {
			w.hedge = 2
		}
		w.run()
		if w.wrong != "" {
			t.Errorf("seed %d: %s\n%s\nReplay it: go test ./queueing/dispatch -run %s -v -world %d", seed, w.wrong,
				w.trace(*replay >= 0), t.Name(), seed)
			if t.Failed() && *replay < 0 {
				return
			}
		}
		if *replay >= 0 {
			t.Log(w.trace(true))
		}
		moved += w.moves
		for what, n := range w.seen {
			seen[what] += n
		}
		if w.finished {
			ran++
		}
	}
	t.Logf("%d worlds: the job ran in %d, was moved %d times; %v", n, ran, moved, seen)
	for _, what := range mishaps {
		if seen[what] == 0 && n >= 500 {
			t.Errorf("no world shows: %s", what)
		}
	}
}

const tick = 50 * time.Millisecond

// world is a manager with one job, and its workers.
type world struct {
	random *rand.Rand
	now    time.Time
	// managed: Muster makes the copies, not Kueue.
	managed bool
	// fenced: the workers stop the copies of a manager that is silent.
	fenced bool
	// hedge is how many clusters the job asks for at once; zero for one.
	hedge int
	// manager is the Workload as the manager's API server has it; history has its versions with their times, for caches that lag.
	manager  version
	history  []version
	workers  []*worker
	kueue    actor
	muster   actor
	finished bool
	moves    int
	calm     bool

	seen  map[string]int
	lines []string
	wrong string
	next  int
}

// version is what the manager's Workload says.
type version struct {
	number    int
	at        time.Time
	quota     bool
	ready     bool
	nominated []string
	cluster   string
	record    string
	// shown is when the dispatcher's cache has it.
	shown time.Time
}

// worker is a cluster with at most one copy.
type worker struct {
	name string
	// cut from the manager until then; lossy: requests arrive, their answers do not.
	cutUntil time.Time
	lossy    bool
	// quiet: nothing else happens to its copy meanwhile.
	quiet bool
	// connected: it answered when the dispatcher asked last, which it does again then.
	connected bool
	asks      time.Time
	// In its API server there is no LocalQueue, a Workload of the job's name that is no copy, or a webhook that refuses copies, until then.
	queueless, foreignUntil, refusesUntil time.Time
	// foreign and refused are when the dispatcher found out by a call.
	foreign, refused time.Time
	// made is what the dispatcher has made and not seen yet, since then.
	made   *Copy
	madeAt time.Time
	// has no machines, or no quota, until then.
	dryUntil, fullUntil time.Time
	copy                *remote
	// arrives is when copies are made whose creation is under way.
	arrives []arrival
	// awards are when the gate is taken off the copy of that UID.
	awards []award
	// listener is the worker's side of its fence, renewal the manager's.
	listener listener
	renewal  Renewal
	asked    time.Time
	// stalledUntil is until when nothing is heard of its copies.
	stalledUntil time.Time
	// told is the copy as caches see it, at its time.
	told []toldCopy
}

// listener is the process of a worker that stops copies, and the manager's Lease.
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

// skewed is a time as a clock that is wrong has it.
func (w *world) skewed(by time.Duration) time.Time { return w.now.Add(by) }

func (w *world) skew() time.Duration { return w.within(10*time.Minute) - 5*time.Minute }

const simulatedFence = 2 * time.Minute

// listen is the worker's side of the fence.
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
	if q := l.silence.Ask(now); q != "" {
		l.question = q
		l.silence.Asked(now)
	}
	if c := x.copy; c != nil && !c.inactive && !c.Finished && c.Fence > 0 && l.silence.Over(c.Fence, now) {
		w.seen["stopped by its fence"]++
		w.note("%s stops the copy by its fence", x.name)
		c.inactive, c.stops = true, w.now.Add(w.within(time.Minute))
		c.Reserved, c.Admitted, c.Refused = false, false, Rejected
		w.tell(x)
	}
}

// renew is the manager's side of the fence: it reads the questions live, and what it answers may arrive late. A process that begins does
// so on a machine with another clock.
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
		if w.now.Before(x.asked) || w.now.Before(x.cutUntil) {
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

func (w *world) crash() {
	w.seen["crash"]++
	w.note("muster crashes")
	w.muster.again = w.now.Add(w.within(20 * time.Second))
	w.muster.begins = w.muster.again
	// The next process lists all Workloads, here and there.
	w.muster.wakes, w.muster.failed, w.muster.wrote = []time.Time{w.muster.again}, 0, 0
	for i := range w.history {
		w.history[i].shown = sooner(w.history[i].shown, w.muster.again)
	}
	for _, x := range w.workers {
		x.made, x.foreign, x.refused = nil, time.Time{}, time.Time{}
		x.stalledUntil = sooner(x.stalledUntil, w.muster.again)
		for i := range x.told {
			x.told[i].at = sooner(x.told[i].at, w.muster.again)
		}
	}
}

type arrival struct {
	at    time.Time
	fence time.Duration
	// answered: the dispatcher waits for it.
	answered bool
}

type award struct {
	at  time.Time
	uid types.UID
}

// toldCopy is what the dispatcher's cache has of a copy from then on.
type toldCopy struct {
	at   time.Time
	copy *Copy
}

// remote is a copy with the machines behind it.
type remote struct {
	Copy
	// since is when it came to its state; goesAt is when it is gone once it is leaving.
	since, goesAt time.Time
	spends        bool
	// inactive: the fence has stopped it, and its pods have stopped by then.
	inactive bool
	stops    time.Time
}

// actor is a process that acts on what it saw some time ago: Kueue now and then, the dispatcher where something wakes it.
type actor struct {
	again time.Time
	// wakes are when events that have come and times that it has set have it look at the job.
	wakes []time.Time
	// failed counts the calls in a row that have: the longer, the more of them there are, it waits for the next.
	failed int
	// wrote is the version that it has written last.
	wrote int
	// could is since when it sleeps though the job could go on, as was judged last.
	could, judged time.Time
	// skew is by how much its clock is wrong, and changes with each process.
	skew time.Duration
	// begins is when its next process does; zero while one runs.
	begins time.Time
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 21)), now: noon, seen: map[string]int{}}
	w.muster.begins, w.muster.wakes = noon, []time.Time{noon}
	w.manager = version{quota: true, at: noon}
	w.history = []version{w.manager}
	for i := range 2 + w.random.IntN(3) {
		w.workers = append(w.workers, &worker{name: string(rune('a' + i)), connected: true})
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%9.2fs  ", w.now.Sub(noon).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) trace(whole bool) string {
	lines := w.lines
	if !whole {
		lines = lines[max(0, len(lines)-40):]
	}
	return strings.Join(lines, "\n")
}

// chance happens once in so many ticks on average; no mishaps any more once the world is calm.
func (w *world) chance(ticks int) bool { return !w.calm && w.random.IntN(ticks) == 0 }

func (w *world) within(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// run lets everything happen for some minutes, and then gives the job time to end.
func (w *world) run() {
	lasting := 20 * time.Minute
	if w.fenced {
		lasting = 40 * time.Minute
	}
	for end := noon.Add(4*time.Hour + lasting); w.now.Before(end) && w.wrong == "" && !w.finished; w.now = w.now.Add(tick) {
		if !w.calm && w.now.Sub(noon) > lasting {
			w.calm = true
			w.note("the world is calm")
			for _, x := range w.workers {
				x.cutUntil, x.dryUntil, x.fullUntil = w.now, w.now, w.now
				x.foreignUntil, x.refusesUntil, x.queueless = w.now, w.now, w.now
			}
		}
		w.mishap()
		for _, x := range w.workers {
			w.work(x)
			w.connect(x)
			if w.fenced {
				w.listen(x)
			}
		}
		if w.fenced {
			w.renew()
		}
		if w.managed {
			w.wakeful(w.manage, Manage)
		} else {
			w.act(&w.kueue, 300*time.Millisecond, w.reconcile)
			w.wakeful(w.dispatch, Next)
		}
		w.judge()
	}
	if w.wrong == "" && !w.finished {
		w.wrong = "the job did not run"
	}
}

// judge: machines for the job are in one worker at most, or in as many as it asks for.
func (w *world) judge() {
	var spend []string
	for _, x := range w.workers {
		if x.copy != nil && x.copy.spends {
			spend = append(spend, x.name)
		}
	}
	if len(spend) > 1 {
		w.seen["hedged"]++
	}
	if len(spend) > max(1, w.hedge) {
		w.wrong = fmt.Sprintf("machines are there for the job in %q", spend)
	}
}

// mishap is what comes unplanned.
func (w *world) mishap() {
	for _, x := range w.workers {
		switch {
		case (!x.quiet || !w.now.Before(x.cutUntil)) && w.chance(4000):
			x.cutUntil, x.lossy, x.quiet = w.now.Add(w.within(3*time.Minute)), w.random.IntN(2) == 0, false
			w.seen["cut"]++
			w.note("%s is cut off until %.2fs, lossy %t", x.name, x.cutUntil.Sub(noon).Seconds(), x.lossy)
		case w.fenced && w.chance(15000):
			x.cutUntil, x.lossy = w.now.Add(5*time.Minute+w.within(15*time.Minute)), w.random.IntN(2) == 0
			x.quiet = w.random.IntN(4) > 0
			w.seen["cut for long"]++
			w.note("%s is cut off until %.2fs, lossy %t", x.name, x.cutUntil.Sub(noon).Seconds(), x.lossy)
		case w.chance(4000):
			x.stalledUntil = later(x.stalledUntil, w.now.Add(w.within(2*time.Minute)))
			w.seen["stalled"]++
			w.note("the watch of %s stalls", x.name)
		case w.chance(2000):
			x.dryUntil = w.now.Add(w.within(5 * time.Minute))
			w.note("%s has no machines", x.name)
		case w.chance(4000):
			x.fullUntil = w.now.Add(w.within(2 * time.Minute))
			w.note("%s has no quota", x.name)
		case x.copy == nil && w.chance(6000):
			x.queueless = w.now.Add(w.within(5 * time.Minute))
			w.seen["without queue"]++
			w.note("%s has no LocalQueue", x.name)
		case x.copy == nil && w.chance(6000):
			x.foreignUntil = w.now.Add(w.within(5 * time.Minute))
			w.note("%s has a Workload of that name until %.2fs", x.name, x.foreignUntil.Sub(noon).Seconds())
		case w.managed && w.chance(3000):
			x.refusesUntil = w.now.Add(w.within(5 * time.Minute))
			w.note("%s refuses copies until %.2fs", x.name, x.refusesUntil.Sub(noon).Seconds())
		case len(w.workers) > 2 && w.chance(40000):
			w.bury(x)
			return
		case x.quiet && w.now.Before(x.cutUntil):
		case w.chance(3000) && x.copy != nil && !x.copy.Leaving:
			w.seen["by hand"]++
			w.note("the copy in %s is deleted by hand", x.name)
			w.delete(x)
		case w.chance(6000) && x.copy != nil && x.copy.Admitted:
			w.seen["evicted"]++
			w.note("%s evicts the copy", x.name)
			w.stop(x, Evicted)
		}
	}
	if w.chance(8000) && w.manager.quota {
		w.seen["manager evicts"]++
		w.note("the manager evicts the job")
		w.write(func(v *version) { v.quota, v.ready, v.nominated, v.cluster = false, false, nil, "" })
	}
	if !w.manager.quota && w.now.Sub(w.manager.at) > 3*time.Second {
		if record, _ := DecodeRecord(w.manager.record); !w.managed || len(record.In) == 0 {
			w.write(func(v *version) { v.quota = true })
		}
	}
}

// bury has a worker be gone for good, with all that it ran, and its MultiKueueCluster deleted.
func (w *world) bury(x *worker) {
	w.seen["declared dead"]++
	w.note("%s is gone, and declared dead", x.name)
	w.workers = slices.DeleteFunc(w.workers, func(o *worker) bool { return o == x })
	w.connectionChanged()
}

// connect is how the dispatcher asks a worker now and then whether it is there.
func (w *world) connect(x *worker) {
	if !x.queueless.IsZero() && !w.now.Before(x.queueless) {
		x.queueless = time.Time{}
		w.connectionChanged()
	}
	if w.now.Before(x.asks) {
		return
	}
	x.asks = w.now.Add(3 * time.Second)
	if up := !w.now.Before(x.cutUntil); x.connected != up {
		x.connected = up
		w.connectionChanged()
	}
}

// connectionChanged wakes the dispatcher, if the job is one that waits for a cluster.
func (w *world) connectionChanged() {
	if v := w.cached(); v.quota && v.cluster == "" || w.managed && (v.quota || v.record != "") {
		w.wake(w.now)
	}
}

// work is what a worker does with its copy.
func (w *world) work(x *worker) {
	x.arrives = slices.DeleteFunc(x.arrives, func(a arrival) bool {
		if w.now.Before(a.at) {
			return false
		}
		if x.copy == nil && !w.now.Before(x.foreignUntil) {
			w.next++
			x.copy = &remote{Copy: Copy{UID: types.UID(fmt.Sprint(w.next)), Gated: w.managed, Fence: a.fence}, since: w.now}
			if a.answered {
				x.made, x.madeAt = new(x.copy.Copy), w.now
			}
			w.note("a copy is made in %s", x.name)
			w.tell(x)
		}
		return true
	})
	c := x.copy
	x.awards = slices.DeleteFunc(x.awards, func(a award) bool {
		if w.now.Before(a.at) {
			return false
		}
		if c != nil && c.UID == a.uid && c.Gated {
			c.Gated, c.since = false, w.now
			w.note("the copy in %s is awarded", x.name)
			w.tell(x)
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
		w.tell(x)
		return
	case c.Leaving || c.Finished:
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
		c.Admitted, c.since = true, w.now
	case c.Admitted && age > 30*time.Second:
		if (w.calm || w.random.IntN(10000) == 0) && x.name == w.manager.cluster {
			c.Finished, c.spends = true, false
		}
	}
	if *c != before {
		w.note("%s: reserved %t, admitted %t, finished %t, refused %q", x.name, c.Reserved, c.Admitted, c.Finished, c.Refused)
		w.tell(x)
	}
}

func (w *world) stop(x *worker, why Reason) {
	x.copy.Reserved, x.copy.Admitted, x.copy.Refused, x.copy.since = false, false, why, w.now
	w.note("%s: refused %q", x.name, why)
	w.tell(x)
}

func (w *world) delete(x *worker) {
	x.copy.Leaving, x.copy.goesAt = true, w.now.Add(w.within(3*time.Second))
	w.tell(x)
}

// tell has caches learn of the copy some time later.
func (w *world) tell(x *worker) {
	var c *Copy
	if x.copy != nil {
		c = new(x.copy.Copy)
	}
	at := w.now
	if at.Before(x.stalledUntil) {
		at = x.stalledUntil // it is connected to again
	}
	at = at.Add(w.within(300 * time.Millisecond))
	if n := len(x.told); n > 0 && at.Before(x.told[n-1].at) {
		at = x.told[n-1].at
	}
	x.told = append(x.told, toldCopy{at, c})
	w.wake(at)
}

// write makes a version of the manager's Workload.
func (w *world) write(change func(*version)) {
	v := w.manager
	v.nominated = slices.Clone(v.nominated)
	change(&v)
	v.number, v.at = v.number+1, w.now
	if v.shown = w.now.Add(w.within(300 * time.Millisecond)); v.shown.Before(w.manager.shown) {
		v.shown = w.manager.shown
	}
	w.wake(v.shown)
	w.manager = v
	w.history = append(w.history, v)
	w.note("manager: quota %t, nominated %q, cluster %q, record %s", v.quota, v.nominated, v.cluster, v.record)
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
	record, err := DecodeRecord(v.record)
	return &Job{
		Open: v.quota && !v.ready && v.cluster == "", Over: w.managed && !v.quota, Runs: v.cluster, Nominated: v.nominated, Hedge: w.hedge,
		Record: record,
	}, err
}

// reconcile is Kueue's reconciler of a Workload with a MultiKueue check, as its source has it: it sees its own API server through a
// cache, and the workers by live reads.
func (w *world) reconcile(v version) {
	reached := func(x *worker) bool { return !w.now.Before(x.cutUntil) }
	if !v.quota {
		for _, x := range w.workers {
			if reached(x) && x.copy != nil && !x.copy.Leaving {
				w.delete(x)
			}
		}
		return
	}
	var runs *worker
	for _, x := range w.workers {
		switch {
		case !reached(x) || x.copy == nil:
		case x.copy.Finished:
			w.finished = true
			w.note("the job has finished in %s", x.name)
			return
		case x.copy.Refused == Evicted && v.ready && !x.copy.Leaving:
			w.retry(v, "the copy was evicted in "+x.name)
			return
		case x.copy.Admitted && !x.copy.Leaving:
			runs = x
		}
	}
	if runs == nil && v.ready {
		if x := w.worker(v.cluster); x == nil || reached(x) {
			w.retry(v, "the copy has gone from "+v.cluster)
		}
		return
	}
	if runs == nil {
		w.synchronize(v)
		return
	}
	for _, x := range w.workers {
		if reached(x) && x.copy != nil && x != runs && !x.copy.Leaving {
			w.delete(x)
		}
	}
	if !v.ready && v.number == w.manager.number && slices.Contains(v.nominated, runs.name) {
		w.commit(runs.name)
	}
}

func (w *world) commit(cluster string) {
	if slices.Index(w.manager.nominated, cluster) > 0 {
		w.seen["the second was sooner"]++
	}
	w.patch(func(v *version) { v.ready, v.cluster, v.nominated = true, cluster, nil })
}

func (w *world) retry(v version, why string) {
	if v.number == w.manager.number {
		w.note("the manager tries again: %s", why)
		w.write(func(v *version) { v.quota, v.ready, v.nominated, v.cluster = false, false, nil, "" })
	}
}

// synchronize makes the copies of the clusters that are nominated, and deletes the others.
func (w *world) synchronize(v version) {
	for _, x := range w.workers {
		cut := w.now.Before(x.cutUntil)
		if cut && !x.lossy {
			continue
		}
		switch named := slices.Contains(v.nominated, x.name); {
		case named && x.copy == nil && w.now.Before(x.foreignUntil):
			w.seen["foreign"]++
		case named && x.copy == nil:
			at := w.now.Add(w.within(500 * time.Millisecond))
			x.arrives = append(x.arrives, arrival{at: at})
			w.kueue.again = at // its worker waits for the answer
			if v.number != w.manager.number {
				w.seen["stale create"]++
			}
			if cut {
				w.seen["answer lost"]++
			}
		case !named && x.copy != nil && !x.copy.Leaving && !cut:
			w.delete(x)
		}
	}
}

// dispatch is the dispatcher: Next decides, on what caches show; reads of the workers before a nomination are live; each write may
// be the last before a crash.
func (w *world) dispatch(v version) (s Step, is outcome) {
	j, err := w.job(v)
	if err != nil {
		w.wrong = err.Error()
		return s, done
	}
	if s = Next(j, w.clusters(&j.Record, weighed), w.now); s.Do != Rest {
		return s, w.name(v, s)
	}
	w.rests(v, s)
	return s, done
}

// patch is a write of the dispatcher.
func (w *world) patch(change func(*version)) {
	w.write(change)
	w.muster.wrote = w.manager.number
}

// rests has it on record why the job waits.
func (w *world) rests(v version, s Step) {
	if record, _ := DecodeRecord(v.record); record.Waits != s.Record.Waits && v.number == w.manager.number {
		w.patch(func(v *version) { v.record = s.Record.Encode() })
	}
}

// How clusters are looked at.
type look int

const (
	// weighed: as caches show them, with their prospects.
	weighed look = iota
	// asCached: as caches show them; asIs: as they are.
	asCached
	asIs
)

// clusters are those of the dispatcher, by how they are looked at.
func (w *world) clusters(record *Record, as look) (out []Cluster) {
	for _, x := range w.workers {
		c := Cluster{Name: x.name, Connected: x.connected}
		now := w.skewed(w.muster.skew)
		if f := record.Fence; !c.Connected {
			if f != nil && f.Cluster == c.Name && w.fenced {
				c.StopsAt = w.now.Add(f.Stops(time.Minute) - x.renewal.Silent(now))
				c.Stopped = !w.now.Before(c.StopsAt)
			}
			out = append(out, c)
			continue
		}
		for i := len(x.told) - 1; i >= 0; i-- {
			if at := x.told[i].at; !at.After(w.now) {
				if c.Copy = x.told[i].copy; !at.Before(x.madeAt) {
					x.made = nil
				}
				break
			}
		}
		switch {
		case as == asIs && x.copy != nil:
			c.Copy = &x.copy.Copy
		case as == asIs:
			c.Copy = nil
		case c.Copy != nil:
		case x.made != nil && w.now.Sub(x.madeAt) < 5*time.Second:
			c.Copy = x.made
		case w.now.Sub(x.foreign) < time.Minute:
			c.Copy, c.Again = &Copy{Foreign: true}, x.foreign.Add(time.Minute)
		case w.now.Sub(x.refused) < time.Minute:
			c.Lacks, c.Again = "what it takes to accept the job", x.refused.Add(time.Minute)
		case w.now.Before(x.queueless):
			c.Lacks = "LocalQueue"
		}
		if as == weighed {
			c.Prospect = w.prospect(x)
		}
		if w.fenced && x.renewal.Listened(now) {
			c.Fence = simulatedFence
		}
		out = append(out, c)
	}
	return out
}

// prospect is what the manager's picture of the worker says: nothing, what is true, or anything.
func (w *world) prospect(x *worker) *Prospect {
	switch w.random.IntN(4) {
	case 0:
		return nil
	case 1:
		return &Prospect{Outlook: Outlook(w.random.IntN(int(Waits) + 1)), Chance: w.random.IntN(1001), Start: w.now.Add(w.within(time.Hour))}
	}
	switch {
	case w.now.Before(x.fullUntil):
		return &Prospect{Outlook: Waits, Start: x.fullUntil}
	case w.now.Before(x.dryUntil):
		return &Prospect{Outlook: Launches, Chance: 500}
	default:
		return &Prospect{Outlook: Fits}
	}
}

// worker of that name; nil if it was declared dead.
func (w *world) worker(name string) *worker {
	if i := slices.IndexFunc(w.workers, func(x *worker) bool { return x.name == name }); i >= 0 {
		return w.workers[i]
	}
	return nil
}

// name carries out the naming and withdrawing of clusters.
func (w *world) name(v version, s Step) outcome {
	for _, name := range s.Gone {
		switch x := w.worker(name); {
		case w.now.Before(x.cutUntil):
			return failed
		case x.copy != nil:
			return notAsSeen
		case w.now.Before(x.foreignUntil):
			if x.foreign = w.now; name == s.Cluster {
				w.seen["foreign"]++
				return notAsSeen
			}
		}
	}
	if v.number != w.manager.number {
		return notAsSeen // a conflict
	}
	w.note("muster: %s", s.Message)
	w.patch(func(v *version) { v.record = s.Record.Encode() })
	if w.chance(20) {
		w.crash()
		return done
	}
	w.patch(func(v *version) { v.nominated = s.Nominated })
	if s.Do == Withdraw {
		w.moves++
		if n := len(s.Record.Refusals); n > 0 && s.Record.Refusals[n-1].Reason == Lost {
			w.seen["moved behind a fence"]++
		}
		return done
	}
	return goesOn
}

// manage is Muster as the manager: Manage decides, on what caches show. What is sent to a worker may arrive much later, also when the
// process that has sent it is dead.
func (w *world) manage(v version) (s Step, is outcome) {
	if v.number < w.muster.wrote {
		return s, done // what it has written comes as an event
	}
	j, err := w.job(v)
	if err != nil {
		w.wrong = err.Error()
		return s, done
	}
	clusters := w.clusters(&j.Record, weighed)
	s = Manage(j, clusters, w.now)
	x := w.worker(s.Cluster)
	reached := func(x *worker) bool { return !w.now.Before(x.cutUntil) }
	switch s.Do {
	case Rest:
		w.rests(v, s)
	case Nominate, Withdraw:
		return s, w.name(v, s)
	case Offer:
		return s, w.offer(x, s)
	case Award:
		if !reached(x) && !x.lossy {
			return s, failed
		}
		takes := w.late("late award")
		x.awards = append(x.awards, award{w.now.Add(takes), find(clusters, s.Cluster).Copy.UID})
		if !reached(x) {
			w.seen["answer lost"]++
		}
		if !reached(x) || takes > callTimeout {
			return s, failed
		}
	case Commit:
		if v.number != w.manager.number {
			return s, notAsSeen
		}
		w.commit(s.Cluster)
		return s, goesOn
	case Finish:
		w.finished = true
		w.note("the job has finished in %s", s.Cluster)
	case Retry:
		if find(clusters, s.Cluster).Stopped {
			w.seen["moved behind a fence"]++
		}
		for _, name := range s.Gone {
			switch x := w.worker(name); {
			case x == nil:
			case !reached(x):
				return s, failed
			case x.copy != nil:
				return s, notAsSeen
			}
		}
		if v.number != w.manager.number {
			return s, notAsSeen
		}
		w.retry(v, s.Message)
	case Clear:
		return s, w.clear(v, s, clusters, reached)
	}
	return s, done
}

// callTimeout is after how long a call to a worker is given up.
const callTimeout = 5 * time.Second

// offer creates the copy.
func (w *world) offer(x *worker, s Step) outcome {
	switch {
	case w.now.Before(x.cutUntil):
		return failed
	case x.copy != nil:
		return notAsSeen // as a live read finds
	case w.now.Before(x.foreignUntil):
		w.seen["foreign"]++
		x.foreign = w.now
		return notAsSeen
	case w.now.Before(x.refusesUntil):
		w.seen["refuses copies"]++
		x.refused = w.now
		return notAsSeen
	}
	process := w.muster.begins
	takes := w.late("late create")
	lost := w.chance(20)
	if lost {
		w.seen["answer lost"]++ // and it is offered again
	}
	answered := !lost && takes <= callTimeout && w.muster.begins.Equal(process)
	x.arrives = append(x.arrives, arrival{w.now.Add(takes), s.Record.fence(x.name), answered})
	if !answered {
		return failed
	}
	return goesOn
}

// late is how long something takes to arrive. Some take long, and some of these outlive the process that has sent them.
func (w *world) late(what string) time.Duration {
	takes := w.within(500 * time.Millisecond)
	if w.chance(10) {
		w.seen[what]++
		takes = w.within(90 * time.Second)
	}
	w.muster.again = w.now.Add(min(takes, 5*time.Second)) // after which the call is given up
	if w.chance(10) {
		w.crash()
	}
	return takes
}

func (w *world) clear(v version, s Step, clusters []Cluster, reached func(*worker) bool) (is outcome) {
	record := s.Record
	for _, name := range s.Gone {
		switch x := w.worker(name); {
		case !reached(x):
			return failed
		case x.copy != nil:
			record.In, is = append(record.In, name), leaving
			if !x.copy.Leaving {
				w.moves++
				w.delete(x)
			}
		case find(clusters, name).Copy != nil:
			record.In, is = append(record.In, name), leaving // for all that its cache shows
		}
	}
	if before, _ := DecodeRecord(v.record); len(record.In) != len(before.In) {
		if v.number != w.manager.number {
			return notAsSeen
		}
		w.patch(func(v *version) { v.record = record.Encode() })
	}
	return is
}
