package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
)

// zoneAway makes one zone of the cloud unreachable. Machines that boot there are not reported as ended, and a launch there fails with an
// outage. In other zones machines are launched, watched and terminated, and in this zone, too, after the outage.
func zoneAway(s *suite) {
	s.need("Away")
	there := func(token string) (machines []cloudprovider.Machine, err error) {
		s.Helper()
		s.answered("a launch in the other zone", func() {
			machines, err = s.provider.Launch(context.Background(), s.requestIn(s.Elsewhere, token, 2))
		})
		s.noFault(err)
		return machines, err
	}
	left := func(token string) []string {
		return slices.DeleteFunc(s.left(token), func(name string) bool { return s.seen[name].Hold })
	}
	terminateThere := func(names ...string) {
		s.Helper()
		if err := s.provider.Terminate(context.Background(), s.Elsewhere.Name, names); err != nil {
			s.Errorf("terminate %v: %v", names, err)
		}
	}
	var far []cloudprovider.Machine
	s.await("the launch in the other zone", func() (made bool) {
		var err error
		far, err = there("far-1")
		return err == nil
	})
	s.await("its machines are reported", func() bool { return len(left("far-1")) == 2 })

	end := s.Away()
	for range 3 {
		if _, err := there("far-2"); err == nil {
			s.Error("a launch succeeds in a zone that is away")
		}
		s.Pass(10 * step)
	}
	near := s.mustLaunch("uid-1", 2)
	s.await("those in the zone that answers are reported", func() bool { return len(left("uid-1")) == 2 })
	began := time.Duration(0)
	s.awaitFor(3*timeout, step, "it lasts", func() bool {
		if a, b := left("uid-1"), left("far-1"); len(a) != 2 || len(b) != 2 {
			s.Fatalf("while the other zone is away, %v and %v are reported, want two of each", a, b)
		}
		began += step
		return began > 2*timeout
	})
	s.terminate(near...)
	s.await("the end of those in the zone that answers is reported", func() bool { return s.gone(near[0]) && s.gone(near[1]) })
	if b := left("far-1"); len(b) != 2 {
		s.Errorf("after that %v are reported of the zone that is away, want two", b)
	}

	end()
	var again []cloudprovider.Machine
	s.await("another launch there", func() bool { // the earlier launch may have been refused for good
		var err error
		again, err = there("far-3")
		return err == nil
	})
	if len(again) != 2 {
		s.Errorf("%d machines were launched once the zone was back, want 2", len(again))
	}
	terminateThere(names(append(far, again...))...)
	s.await("nothing is left there", func() bool {
		if late := left("far-2"); len(late) > 0 {
			terminateThere(late...)
		}
		return len(left("far-1"))+len(left("far-2"))+len(left("far-3")) == 0
	})
	s.wantAlive("none", []string{})
}
