package conformance

import (
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider/rehearsal"
)

// rehearsed launches and terminates machines as muster cloud-check does, and checks that its proof that nothing is left is right.
func rehearsed(s *suite) {
	s.need("Stop")
	l := rehearsal.Launch{
		Group: s.Group, Machines: 3, Token: "uid-1", Patience: timeout,
		Clock:  passing{clocktesting.NewFakeClock(time.Now()), s.Pass},
		Report: func(step rehearsal.Step) { s.Logf("%s took %s: %s", step.Name, step.Took, step.Says) },
	}
	if err := l.Run(s.Context(), s.provider); err != nil {
		s.Errorf("the rehearsal failed: %v", err)
	}
	s.wantAlive("none", []string{})
}

// passing is a clock that advances with that of the cloud whenever a caller waits.
type passing struct {
	*clocktesting.FakeClock
	pass func(time.Duration)
}

// After implements clock.Clock.
func (c passing) After(d time.Duration) <-chan time.Time {
	c.pass(d)
	c.Step(d)
	return time.After(time.Millisecond) // the watch of the adapter runs meanwhile
}
