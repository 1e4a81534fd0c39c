// Package health answers the probes. A process is ready if it could do Muster's work when it
// leads: its caches are synced, what `muster manifests` prints is installed and of its version,
// it has the rights that it needs, it leads or stands by, and its writes succeed. It is healthy
// as long as the loops that decide get anywhere.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

const (
	// again is the delay after a failed check, often that after a successful one.
	again = 2 * time.Second
	often = 30 * time.Second
	// timeout limits a check.
	timeout = 20 * time.Second
)

var errNotYet = errors.New("not checked yet")

// Watch repeats a check that is too costly for every probe, and answers with its last result.
type Watch struct {
	name  string
	check func(context.Context) error
	clock clock.Clock

	mu   sync.Mutex
	last error
}

// NewWatch returns a Watch without a result: it is not ready.
func NewWatch(name string, check func(context.Context) error, c clock.Clock) *Watch {
	return &Watch{name: name, check: check, clock: c, last: errNotYet}
}

// AddTo has the manager repeat the check and answer by it.
func (w *Watch) AddTo(mgr ctrl.Manager) error {
	if err := mgr.Add(w); err != nil {
		return err
	}
	return mgr.AddReadyzCheck(w.name, w.Ready)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a process that stands by has
// to be ready, too.
func (w *Watch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	log := ctrl.Log.WithName("health")
	for {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		err := w.check(bounded)
		cancel()
		w.mu.Lock()
		before := w.last
		w.last = err
		w.mu.Unlock()
		wait := often
		if err != nil {
			wait = again
		}
		// The probe's answer names the check alone, so the log has the reason.
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (before == nil || before.Error() != err.Error()):
			log.Info("Not ready", "check", w.name, "reason", err.Error())
		case err == nil && before != nil && !errors.Is(before, errNotYet):
			log.Info("Ready again", "check", w.name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.clock.After(wait):
		}
	}
}

// Ready implements healthz.Checker.
func (w *Watch) Ready(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Synced is a check that the caches that were started are synced. From then on it holds: a cache of a kind that comes later
// fills while all others serve.
func Synced(wait func(context.Context) bool) healthz.Checker {
	var synced atomic.Bool
	return func(r *http.Request) error {
		if synced.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if !wait(ctx) {
			return errors.New("the caches are not synced yet")
		}
		synced.Store(true)
		return nil
	}
}

// stuck is how long a step of a loop may take: thousands of times as long as one takes in a
// large cluster.
const stuck = 2 * time.Minute

// Watchdog reports loops whose step does not end.
type Watchdog struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	began map[string]time.Time
}

// NewWatchdog returns a Watchdog of no loops.
func NewWatchdog(c clock.PassiveClock) *Watchdog {
	return &Watchdog{clock: c, began: map[string]time.Time{}}
}

// Of returns the function that runs the steps of the loop of that name.
func (w *Watchdog) Of(loop string) func(step func()) {
	return func(step func()) {
		w.mark(loop, w.clock.Now())
		defer w.mark(loop, time.Time{})
		step()
	}
}

func (w *Watchdog) mark(loop string, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began[loop] = began
}

// Healthy implements healthz.Checker.
func (w *Watchdog) Healthy(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for loop, began := range w.began {
		if took := w.clock.Since(began); !began.IsZero() && took > stuck {
			errs = append(errs, fmt.Errorf("the loop of the %s has been in one step for %s", loop, took.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// Probe has the provisioner decide on nothing now and then: what decides does so one at a time,
// so that a decision that never ends keeps the Probe from its turn.
type Probe struct {
	// Decide calls a function when no other decides.
	Decide   func(func())
	Stepping func(step func())
	Clock    clock.Clock
}

// Start implements manager.Runnable. A turn that does not come leaves its goroutine behind until
// the process ends.
func (p *Probe) Start(ctx context.Context) error {
	for {
		turn := make(chan struct{})
		go p.Stepping(func() { p.Decide(func() {}); close(turn) })
		select {
		case <-ctx.Done():
			return nil
		case <-turn:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.Clock.After(10 * time.Second):
		}
	}
}
