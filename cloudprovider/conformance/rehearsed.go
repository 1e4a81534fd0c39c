package conformance

import (
	"context"
	"time"

	"github.com/muster-dev/muster/cloudprovider/rehearsal"
)

// rehearsed launches and terminates machines as muster cloud-check does, and checks that its proof that nothing is left is right.
func rehearsed(s *suite) {
	s.need("Stop")
	l := rehearsal.Launch{
		Group: s.Group, Machines: 3, Token: "uid-1", Patience: timeout,
		Pause:  func(_ context.Context, d time.Duration) { s.Pass(d); <-time.After(time.Millisecond) },
		Report: func(step rehearsal.Step) { s.Logf("%s took %s: %s", step.Name, step.Took, step.Says) },
	}
	if err := l.Run(s.Context(), s.provider); err != nil {
		s.Errorf("the rehearsal failed: %v", err)
	}
	s.wantAlive("none", []string{})
}
