package conformance

import (
	"context"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
)

// SlowClock is that of a simulated cloud which takes its time over calls: it tells when one begins to wait.
type SlowClock struct {
	*clocktesting.FakeClock
	waits chan struct{}
}

// NewSlowClock returns a clock of the same time.
func NewSlowClock(clock *clocktesting.FakeClock) *SlowClock {
	return &SlowClock{clock, make(chan struct{}, 1)}
}

// After implements clock.Clock.
func (c *SlowClock) After(d time.Duration) <-chan time.Time {
	out := c.FakeClock.After(d)
	select {
	case c.waits <- struct{}{}:
	default: // During will see it
	}
	return out
}

// During makes a call. While the cloud takes its time over it, others look, and after each look a step of time passes. Where a look
// makes a call that is slow, too, time passes until neither waits.
func (c *SlowClock) During(call, look func(), step time.Duration) {
	called := begin(call)
	var looked <-chan struct{}
	for called != nil || looked != nil {
		select {
		case <-called:
			called = nil
		case <-c.waits:
			if looked == nil {
				looked = begin(look)
				break
			}
			for c.HasWaiters() {
				c.Step(step)
			}
		case <-looked:
			looked = nil
			if c.HasWaiters() {
				c.Step(step)
			}
			if c.HasWaiters() {
				looked = begin(look)
			}
		}
	}
}

// begin runs f, and closes the channel when it is through.
func begin(f func()) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		f()
	}()
	return out
}

// slow makes a call that takes long: meanwhile the watch tells of nothing that cannot be the launch's.
func slow(s *suite) {
	if s.Slow == nil {
		s.Skip("the calls of this cloud cannot be slow")
	}
	s.Slow(time.Minute)
	var came []cloudprovider.Machine
	var err error
	done, again := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			came, err = s.provider.Launch(context.Background(), s.request("uid-1", 4))
			if err == nil || cloudprovider.Refusal(err) != nil {
				return
			}
			<-again
		}
	}()
	s.await("the call is answered", func() bool {
		for _, m := range s.seen {
			if m.Launch != "uid-1" && !m.Unattributed || m.Group != s.Group.Name {
				s.Errorf("while the call lasts, a machine is told that is not the launch's: %+v", m)
			}
		}
		select {
		case <-done:
			return true
		case again <- struct{}{}:
		default:
		}
		return false
	})
	if err != nil {
		s.Fatalf("a slow reply is told as the refusal %v", err)
	}
	s.wantAlive("four", names(came))
}
