package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/test/invariants/promises"
)

// How long things take at most.
const (
	// callTime bounds calls, and wakeTime how long a goroutine that may go on waits.
	callTime = 500 * time.Millisecond
	wakeTime = 100 * time.Millisecond
	// lateTime is how long after its caller has given up a call may take effect.
	lateTime = 2 * time.Second
	// lookTime is how often client-go checks whether caches have synced.
	lookTime = 100 * time.Millisecond
	// downTime is how long muster may be down after a crash.
	downTime = 5 * time.Second
	// mostRepeats is how often the very same write may be tried in a scenario. One that
	// conflicts is tried again every 200 ms, until the cache has caught up.
	mostRepeats = 100
	// recovery is what it may take from its start until it is back at work.
	recovery = 15 * time.Second
)

// option is something that may happen next.
type option struct {
	// key is unique among the options of one moment, and the same in a replay.
	key string
	// at is when it may happen first; zero is from the moment it is first offered.
	at time.Time
	// within is how long after that it happens at the latest.
	within time.Duration
	do     func()

	due time.Time
}

// simulator runs one scenario. It alone decides what happens next.
type simulator struct {
	faults
	random  *rand.Rand
	began   time.Time
	store   *store
	checker *promises.Checker
	world   *world
	// orderly: what could happen first does, and no time passes before, unless it is
	// slow.
	orderly bool

	// ahead is how far the clock of muster's machine is ahead, as a Duration; again is
	// when all that it was set back has been lived through again.
	ahead atomic.Int64
	again time.Time
	// muster is the process that runs; nil between a crash and the next start at up.
	muster *process
	up     time.Time
	// late calls take effect after their caller is gone; delayed counts all that there
	// ever were.
	late    []*call
	delayed int
	// since is when each option of the last step was first offered.
	since map[string]time.Time

	trace    []string
	features map[string]bool
	// scatter counts machines that were in another rack than the rest. ended are those that were counted.
	scatter scatter
	ended   map[string]bool
	// usedByOthers nodes have run a pod that does not use Muster.
	usedByOthers map[string]bool
	// failure is what the simulation itself cannot go on with.
	failure error
	// unrest is what muster did that should have been at rest.
	unrest string

	// points are the keys of the calls that the sweep may crash at, in their order;
	// tried is how often there was each.
	points []string
	tried  map[string]int
	// crashAt is where the sweep has muster crash, see sweep.
	crashAt *crashPoint
}

// newSimulator has an empty cluster in which muster starts at once.
func newSimulator(seed uint64, w faults) *simulator {
	s := &simulator{
		faults: w, random: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), store: newStore(),
		checker: promises.New(expectations(w)), since: map[string]time.Time{}, features: map[string]bool{},
		ended: map[string]bool{}, usedByOthers: map[string]bool{}, tried: map[string]int{}, up: time.Now(),
	}
	s.store.onChange = s.onChange
	s.world = &world{
		simulator: s, assumed: map[types.UID]string{}, cordoned: map[string]bool{}, undeclared: map[string]time.Duration{},
		outages: map[string]outage{},
		outlive: map[string]bool{}, pending: map[types.UID]allocations{}, drivers: map[string][]driverFault{},
		answers: map[string]allocations{}, expressions: newExpressions(), worsened: map[string]time.Time{}, judged: map[types.UID]bool{},
	}
	return s
}

// expectations returns the bounds of the promises with such faults. A step is decided by caches that may be stale by staleness, and takes
// effect two calls later: that is the race. Otherwise, each bound is that of a real cluster. Slow calls add a few seconds, and failed
// calls add the backoff of retries: if one in ten fails, eight failures in a row and thus pauses of up to half a minute occur in ten
// thousand runs.
func expectations(w faults) promises.Config {
	c := promises.DefaultConfig()
	c.Race = w.staleness + 2*callTime
	c.Unseen = lateTime + 4*callTime
	c.Confirm = 0 // the order of events is known
	slack := w.staleness + time.Duration(w.calls)*600*time.Millisecond
	c.RollbackBound += slack + 10*time.Second
	c.ExplainBound += slack + 5*time.Second
	c.OrphanBound += slack
	c.IdleBound += slack
	return c
}

// onChange passes a change to the checker and to muster's informers.
func (s *simulator) onChange(o client.Object, deleted bool) {
	now := time.Now()
	s.checker.Apply(promises.Event{Object: o, Deleted: deleted, Revision: s.store.revision, Time: now})
	if s.muster != nil {
		s.muster.informers.happened(event{object: o, deleted: deleted, at: now})
	}
	s.observe(o, deleted)
	s.world.judgeCordon(o, deleted)
	s.world.judgeRack(o, deleted)
	s.world.noteDevices(o, deleted)
	s.world.judgeDevices(o, deleted)
}

// run lets things happen until the time comes, or something is wrong.
func (s *simulator) run(until time.Time) {
	for time.Now().Before(until) {
		synctest.Wait()
		options, next := s.options()
		switch {
		case s.broken():
			return
		case s.timePasses(options):
			s.pass(earliest(until, next, options))
		case s.muster != nil && s.chance(s.crashes):
			s.crash()
		case s.chance(s.jumps):
			s.jump()
		default:
			s.do(s.pick(options))
		}
	}
}

// do lets the option happen. If it is offered again, that is another one.
func (s *simulator) do(o option) {
	s.note("%s", o.key)
	delete(s.since, o.key)
	o.do()
}

