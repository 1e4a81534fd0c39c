// Package pulse reports since when the control plane answers.
package pulse

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Every is how often the control plane is asked.
	Every = 5 * time.Second
	// silence is how long it may leave that without an answer, by three questions in a row, until it counts as silent. A process that was
	// not scheduled for so long has not heard of it either.
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

// Answered notes an answer, and reports whether the control plane was silent before it.
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

// Since is when the control plane began to answer again; zero where it was never silent. While it is silent that is now: time in which
// it cannot say what has become of pods, nodes and machines counts for nothing.
func (p *Pulse) Since(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.answered.IsZero() && now.Sub(p.answered) > silence {
		return now
	}
	return p.since
}
