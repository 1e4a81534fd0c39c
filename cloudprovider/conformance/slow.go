package conformance

import (
	"context"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// SlowClock is the clock of a simulated cloud with slow calls. It signals when a call starts to wait.
type SlowClock struct {
	*clocktesting.FakeClock
	waits chan struct{}
}

// NewSlowClock returns a SlowClock with the time of the given clock.
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

// During makes a slow call. While the call waits, it runs list repeatedly, and advances the clock by a step after each. If list makes
// a slow call, too, the clock advances until neither waits.
func (c *SlowClock) During(call, list func(), step time.Duration) {
	called := begin(call)
	var listed <-chan struct{}
	for called != nil || listed != nil {
		select {
		case <-called:
			called = nil
		case <-c.waits:
			if listed == nil {
				listed = begin(list)
				break
			}
			for c.HasWaiters() {
				c.Step(step)
			}
		case <-listed:
			listed = nil
			if c.HasWaiters() {
				c.Step(step)
			}
			if c.HasWaiters() {
				listed = begin(list)
			}
		}
	}
}

// begin runs f in a goroutine, and closes the channel when it returns.
func begin(f func()) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		f()
	}()
	return out
}

// slow makes a slow call. Meanwhile the watch reports only machines that may belong to the launch.
func slow(s *suite) {
	s.need("Slow")
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

// overtaken terminates what is seen of a launch while its call lasts, as after the deletion of its request. The group is not to blame: the
// call may return that its machines are gone, and nothing that a person must fix.
func overtaken(s *suite) {
	s.need("Slow")
	s.Slow(time.Minute)
	var came []cloudprovider.Machine
	var err error
	launched := begin(func() { came, err = s.provider.Launch(context.Background(), s.request("uid-1", 4)) })
	var taken <-chan struct{}
	s.await("the call is answered", func() bool {
		if holds := s.left("uid-1"); taken == nil && len(holds) > 0 {
			taken = begin(func() { _ = s.provider.Terminate(context.Background(), s.Group.Name, holds) }) // it may have to be repeated
		}
		select {
		case <-taken:
			taken = nil
		case <-launched:
			return taken == nil
		default:
		}
		return false
	})
	if refused := cloudprovider.Refusal(err); refused != nil && refused.Class != v1alpha1.Lost {
		s.Errorf("a launch that is terminated while its call lasts is told as the refusal %v", refused)
	}
	s.terminate(names(came)...)
	s.await("nothing is left", func() bool {
		s.terminate(s.left("uid-1")...)
		return len(s.Alive()) == 0
	})
	s.giveUp("uid-1", nil)
	s.wantAlive("none", []string{})
}
