package simulation

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestACallThatWaitsIsNoRest: the process is not restarted before the API server has answered, though no timer is set.
func TestACallThatWaitsIsNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(0, faults{})
		ended := make(chan struct{})
		close(ended)
		p := &process{informers: &informers{store: s.store}, kill: func() {}, ended: ended}
		answer := make(chan error, 1)
		go func() { answer <- p.call(&call{key: "a call", effect: nothing}) }()
		synctest.Wait()
		s.muster = p
		s.rest()
		if err := <-answer; err != nil {
			t.Errorf("the call fails: %v", err)
		}
		at := func(what string) int {
			return slices.IndexFunc(s.trace, func(line string) bool { return strings.HasSuffix(line, what) })
		}
		if call, rest := at("a call"), at("muster is at rest and restarts"); call < 0 || rest < call {
			t.Errorf("the trace is:\n%s", strings.Join(s.trace, "\n"))
		}
		s.end()
	})
}
