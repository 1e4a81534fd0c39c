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
// workers ever have machines for the job, and it runs in the end if any of them is whole.
func TestOneClusterSpends(t *testing.T) {
	t.Run("kueue", func(t *testing.T) {
		simulate(t, false, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "stale create", "stalled", "manager evicts")
	})
	t.Run("muster", func(t *testing.T) {
		simulate(t, true, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "late create", "late award",
			"stalled", "manager evicts")
	})
}

// TestOneClusterSpendsBehindFences: workers are cut off for longer than their fence, their processes and the manager's end and begin
// with other clocks, and what the manager has sent arrives late. The job is never in two workers, and moves from one that is cut off.
func TestOneClusterSpendsBehindFences(t *testing.T) {
	simulate(t, true, "cut for long", "worker restarts", "crash", "late answer", "late create", "late award", "stopped by its fence",
		"moved behind a fence", "forgiven")
}

func simulate(t *testing.T, managed bool, mishaps ...string) {
	fenced := slices.Contains(mishaps, "cut for long")
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
		w.managed, w.fenced = managed, fenced
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
}

// worker is a cluster with at most one copy.
type worker struct {
	name string
	// cut from the manager until then; lossy: requests arrive, their answers do not.
	cutUntil time.Time
	lossy    bool
	// quiet: nothing else happens to its copy meanwhile.
	quiet bool
	// noticed is when a dispatcher that makes the copies knows of the cut.
	noticed time.Time
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
	// stalled is since when nothing is heard of its copies, until then.
	stalled, stalledUntil time.Time
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
}

type arrival struct {
	at    time.Time
	fence time.Duration
}

type award struct {
	at  time.Time
	uid types.UID
}

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

// actor is a process that acts now and then, on what it saw some time ago.
type actor struct {
	again time.Time
	lag   time.Duration
	// skew is by how much its clock is wrong, and changes with each process.
	skew time.Duration
	// begins is when its next process does; zero while one runs.
	begins time.Time
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 21)), now: noon, seen: map[string]int{}}
	w.muster.begins = noon
	w.manager = version{quota: true, at: noon}
	w.history = []version{w.manager}
	for i := range 2 + w.random.IntN(3) {
		w.workers = append(w.workers, &worker{name: string(rune('a' + i))})
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
			}
		}
		w.mishap()
		for _, x := range w.workers {
			w.work(x)
			if w.fenced {
				w.listen(x)
			}
		}
		if w.fenced {
			w.renew()
		}
		if w.managed {
			w.act(&w.muster, 300*time.Millisecond, w.manage)
		} else {
			w.act(&w.kueue, 300*time.Millisecond, w.reconcile)
			w.act(&w.muster, 300*time.Millisecond, w.dispatch)
		}
		w.judge()
	}
	if w.wrong == "" && !w.finished {
		w.wrong = "the job did not run"
	}
}

// judge: machines for the job are in one worker at most.
func (w *world) judge() {
	var spend []string
	for _, x := range w.workers {
		if x.copy != nil && x.copy.spends {
			spend = append(spend, x.name)
		}
	}
	if len(spend) > 1 {
		w.wrong = fmt.Sprintf("machines are there for the job in %q", spend)
	}
}