// broken says that something is wrong already.
func (s *simulator) broken() bool { return s.failure != nil || len(s.checker.Violations()) > 0 }

// timePasses says that nothing happens now, though something may be able to.
func (s *simulator) timePasses(options []option) bool {
	if len(due(options)) > 0 {
		return false
	}
	return len(s.quick(options)) == 0 || !s.orderly && s.random.IntN(4) == 0
}

// earliest is when something new may happen, or something has to: at the latest
// until then.
func earliest(until, next time.Time, options []option) time.Time {
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	for _, o := range options {
		if o.due.Before(until) {
			until = o.due
		}
	}
	return until
}

// pass lets time pass to a moment, or to one before it.
func (s *simulator) pass(to time.Time) {
	d := time.Until(to)
	if !s.orderly && s.random.IntN(2) == 0 {
		d = min(d, time.Duration(1+s.random.IntN(50))*time.Millisecond)
	}
	<-time.After(d)
	s.checker.Tick(time.Now())
}

// quick returns the options that are not slowed down.
func (s *simulator) quick(options []option) (out []option) {
	for _, o := range options {
		if !slices.ContainsFunc(s.slow, func(prefix string) bool { return strings.HasPrefix(o.key, prefix) }) {
			out = append(out, o)
		}
	}
	return out
}

// due are the options that have to happen now.
func due(options []option) (out []option) {
	for _, o := range options {
		if !o.due.After(time.Now()) {
			out = append(out, o)
		}
	}
	return out
}

// pick chooses what happens: what is due, else what is quick.
func (s *simulator) pick(options []option) option {
	choice := due(options)
	if len(choice) == 0 {
		choice = s.quick(options)
	}
	if s.orderly {
		return slices.MinFunc(choice, func(a, b option) int {
			return cmp.Or(s.since[a.key].Compare(s.since[b.key]), cmp.Compare(a.key, b.key))
		})
	}
	return choice[s.random.IntN(len(choice))]
}

func (s *simulator) chance(thousandths int) bool {
	return thousandths > 0 && s.random.IntN(1000) < thousandths
}

// options are what may happen now, in the order of their keys, and next is when
// something else may.
func (s *simulator) options() (now []option, next time.Time) {
	since := make(map[string]time.Time, len(s.since))
	at := time.Now()
	offer := func(o option) {
		if o.at.After(at) {
			if next.IsZero() || o.at.Before(next) {
				next = o.at
			}
			return
		}
		if _, twice := since[o.key]; twice {
			s.failure = fmt.Errorf("two options have the same key: %s", o.key)
		}
		first, known := s.since[o.key]
		if !known {
			first = at
		}
		since[o.key] = first
		if !o.at.IsZero() {
			first = o.at
		}
		o.due = first.Add(o.within)
		now = append(now, o)
	}
	s.offerMuster(offer)
	for _, c := range s.late {
		offer(option{key: fmt.Sprintf("late call %d: %s", c.number, c.key), within: lateTime, do: func() {
			s.late = slices.DeleteFunc(s.late, func(o *call) bool { return o == c })
			_, _ = s.takeEffect(c) // its caller is gone
		}})
	}
	s.world.offer(offer)
	s.since = since
	slices.SortFunc(now, func(a, b option) int { return cmp.Compare(a.key, b.key) })
	return now, next
}

// offerMuster offers what muster waits for.
func (s *simulator) offerMuster(offer func(option)) {
	p := s.muster
	if p == nil {
		offer(option{key: "muster starts", at: s.up, do: s.start})
		return
	}
	if !p.begun() {
		// While muster waits for its caches to sync it checks them from time to time.
		offer(option{key: "muster looks whether it may begin", at: time.Now().Add(lookTime)})
	}
	for _, c := range p.waiting() {
		if c.blocked == nil || !c.blocked() {
			offer(option{key: c.key, within: callTime, do: func() { s.serve(c) }})
		}
	}
	for _, c := range p.changes {
		if len(c.from) > 0 {
			offer(option{key: "wake " + c.controller, within: wakeTime, do: c.pass})
		}
	}
	for _, t := range p.allTimers() {
		offer(option{key: fmt.Sprintf("timer of %s %d", t.of.owner, t.number), at: t.at, within: wakeTime, do: t.goOff})
	}
	for _, f := range p.informers.all() {
		switch {
		case !f.listed():
			offer(option{key: "list " + f.kind, within: callTime, do: f.list})
		case len(f.queue) > 0:
			offer(option{key: "tell of " + f.kind, at: f.queue[0].at, within: s.staleness, do: func() { s.deliverNext(f) }})
		}
	}
}

// deliverNext lets an informer deliver its next change, or break.
func (s *simulator) deliverNext(f *informer) {
	if s.chance(s.watches) {
		s.note("  the watch of %s breaks with %d changes untold", f.kind, len(f.queue))
		s.feature("watch broken")
		f.relist()
		return
	}
	f.next()
}

func (s *simulator) start() {
	var more []client.Object
	if s.world.withClaims {
		more = deviceKinds
	}
	p, err := start(s.store, &s.ahead, s.world.away, more)
	if err != nil {
		s.failure = err
		return
	}
	s.muster = p
}

// note adds a line to the trace.
func (s *simulator) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	const longest = 1800
	if len(line) > longest {
		line = line[:longest] + "…"
	}
	s.trace = append(s.trace, fmt.Sprintf("%10.3f %s", time.Since(s.began).Seconds(), line))
}
