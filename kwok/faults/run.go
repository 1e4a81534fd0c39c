package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/kwok/cluster"
)

// Processes are the components of a sandbox, as a cluster.Cluster has them.
type Processes interface {
	// Kill has the component started again.
	Kill(component string) error
	// Freeze stops it where it is, until Thaw.
	Freeze(component string) error
	Thaw(component string) error
}

var _ Processes = (*cluster.Cluster)(nil)

// Run applies the faults of the plan, and returns when all that began within the time are over. If ctx ends first, it ends those in
// force. report, if not nil, is called for each occurrence as it begins. Components that are down already are skipped.
func Run(ctx context.Context, p *Plan, within time.Duration, processes Processes, gate *Gate, report func(Occurrence)) error {
	var (
		running  sync.WaitGroup
		mu       sync.Mutex
		failures []error
	)
	began := time.Now()
	for _, o := range p.Occurrences(within) {
		if !sleep(ctx, o.Begins-time.Since(began)) {
			break
		}
		if report != nil {
			report(o)
		}
		running.Go(func() {
			if err := happen(ctx, o, processes, gate); err != nil && !errors.Is(err, cluster.ErrNoProcess) {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Errorf("%s: %w", o, err))
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}

func happen(ctx context.Context, o Occurrence, processes Processes, gate *Gate) error {
	switch o.Type {
	case Kill:
		return processes.Kill(o.Target)
	case Freeze:
		if err := processes.Freeze(o.Target); err != nil {
			return err
		}
		sleep(ctx, o.For.Duration)
		return processes.Thaw(o.Target)
	default:
		over := gate.Begin(o.Fault)
		sleep(ctx, o.For.Duration)
		over()
		return nil
	}
}

// sleep says whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