// mishap is what comes unplanned.
func (w *world) mishap() {
	for _, x := range w.workers {
		switch {
		case (!x.quiet || !w.now.Before(x.cutUntil)) && w.chance(4000):
			x.cutUntil, x.lossy, x.quiet = w.now.Add(w.within(3*time.Minute)), w.random.IntN(2) == 0, false
			if w.managed {
				x.noticed = w.now.Add(w.within(3 * time.Second))
			}
			w.seen["cut"]++
			w.note("%s is cut off until %.2fs, lossy %t", x.name, x.cutUntil.Sub(noon).Seconds(), x.lossy)
		case w.fenced && w.chance(15000):
			x.cutUntil, x.lossy = w.now.Add(5*time.Minute+w.within(15*time.Minute)), w.random.IntN(2) == 0
			x.noticed, x.quiet = w.now.Add(w.within(3*time.Second)), w.random.IntN(4) > 0
			w.seen["cut for long"]++
			w.note("%s is cut off until %.2fs, lossy %t", x.name, x.cutUntil.Sub(noon).Seconds(), x.lossy)
		case w.chance(4000):
			x.stalled, x.stalledUntil = w.now, w.now.Add(w.within(2*time.Minute))
			w.seen["stalled"]++
			w.note("the watch of %s stalls", x.name)
		case w.chance(2000):
			x.dryUntil = w.now.Add(w.within(5 * time.Minute))
			w.note("%s has no machines", x.name)
		case w.chance(4000):
			x.fullUntil = w.now.Add(w.within(2 * time.Minute))
			w.note("%s has no quota", x.name)
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
	record, _ := DecodeRecord(w.manager.record)
	if !w.manager.quota && w.now.Sub(w.manager.at) > 3*time.Second && (!w.managed || len(record.In) == 0) {
		w.write(func(v *version) { v.quota = true })
	}
}

// work is what a worker does with its copy.
func (w *world) work(x *worker) {
	x.arrives = slices.DeleteFunc(x.arrives, func(a arrival) bool {
		if w.now.Before(a.at) {
			return false
		}
		if x.copy == nil {
			w.next++
			x.copy = &remote{Copy: Copy{UID: types.UID(fmt.Sprint(w.next)), Gated: w.managed, Fence: a.fence}, since: w.now}
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
	x.told = append(x.told, toldCopy{w.now, c})
}

// write makes a version of the manager's Workload.
func (w *world) write(change func(*version)) {
	v := w.manager
	v.nominated = slices.Clone(v.nominated)
	change(&v)
	v.number, v.at = v.number+1, w.now
	w.manager = v
	w.history = append(w.history, v)
	w.note("manager: quota %t, nominated %q, cluster %q, record %s", v.quota, v.nominated, v.cluster, v.record)
}

// act lets an actor have its turn, on a picture that is late by its lag.
func (w *world) act(a *actor, lag time.Duration, turn func(seen version)) {
	if w.now.Before(a.again) {
		return
	}
	a.again = w.now.Add(tick + w.within(200*time.Millisecond))
	a.lag = w.within(lag)
	turn(w.seenAt(w.now.Add(-a.lag)))
}

func (w *world) seenAt(at time.Time) version {
	for i := len(w.history) - 1; ; i-- {
		if i == 0 || !w.history[i].at.After(at) {
			return w.history[i]
		}
	}
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
		if i := slices.IndexFunc(w.workers, func(x *worker) bool { return x.name == v.cluster }); reached(w.workers[i]) {
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
		w.write(func(v *version) { v.ready, v.cluster, v.nominated = true, runs.name, nil })
	}
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
func (w *world) dispatch(v version) {
	record, err := DecodeRecord(v.record)
	if err != nil {
		w.wrong = err.Error()
		return
	}
	j := &Job{Open: v.quota && !v.ready && v.cluster == "", Nominated: v.nominated, Record: record}
	clusters := w.clusters(&record)
	if s := Next(j, clusters, w.now); s.Do != Rest {
		w.name(v, s)
	}
}

// clusters are as caches show them.
func (w *world) clusters(record *Record) (out []Cluster) {
	for _, x := range w.workers {
		c := Cluster{Name: x.name, Connected: !w.now.Before(x.cutUntil) || w.now.Before(x.noticed)}
		for i := len(x.told) - 1; i >= 0 && c.Copy == nil; i-- {
			at := x.told[i].at
			stalled := w.now.Before(x.stalledUntil) && at.After(x.stalled)
			if !at.After(w.now.Add(-w.muster.lag)) && !stalled {
				c.Copy = x.told[i].copy
				break
			}
		}
		c.Prospect = w.prospect(x)
		if now := w.skewed(w.muster.skew); c.Connected && x.renewal.Listened(now) {
			c.Fence = simulatedFence
		} else if f := record.Fence; !c.Connected && f != nil && f.Cluster == c.Name {
			c.Stopped = x.renewal.Silent(now) >= f.Stops(time.Minute)
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

func (w *world) worker(name string) *worker {
	return w.workers[slices.IndexFunc(w.workers, func(x *worker) bool { return x.name == name })]
}

// name carries out the naming and withdrawing of clusters.
func (w *world) name(v version, s Step) {
	for _, name := range s.Gone {
		if x := w.worker(name); w.now.Before(x.cutUntil) || x.copy != nil {
			return // the live read fails, or finds one
		}
	}
	if v.number != w.manager.number {
		return // a conflict
	}
	w.note("muster: %s", s.Message)
	w.write(func(v *version) { v.record = s.Record.Encode() })
	if w.chance(20) {
		w.crash()
		return
	}
	w.write(func(v *version) {
		v.nominated = nil
		if s.Do == Nominate {
			v.nominated = []string{s.Cluster}
		}
	})
	if s.Do == Withdraw {
		w.moves++
		if n := len(s.Record.Refusals); n > 0 && s.Record.Refusals[n-1].Reason == Lost {
			w.seen["moved behind a fence"]++
		}
	}
}

// manage is Muster as the manager: Manage decides, on what caches show. What is sent to a worker may arrive much later, also when the
// process that has sent it is dead.
func (w *world) manage(v version) {
	record, err := DecodeRecord(v.record)
	if err != nil {
		w.wrong = err.Error()
		return
	}
	j := &Job{
		Open: v.quota && !v.ready && v.cluster == "", Over: !v.quota, Runs: v.cluster, Nominated: v.nominated, Record: record,
	}
	clusters := w.clusters(&record)
	s := Manage(j, clusters, w.now)
	var x *worker
	if s.Cluster != "" {
		x = w.worker(s.Cluster)
	}
	reached := func(x *worker) bool { return !w.now.Before(x.cutUntil) }
	switch s.Do {
	case Rest:
	case Nominate, Withdraw:
		w.name(v, s)
	case Offer:
		if reached(x) && x.copy == nil { // as a live read has found
			x.arrives = append(x.arrives, arrival{w.now.Add(w.late("late create")), s.Record.fence(x.name)})
			if w.chance(20) {
				w.seen["answer lost"]++ // and it is offered again
				w.muster.again = w.now
			}
		}
	case Award:
		if reached(x) || x.lossy {
			x.awards = append(x.awards, award{w.now.Add(w.late("late award")), find(clusters, s.Cluster).Copy.UID})
			if !reached(x) {
				w.seen["answer lost"]++
			}
		}
	case Commit:
		if v.number == w.manager.number {
			w.write(func(v *version) { v.ready, v.cluster, v.nominated = true, s.Cluster, nil })
		}
	case Finish:
		w.finished = true
		w.note("the job has finished in %s", s.Cluster)
	case Retry:
		if find(clusters, s.Cluster).Stopped {
			w.seen["moved behind a fence"]++
		}
		for _, name := range s.Gone {
			if x := w.worker(name); !reached(x) || x.copy != nil {
				return
			}
		}
		w.retry(v, s.Message)
	case Clear:
		w.clear(v, s, reached)
	}
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

func (w *world) clear(v version, s Step, reached func(*worker) bool) {
	record := s.Record
	for _, name := range s.Gone {
		switch x := w.worker(name); {
		case !reached(x):
			record.In = append(record.In, name)
		case x.copy != nil:
			record.In = append(record.In, name)
			if !x.copy.Leaving {
				w.moves++
				w.delete(x)
			}
		}
	}
	before, _ := DecodeRecord(v.record)
	if len(record.In) != len(before.In) && v.number == w.manager.number {
		w.write(func(v *version) { v.record = record.Encode() })
	}
}
