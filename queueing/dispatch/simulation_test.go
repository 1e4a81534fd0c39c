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
		simulate(t, true, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "late create", "late award", "stalled", "manager evicts")
	})
}

func simulate(t *testing.T, managed bool, mishaps ...string) {
	var moved, ran int
	seen := map[string]int{}
	first, n := uint64(0), uint64(*worlds)
	if *replay >= 0 {
		first, n = uint64(*replay), 1
	}
	for seed := first; seed < first+n; seed++ {
		w := newWorld(seed)
		w.managed = managed
		w.run()
		if w.wrong != "" {
			t.Errorf("seed %d: %s\n%s\nReplay it: go test ./queueing/dispatch -run %s -v -world %d", seed, w.wrong, w.trace(*replay >= 0), t.Name(), seed)
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
	// noticed is when a dispatcher that makes the copies knows of the cut.
	noticed time.Time
	// has no machines, or no quota, until then.
	dryUntil, fullUntil time.Time
	copy                *remote
	// arrives is when copies are made whose creation is under way.
	arrives []time.Time
	// awards are when the gate is taken off the copy of that UID.
	awards []award
	// stalled is since when nothing is heard of its copies, until then.
	stalled, stalledUntil time.Time
	// told is the copy as caches see it, at its time.
	told []toldCopy
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
}

// actor is a process that acts now and then, on what it saw some time ago.
type actor struct {
	again time.Time
	lag   time.Duration
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 21)), now: noon, seen: map[string]int{}}
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
	for end := noon.Add(4*time.Hour + 20*time.Minute); w.now.Before(end) && w.wrong == "" && !w.finished; w.now = w.now.Add(tick) {
		if !w.calm && w.now.Sub(noon) > 20*time.Minute {
			w.calm = true
			w.note("the world is calm")
			for _, x := range w.workers {
				x.cutUntil, x.dryUntil, x.fullUntil = w.now, w.now, w.now
			}
		}
		w.mishap()
		for _, x := range w.workers {
			w.work(x)
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
		case w.chance(4000):
			x.cutUntil, x.lossy = w.now.Add(w.within(3*time.Minute)), w.random.IntN(2) == 0
			if w.managed {
				x.noticed = w.now.Add(w.within(3 * time.Second))
			}
			w.seen["cut"]++
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
	x.arrives = slices.DeleteFunc(x.arrives, func(at time.Time) bool {
		if w.now.Before(at) {
			return false
		}
		if x.copy == nil {
			w.next++
			x.copy = &remote{Copy: Copy{UID: types.UID(fmt.Sprint(w.next)), Gated: w.managed}, since: w.now}
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
			x.arrives = append(x.arrives, at)
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
	clusters := w.clusters()
	if s := Next(j, clusters, w.now); s.Do != Rest {
		w.name(v, s)
	}
}

// clusters are as caches show them.
func (w *world) clusters() (out []Cluster) {
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
		w.seen["crash"]++
		w.note("muster crashes")
		w.muster.again = w.now.Add(w.within(20 * time.Second))
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
	s := Manage(j, w.clusters(), w.now)
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
			x.arrives = append(x.arrives, w.now.Add(w.late("late create")))
			if w.chance(20) {
				w.seen["answer lost"]++ // and it is offered again
				w.muster.again = w.now
			}
		}
	case Award:
		if reached(x) || x.lossy {
			x.awards = append(x.awards, award{w.now.Add(w.late("late award")), w.find(s.Cluster).UID})
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

// find is the copy in the cluster as caches show it.
func (w *world) find(name string) Copy {
	return *find(w.clusters(), name).Copy
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
		w.seen["crash"]++
		w.note("muster crashes")
		w.muster.again = w.now.Add(w.within(20 * time.Second))
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
