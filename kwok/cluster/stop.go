package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// stopGrace is how long a component may take to stop in good order. kube-apiserver takes up to 2 s for requests that
// are under way.
const stopGrace = 10 * time.Second

// Stop ends the sandbox: the components in the reverse of their start order, each by a signal, or by a kill when it takes too long; then
// its temporary files and its locks. When ctx ends, what is left is killed at once. Stopping again does nothing and returns the same.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopOnce.Do(func() {
		c.stopComponents(ctx)
		var more []string
		if c.config.DataDir == "" {
			more = append(more, c.plan.logDir)
		}
		c.stopErr = c.cleanUp(more...)
	})
	return c.stopErr
}

// abort ends a sandbox whose start failed. Nothing in it is worth a wait; only its logs are kept.
func (c *Cluster) abort() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	c.stopComponents(now)
	return c.cleanUp()
}

func (c *Cluster) stopComponents(ctx context.Context) {
	c.endBackground()
	c.working.Wait()
	for _, p := range slices.Backward(c.processes) {
		if c.hasStarted(p) {
			p.stop(ctx, stopGrace)
		}
	}
}

func (c *Cluster) hasStarted(p *process) bool {
	c.startedMu.Lock()
	defer c.startedMu.Unlock()
	return slices.Contains(c.started, p)
}

// cleanUp removes what must not outlive the sandbox, and more, and releases the locks last, so that their next holder finds
// everything gone.
func (c *Cluster) cleanUp(more ...string) error {
	c.spawn.close()
	for _, p := range c.proxies {
		_ = p.Close() // all that came through it has ended
	}
	if len(c.locks) == 0 {
		return nil // the name belongs to another sandbox
	}
	return c.config.Registry.leave(c.state, c.locks, more...)
}

// lock is what a sandbox holds for its life.
type lock interface{ release() error }

// leave removes what the registry and others hold of a sandbox that has ended, and more, and releases its locks.
func (r Registry) leave(state State, locks []lock, more ...string) error {
	if state.Copy != "" {
		removeKubeconfigCopy(state.Copy, state.Server)
	}
	var failures []error
	for _, path := range slices.Concat(state.Temporary, []string{r.statePath(state.Name)}, more) {
		if err := os.RemoveAll(path); err != nil {
			failures = append(failures, fmt.Errorf("removing the sandbox's files: %w", err))
		}
	}
	for _, l := range locks {
		if err := l.release(); err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, fmt.Errorf("releasing a lock: %w", err))
		}
	}
	_ = os.Remove(r.path(state.Name)) // fails if logs were kept, or if the name is in use again
	return errors.Join(failures...)
}

// StopRunning signals the supervisor of a running sandbox to stop it, and returns when it is gone. When ctx ends first, the sandbox is
// killed.
func (r Registry) StopRunning(ctx context.Context, name string) error {
	state, err := r.Find(name)
	if err != nil {
		return err
	}
	if state.Set != "" {
		return fmt.Errorf("%q is one cluster of the sandbox %q, which stops as a whole: use `muster-sandbox down --name %s`",
			name, state.Set, state.Set)
	}
	if err := syscall.Kill(state.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("asking process %d to stop the sandbox %q: %w", state.PID, name, err)
	}
	const pause = 20 * time.Millisecond
	for isLocked(r.lockPath(name)) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d of the sandbox %q: %w", state.PID, name, err)
			}
			ctx = context.WithoutCancel(ctx)
		}
	}
	_, err = r.clearIfStale(name)
	return err
}
