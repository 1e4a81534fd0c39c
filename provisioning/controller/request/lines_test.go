package request

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/provisioning/transaction"
)

// said returns the logged messages. Each line must name the request.
func (s *site) said() (messages []string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.logged {
		if !strings.Contains(line, `"request"="ns/gang"`) {
			s.Errorf("a line does not name the request: %s", line)
		}
		_, message, _ := strings.Cut(line, `"msg"="`)
		message, _, _ = strings.Cut(message, `"`)
		messages = append(messages, message)
	}
	return messages
}

// TestTheLogFollowsALaunch at the default verbosity, with its price.
func TestTheLogFollowsALaunch(t *testing.T) {
	play(t, func(s *site) {
		s.pricedGroup("10")
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.pass(time.Second)
		s.node("uid-1-0", "uid-1")
		s.node("uid-1-1", "uid-1")
		s.pass(time.Minute)
		s.bind("uid-1-0", "uid-1-1")
		s.pass(time.Second)
		want := []string{"An attempt begins", "Launching machines", "The cloud accepted a launch", "Capacity is booked",
			"All pods of a gang have come"}
		if diff := cmp.Diff(want, s.said()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		all := strings.Join(s.logged, "\n")
		for _, want := range []string{`"group"="gpu" "count"=2 "launch"="uid-1" "pricePerHour"="20.00"`, `"machines"=["uid-1-0" "uid-1-1"]`} {
			if !strings.Contains(all, want) {
				t.Errorf("the log does not say %s:\n%s", want, all)
			}
		}
	})
}

// TestTheLogOfALoopIsShort, and has that the request is stopped.
func TestTheLogOfALoopIsShort(t *testing.T) {
	play(t, func(s *site) {
		s.loses = true
		s.pricedGroup("10")
		s.request(transaction.ClassAtomicScaleUp, nil)
		s.loseAll(time.Minute)
		s.pass(time.Hour)
		lines := s.said()
		if n := len(lines); n > 40 {
			t.Errorf("%d lines:\n%s", n, strings.Join(lines, "\n"))
		}
		if !strings.Contains(strings.Join(lines, "\n"), "A request is stopped from buying machines") {
			t.Errorf("no line of the stop:\n%s", strings.Join(s.logged, "\n"))
		}
	})
}
