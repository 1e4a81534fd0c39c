package conformance

import (
	"context"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Harm is a fault of calls.
type Harm string

const (
	// Fails: calls have no effect, and return an internal error of the cloud.
	Fails Harm = "Fails"
	// Hangs: calls have no effect, and never return.
	Hangs Harm = "Hangs"
	// Throttled: calls have no effect, since there were too many.
	Throttled Harm = "Throttled"
	// Denied: calls have no effect, since the credentials have expired.
	Denied Harm = "Denied"
)

// Calls are the calls that a Harm affects.
type Calls string

const (
	// AllCalls of the cloud.
	AllCalls Calls = "AllCalls"
	// Reads are the calls that change nothing.
	Reads Calls = "Reads"
	// Launches are the calls that make machines.
	Launches Calls = "Launches"
)

// harm starts a Harm if the cloud supports it.
func (s *suite) harm(h Harm, calls Calls) (end func()) {
	s.need("Harm")
	return s.Harm(h, calls)
}

// answered calls once and checks how long the caller waited, by the clock of the machine: at most the Patience of the cloud, and what a
// loaded machine needs.
func (s *suite) answered(what string, call func()) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	bound := time.NewTimer(10*s.Patience + time.Minute)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
		s.Fatalf("%s is not given up though the cloud does not answer", what)
	}
}

// outage tests that an outage is no fault of the group: errors during it refuse nothing, and after it the same launch succeeds, once.
func outage(h Harm, calls Calls) func(*suite) {
	return func(s *suite) {
		end := s.harm(h, calls)
		var err error
		for range 3 {
			s.answered("a launch", func() { _, err = s.provider.Launch(context.Background(), s.request("uid-1", 4)) })
			s.noFault(err)
			s.Pass(10 * step)
		}
		if err == nil {
			s.Fatal("a launch succeeds though its calls fail")
		}
		end()
		s.wantAlive("four", s.mustLaunch("uid-1", 4))
	}
}

// noFault checks the error of a call that failed due to an outage.
func (s *suite) noFault(err error) {
	s.Helper()
	if refusal := cloudprovider.Refusal(err); refusal != nil && refusal.Class != v1alpha1.Outage {
		s.Errorf("an outage is taken for a refusal of class %s: %v", refusal.Class, refusal)
	}
}

// failingReads makes lists and reads fail after the response of a launch was lost. These failures say nothing about the launch, whose
// machines exist.
func failingReads(h Harm) func(*suite) {
	return func(s *suite) {
		s.need("LoseReply")
		s.LoseReply()
		_, err := s.provider.Launch(context.Background(), s.request("uid-1", 4))
		if cloudprovider.Refusal(err) != nil {
			s.Fatalf("a lost reply is taken for the refusal %v", err)
		}
		s.restart() // the first lists of a new leader fail
		end := s.harm(h, Reads)
		for range 3 {
			s.answered("a launch", func() { _, err = s.provider.Launch(context.Background(), s.request("uid-1", 4)) })
			if refusal := cloudprovider.Refusal(err); refusal != nil {
				s.Errorf("a read that failed is taken for a refusal of the launch: %v", refusal)
			}
			s.Pass(10 * step)
		}
		end()
		s.wantAlive("four", s.mustLaunch("uid-1", 4))
	}
}

// blinded makes the lists of the watch fail or hang for a while: nothing is reported to have ended, and afterwards the watch continues.
func blinded(h Harm) func(*suite) {
	return func(s *suite) {
		all := s.mustLaunch("uid-1", 3)
		s.await("all are reported", func() bool { return len(s.left("uid-1")) == 3 })
		end := s.harm(h, Reads)
		calls := time.NewTicker(s.Patience / 10) // they time out by the clock of the machine
		defer calls.Stop()
		for range 30 {
			s.Pass(10 * step)
			<-calls.C
		}
		s.mu.Lock()
		if left := s.left("uid-1"); len(left) != 3 {
			s.Errorf("of 3 machines the watch reports %v while the cloud cannot be listed", left)
		}
		s.mu.Unlock()
		end()
		s.terminate(all[0])
		s.await("the watch goes on", func() bool { return s.gone(all[0]) && !s.gone(all[1]) && !s.gone(all[2]) })
	}
}

// outages are the tests of outages.
var outages = []testCase{
	{"a cloud that fails refuses nothing", outage(Fails, AllCalls)},
	{"a cloud that never answers refuses nothing, and holds up nobody", outage(Hangs, AllCalls)},
	{"launches that fail by a fault of the cloud are not the group's fault", outage(Fails, Launches)},
	{"launches that are never answered are given up, and made once", outage(Hangs, Launches)},
	{"reads that fail do not refuse a launch", failingReads(Fails)},
	{"reads that are throttled do not refuse a launch", failingReads(Throttled)},
	{"reads that are denied do not refuse a launch", failingReads(Denied)},
	{"while lists fail nothing is reported to have ended", blinded(Fails)},
	{"a list that is never answered does not end the watch", blinded(Hangs)},
	{"a zone that is away stops nothing in others", zoneAway},
}
