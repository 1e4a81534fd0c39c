package dispatch

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/provisioning/when"
)

var (
	worlds = flag.Int("worlds", 60, "how many random worlds of several clusters are simulated")
	replay = flag.Int64("world", -1, "simulate the random world of this seed alone, and print what happens in it with -v")
)

// TestOneClusterSpends: workers provision, refuse, evict and finish. The manager is a stock Kueue or Muster. The dispatcher crashes
// between any two writes, its caches lag, and connections break in one direction and come back. Two workers never have machines for the
// job, and it finishes if any worker is healthy. The dispatcher reads the job only after an event or at a time that it has set, and it
// never sleeps while the job could go on.
func TestOneClusterSpends(t *testing.T) {
	t.Run("kueue", func(t *testing.T) {
		simulate(t, false, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "stale create", "stalled", "manager evicts",
			"foreign", "without queue", "declared dead", "hangs", "left idle",
			"rejected")
	})
	t.Run("muster", func(t *testing.T) {
		simulate(t, true, "crash", "cut", "refused", "evicted", "by hand", "answer lost", "late create", "late grant",
			"stalled", "manager evicts", "foreign", "without queue", "refuses copies", "declared dead", "moved before its grant",
			"deleted here", "made again here", "wiped", "its name deleted", "cleared after that", "hangs", "left for its silence",
			"left idle", "not started", "rejected", "edited", "refuses the job", "swapped", "deleted by its TTL",
			"cleared after its end")
	})
}

// TestHedgedClustersSpend: a job with a hedge of two may have machines in two clusters, and never in three.
func TestHedgedClustersSpend(t *testing.T) {
	simulate(t, true, "hedged", "the second was sooner", "crash", "cut", "refused", "evicted", "stalled", "manager evicts")
}

// TestOneClusterSpendsBehindFences: workers are cut off for longer than their fence, processes restart with other clocks, and the
// manager's calls arrive late. The job is never in two workers, and it leaves a worker that is cut off.
func TestOneClusterSpendsBehindFences(t *testing.T) {
	simulate(t, true, "cut for long", "worker restarts", "crash", "late answer", "late create", "late grant", "stopped by its fence",
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
	// managed: Muster creates the copies, not Kueue.
	managed bool
	// fenced: the workers stop the copies of a manager that is silent.
	fenced bool
	// hedge is the hedge of the job. Zero means one.
	hedge int
	// manager is the Workload in the manager's API server. history has its versions with their times, for caches that lag.
	manager version
	history []version
	workers []*worker
	kueue   actor
	muster  actor
	// finished: the job has ended in the manager, since endedAt. ttl is how long its Workload is kept then.
	finished bool
	endedAt  time.Time
	ttl      time.Duration
	// runs is the average length of a run in ticks, while there are faults.
	runs int
	// ended is the copy that has finished, unless something has happened since that allows the job to run again.
	ended *remote
	moves int
	calm  bool

	// record is the last decoded record.
	record Record
	text   string

	seen  map[string]int
	lines []string
	wrong string
	next  int
}

// version is a version of the manager's Workload.
type version struct {
	number int
	at     time.Time
	// generation counts the Workloads so far. deleted: it still has a finalizer.
	generation int
	deleted    bool
	finished   bool
	quota      bool
	ready      bool
	nominated  []string
	cluster    string
	record     string
	// shown is when the dispatcher's cache has it.
	shown time.Time
}

// worker is a cluster with at most one copy.
type worker struct {
	name string
	// The worker is cut off from the manager until then. lossy: requests arrive, and responses do not.
	cutUntil time.Time
	lossy    bool
	// quiet: nothing else happens to its copy meanwhile.
	quiet bool
	// connected: the last poll of the dispatcher succeeded. The next poll is at pollAt.
	connected bool
	pollAt    time.Time
	// Until then, its API server has no LocalQueue, has another Workload of the job's name, or has a webhook that refuses copies.
	queueless, foreignUntil, refusesUntil time.Time
	// foreign and refused are when a call of the dispatcher found that.
	foreign, refused time.Time
	// made is the copy that the dispatcher has created and not observed yet, since then.
	made   *Copy
	madeAt time.Time
	// Until then, a policy in its API server refuses the job.
	refusesJobsUntil time.Time
	// Until then, the Secret of its kubeconfig has that of another cluster.
	swappedUntil time.Time
	// hangsUntil is until when its Muster does nothing, since hangsSince. idle: the dispatcher has noticed.
	hangsSince, hangsUntil time.Time
	idle                   bool
	// deleted: its MultiKueueCluster is deleted, but has its finalizer. lostSince is since when the dispatcher's process does not reach
	// it.
	deleted   bool
	lostSince time.Time
	// The worker has no machines, or no quota, until then.
	dryUntil, fullUntil time.Time
	copy                *remote
	// arrives are creations of copies that are under way.
	arrives []arrival
	// grants are the removals of gates that are under way.
	grants []grant
	// listener is the worker's side of its fence, renewal the manager's.
	listener listener
	renewal  Renewal
	asked    time.Time
	// stalledUntil is until when its watch delivers nothing.
	stalledUntil time.Time
	// deliveries are the copies that arrive in caches, with their times.
	deliveries []cachedCopy
}

func (w *world) crash() {
	w.seen["crash"]++
	w.note("muster crashes")
	w.muster.again = w.now.Add(w.within(20 * time.Second))
	w.muster.begins = w.muster.again
	// The next process lists all Workloads of the manager and the workers.
	w.muster.wakes, w.muster.failed, w.muster.wrote, w.muster.named = []time.Time{w.muster.again}, 0, 0, map[string]bool{}
	for i := range w.history {
		w.history[i].shown = when.Earliest(w.history[i].shown, w.muster.again)
	}
	for _, x := range w.workers {
		x.made, x.foreign, x.refused, x.lostSince = nil, time.Time{}, time.Time{}, time.Time{}
		x.stalledUntil = when.Earliest(x.stalledUntil, w.muster.again)
		for i := range x.deliveries {
			x.deliveries[i].at = when.Earliest(x.deliveries[i].at, w.muster.again)
		}
	}
}

// actor is a process that acts on an old state: Kueue now and then, the dispatcher when it is woken.
type actor struct {
	again time.Time
	// wakes are the times at which events and timers requeue the job.
	wakes []time.Time
	// failed counts the failed calls in a row, for the backoff.
	failed int
	// wrote is the last version that it has written.
	wrote int
	// could is since when it sleeps although the job could go on, as judged last.
	could, judged time.Time
	// skew is the error of its clock. It changes with each process.
	skew time.Duration
	// begins is when its next process starts; zero while one runs.
	begins time.Time
	// named are the clusters that its process has nominated, and not granted since.
	named map[string]bool
}

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 21)), now: noon, seen: map[string]int{}}
	w.muster.begins, w.muster.wakes, w.muster.named = noon, []time.Time{noon}, map[string]bool{}
	w.manager = version{quota: true, at: noon}
	w.ttl = time.Duration(w.random.IntN(2)) * w.within(time.Minute)
	w.runs = []int{500, 10000}[w.random.IntN(2)]
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

