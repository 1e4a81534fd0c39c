package invariants

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/pressure"
)

// Violation is a promise that was not kept.
type Violation = promises.Violation

// Stats counts what was checked.
type Stats = promises.Stats

// Options of a Watcher.
type Options struct {
	promises.Config
	// Hold is how long events are held back to be put in order.
	Hold time.Duration
	// Recovery is how long clients may take to reconnect after an outage of the API
	// server. All bounds restart after it.
	Recovery time.Duration
}

// DefaultOptions are what Watch uses.
func DefaultOptions() Options {
	return Options{Config: promises.DefaultConfig(), Hold: 300 * time.Millisecond, Recovery: 15 * time.Second}
}

// step is how often events are released and bounds checked.
const step = 50 * time.Millisecond

// Watcher watches until Stop, or until its context is done.
type Watcher struct {
	cancel  context.CancelFunc
	stop    chan struct{}
	once    sync.Once
	stopped chan struct{}

	mu    sync.Mutex
	merge *merger
}

// Watch begins to watch and returns once it has seen all that exists. What
// changes after that is judged. The changes are made to the default Options.
func Watch(ctx context.Context, config *rest.Config, changes ...func(*Options)) (*Watcher, error) {
	o := DefaultOptions()
	for _, change := range changes {
		change(&o)
	}
	streams, err := newStreams(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{
		cancel:  cancel,
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		merge:   newMerger(promises.New(o.Config), o.Hold, o.Recovery),
	}
	messages := make(chan message, 1024)
	first := make(chan error, len(streams))
	var running sync.WaitGroup
	for _, s := range streams {
		w.merge.lost(s.kind, time.Now())
		running.Go(func() { s.run(ctx, messages, func(err error) { first <- err }) })
	}
	go func() {
		running.Wait()
		close(messages)
	}()
	go w.run(messages, o.Hold)
	for range streams {
		if err := <-first; err != nil {
			w.Stop()
			return nil, fmt.Errorf("watching the promises: %w", err)
		}
	}
	return w, nil
}

// run feeds the Checker until the streams have ended.
func (w *Watcher) run(messages <-chan message, hold time.Duration) {
	defer close(w.stopped)
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	stop, lost := w.stop, pressure.Shared().Lost()
	for {
		select {
		case m, more := <-messages:
			if !more {
				w.locked(func() { w.merge.finish(time.Now()) })
				return
			}
			w.locked(func() { w.merge.take(m) })
		case <-ticker.C:
			now := time.Now()
			w.locked(func() { w.merge.release(now, pressure.Shared().Lost()-lost) })
		case <-stop:
			// What has been written by now is still on its way.
			stop = nil
			time.AfterFunc(hold, w.cancel)
		}
	}
}

func (w *Watcher) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// Stop ends the watches once all earlier writes have been observed, and confirms all violations. It may be called more than once.
func (w *Watcher) Stop() {
	w.once.Do(func() { close(w.stop) })
	<-w.stopped
}

// StandStill says that Muster cannot be expected to act before that time, for
// example because a test has killed it. All bounds restart then.
func (w *Watcher) StandStill(until time.Time) {
	w.locked(func() { w.merge.checker.StandStill(until) })
}

// Violations returns all violations confirmed so far. After Stop, the list is complete.
func (w *Watcher) Violations() (out []Violation) {
	w.locked(func() { out = w.merge.checker.Violations() })
	return out
}

// Stats returns what was checked so far.
func (w *Watcher) Stats() (out Stats) {
	w.locked(func() { out = w.merge.checker.Stats() })
	return out
}

// Trace returns a line for each of the last versions that were checked, the oldest first, and for each violation.
func (w *Watcher) Trace() (out []string) {
	w.locked(func() {
		out = w.merge.trace.lines()
		for _, v := range w.merge.checker.Violations() {
			out = append(out, "broken promise: "+v.String())
		}
	})
	return out
}

// TB is the part of testing.TB that Check needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check fails the test for each promise that was broken so far, and for each of
// the checks that had nothing to judge.
func (w *Watcher) Check(t TB, needed ...promises.Check) {
	t.Helper()
	for _, v := range w.Violations() {
		t.Errorf("broken promise: %s", v)
	}
	stats := w.Stats()
	for _, check := range needed {
		if stats.Judged[check] == 0 {
			t.Errorf("nothing was there to check %q: %s", check, stats)
		}
	}
}
