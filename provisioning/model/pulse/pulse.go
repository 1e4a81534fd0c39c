// Package pulse reports since when the control plane answers.
package pulse

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Every is the interval between two reads from the control plane.
	Every = 5 * time.Second
	// silence is how long the control plane may fail to respond, which is three reads in a row, before it counts as silent. A process
	// that was not scheduled for so long has had no response either.
	silence = 3 * Every
)

// Pulse is safe for use by many goroutines.
type Pulse struct {
	clock           clock.PassiveClock
	mu              sync.Mutex
	answered, since time.Time
}

// New returns a Pulse without an answer yet.
func New(c clock.PassiveClock) *Pulse { return &Pulse{clock: c} }

// Answered records a response, and reports whether the control plane was silent before it.
func (p *Pulse) Answered() (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	again = !p.answered.IsZero() && now.Sub(p.answered) > silence
	if p.answered = now; again {
		p.since = now
	}
	return again
}

// Since returns when the control plane started to respond again; zero if it was never silent, and now while it is silent. Time in which it
// could not report the state of pods, nodes and machines does not count.
func (p *Pulse) Since(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.answered.IsZero() && now.Sub(p.answered) > silence {
		return now
	}
	return p.since
}