// chance is true once in so many ticks on average, and never once the faults are over.
func (w *world) chance(ticks int) bool { return !w.calm && w.random.IntN(ticks) == 0 }

func (w *world) within(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// lasts returns how long there are faults.
func (w *world) lasts() time.Duration {
	if w.fenced {
		return 40 * time.Minute
	}
	return 20 * time.Minute
}

// run simulates some minutes with faults, and then gives the job time to finish.
func (w *world) run() {
	lasting := w.lasts()
	for end := noon.Add(4*time.Hour + lasting); w.now.Before(end) && w.wrong == "" && !w.over(); w.now = w.now.Add(tick) {
		if !w.calm && w.now.Sub(noon) > lasting {
			w.calm = true
			w.note("the world is calm")
			for _, x := range w.workers {
				x.cutUntil, x.dryUntil, x.fullUntil = w.now, w.now, w.now
				x.foreignUntil, x.refusesUntil, x.queueless, x.hangsUntil = w.now, w.now, w.now, w.now
				x.refusesJobsUntil, x.swappedUntil = w.now, w.now
			}
		}
		w.mishap()
		for _, x := range slices.Clone(w.workers) {
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

// over reports whether the job has finished, and no worker has anything of it.
func (w *world) over() bool {
	record, _ := w.decode(w.manager.record)
	return w.finished && (!w.managed || len(record.In) == 0 && !slices.ContainsFunc(w.workers, func(x *worker) bool {
		return x.copy != nil || len(x.arrives) > 0
	}))
}

// judge verifies that at most one worker has machines for the job, or as many as its hedge allows.
func (w *world) judge() {
	var spend []string
	for _, x := range w.workers {
		if x.copy != nil && x.copy.spends {
			spend = append(spend, x.name)
			if w.ended != nil && x.copy != w.ended && w.hedge == 0 {
				w.wrong = "the job has ended, and has machines again in " + x.name
			}
		}
	}
	if w.managed && w.finished && w.calm && w.now.Sub(later(w.endedAt, noon.Add(w.lasts()))) > 10*time.Minute {
		w.wrong = "the job has ended, and something of it is left in a worker after 10 minutes"
	}
	if len(spend) > 1 {
		w.seen["hedged"]++
	}
	if len(spend) > max(1, w.hedge) {
		w.wrong = fmt.Sprintf("machines are there for the job in %q", spend)
	}
}

// mishap injects a fault.
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
		case w.remaining() > 2 && w.chance(40000):
			w.declareDead(x)
			return
		case w.managed && w.chance(8000):
			w.swap(x)
		case w.managed && w.chance(4000):
			x.refusesJobsUntil = w.now.Add(w.within(5 * time.Minute))
			w.note("%s refuses the job until %.2fs", x.name, x.refusesJobsUntil.Sub(noon).Seconds())
		case w.managed && !x.deleted && w.remaining() > 2 && w.chance(20000):
			w.seen["its name deleted"]++
			w.note("the MultiKueueCluster of %s is deleted", x.name)
			x.deleted = true
			w.connectionChanged()
		case w.chance(4000):
			if !w.now.Before(x.hangsUntil) {
				x.hangsSince = w.now
			}
			x.hangsUntil = later(x.hangsUntil, w.now.Add(w.within(5*time.Minute)))
			w.seen["hangs"]++
			w.note("nothing queues in %s until %.2fs", x.name, x.hangsUntil.Sub(noon).Seconds())
		case w.managed && w.chance(15000):
			// Its MultiKueueCluster leads to another cluster until an admin confirms it.
			w.seen["wiped"]++
			w.note("%s is wiped", x.name)
			x.copy, x.arrives, x.grants, w.ended = nil, nil, nil, nil
			x.cutUntil, x.lossy = later(x.cutUntil, w.now.Add(w.within(3*time.Minute))), false
			w.updateCaches(x)
		case x.quiet && w.now.Before(x.cutUntil):
		case w.chance(3000) && x.copy != nil && !x.copy.Leaving:
			w.seen["by hand"]++
			w.note("the copy in %s is deleted by hand", x.name)
			w.ended = nil
			w.delete(x)
		case w.managed && w.chance(6000) && x.copy != nil && !x.copy.Leaving:
			w.seen["edited"]++
			w.note("the copy in %s is edited", x.name)
			x.copy.Changed, w.ended = "its queue is another one", nil
			w.updateCaches(x)
		case w.chance(3000) && x.copy != nil && x.copy.Reserved && !x.copy.Admitted && !x.copy.Leaving:
			w.seen["rejected"]++
			w.stop(x, Rejected)
		case w.chance(6000) && x.copy != nil && x.copy.Admitted:
			w.seen["evicted"]++
			w.note("%s evicts the copy", x.name)
			w.stop(x, Evicted)
			w.ended = nil
		}
	}
	if w.manager.finished {
		if !w.manager.deleted && w.now.Sub(w.endedAt) >= w.ttl {
			w.seen["deleted by its TTL"]++
			w.write(func(v *version) { v.deleted = true })
		}
		return
	}
	if w.managed && w.chance(8000) && !w.manager.deleted {
		w.seen["deleted here"]++
		w.note("the Workload is deleted in the manager")
		w.ended = nil
		w.write(func(v *version) { v.deleted = true })
	}
	if record, _ := w.decode(w.manager.record); w.manager.deleted && len(record.In) == 0 {
		w.seen["made again here"]++
		w.write(func(v *version) {
			*v = version{number: v.number, generation: v.generation + 1, quota: true, shown: v.shown}
		})
	}
	if w.chance(8000) && w.manager.quota && !w.manager.deleted {
		w.seen["manager evicts"]++
		w.note("the manager evicts the job")
		w.ended = nil
		w.write(func(v *version) { v.quota, v.ready, v.nominated, v.cluster = false, false, nil, "" })
	}
	if !w.manager.quota && w.now.Sub(w.manager.at) > 3*time.Second {
		if record, _ := w.decode(w.manager.record); !w.managed || len(record.In) == 0 {
			w.write(func(v *version) { v.quota = true })
		}
	}
}

// swap swaps the Secrets of a worker and of another one for a while. The dispatcher uses neither, since they lead to another cluster than
// before.
func (w *world) swap(x *worker) {
	y := w.workers[w.random.IntN(len(w.workers))]
	if x == y {
		return
	}
	w.seen["swapped"]++
	x.swappedUntil = w.now.Add(w.within(5 * time.Minute))
	y.swappedUntil = x.swappedUntil
	w.note("the kubeconfigs of %s and %s are swapped until %.2fs", x.name, y.name, x.swappedUntil.Sub(noon).Seconds())
}

// remaining returns how many workers have a MultiKueueCluster that is not deleted.
func (w *world) remaining() (n int) {
	for _, x := range w.workers {
		if !x.deleted {
			n++
		}
	}
	return n
}

// write adds a version of the manager's Workload.
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

// decode decodes a record. Most are equal to the last one.
func (w *world) decode(text string) (Record, error) {
	if text == w.text {
		return w.record, nil
	}
	record, err := DecodeRecord(text)
	if err == nil {
		w.record, w.text = record, text
	}
	return record, err
}

// worker returns the worker of that name, or nil if it was declared dead.
func (w *world) worker(name string) *worker {
	if i := slices.IndexFunc(w.workers, func(x *worker) bool { return x.name == name }); i >= 0 {
		return w.workers[i]
	}
	return nil
}
