// Package liveness reports since when the control plane answers.
package liveness

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

// APIServer is safe for use by many goroutines.
type APIServer struct {
	clock           clock.PassiveClock
	mu              sync.Mutex
	answered, since time.Time
}

// New returns an APIServer without an answer yet.
func New(c clock.PassiveClock) *APIServer { return &APIServer{clock: c} }

// Answered records a response, and reports whether the control plane was silent before it.
func (a *APIServer) Answered() (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	again = !a.answered.IsZero() && now.Sub(a.answered) > silence
	if a.answered = now; again {
		a.since = now
	}
	return again
}

// Since returns when the control plane started to respond again; zero if it was never silent, and now while it is silent. Time in which it
// could not report the state of pods, nodes and machines does not count.
func (a *APIServer) Since(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.answered.IsZero() && now.Sub(a.answered) > silence {
		return now
	}
	return a.since
}
