package simulation

import (
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// timers is the clock of one controller. Its time is that of the bubble, unless the
// clock has jumped; its
// timers go off one by one, when the simulator says so: those of a bubble that go
// off at the same moment do it in no order. What is embedded is nil, for what no
// controller uses.
type timers struct {
	clock.WithTicker
	process *process
	owner   string
}

// Now implements clock.PassiveClock: it is what the clock of muster's machine shows.
func (t *timers) Now() time.Time { return time.Now().Add(time.Duration(t.process.ahead.Load())) }

// Since implements clock.PassiveClock.
func (t *timers) Since(at time.Time) time.Duration { return t.Now().Sub(at) }

// After implements clock.Clock.
func (t *timers) After(d time.Duration) <-chan time.Time { return t.NewTimer(d).C() }

// NewTimer implements clock.Clock.
func (t *timers) NewTimer(d time.Duration) clock.Timer {
	out := &timer{of: t, c: make(chan time.Time, 1)}
	out.start(d)
	return out
}

// timer goes off once after each start.
type timer struct {
	of *timers
	// number distinguishes the timers of one owner that are due at the same moment.
	number int
	at     time.Time
	c      chan time.Time
}

func (t *timer) start(d time.Duration) {
	p := t.of.process
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timersSet[t.of.owner]++
	t.number, t.at = p.timersSet[t.of.owner], time.Now().Add(max(0, d))
	p.timers = append(p.timers, t)
}

// C implements clock.Timer.
func (t *timer) C() <-chan time.Time { return t.c }

// Stop implements clock.Timer.
func (t *timer) Stop() bool {
	active := t.take()
	select {
	case <-t.c:
	default:
	}
	return active
}

// Reset implements clock.Timer.
func (t *timer) Reset(d time.Duration) bool {
	active := t.Stop()
	t.start(d)
	return active
}

// goOff is the simulator's.
func (t *timer) goOff() {
	t.take()
	t.c <- t.of.Now()
}

// take takes the timer off the list; false if it was not there.
func (t *timer) take() bool {
	p := t.of.process
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.timers)
	p.timers = slices.DeleteFunc(p.timers, func(o *timer) bool { return o == t })
	return len(p.timers) < before
}
