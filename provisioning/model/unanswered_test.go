package model

import (
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// TestUnansweredCalls count from their first failure until the cloud answers; calls of another attempt replace them.
func TestUnansweredCalls(t *testing.T) {
	clock, v := testingclock.NewFakePassiveClock(noon), new(version)
	m := New(clock, transaction.KnownClasses)
	m.Set(v.request("gang"))
	first, other, next := transaction.CallKey{Token: "gang-1", Group: "a"}, transaction.CallKey{Token: "gang-1", Group: "b"},
		transaction.CallKey{Token: "gang-2", Group: "a"}
	expect := func(when string, want map[transaction.CallKey]time.Duration) {
		t.Helper()
		entry, _ := m.Request("gang")
		got := m.View(m.Snapshot(m.clock.Now()), entry.Request).Unanswered
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		for call, after := range want {
			if u, ok := got[call]; !ok || !u.Since.Equal(noon.Add(after)) {
				t.Errorf("%s: %v is %+v, want one since %s after noon", when, call, u, after)
			}
		}
	}
	m.LaunchUnanswered("gang", first, errors.New("timeout"))
	clock.SetTime(noon.Add(time.Minute))
	m.LaunchUnanswered("gang", other, errors.New("timeout"))
	m.LaunchUnanswered("gang", first, &cloudprovider.Error{Class: v1alpha1.Outage})
	entry, _ := m.Request("gang")
	if got := m.View(m.Snapshot(clock.Now()), entry.Request).Unanswered[first]; got.Class != v1alpha1.Outage {
		t.Errorf("the last failure was an outage: %+v", got)
	}
	expect("two calls", map[transaction.CallKey]time.Duration{first: 0, other: time.Minute})
	m.LaunchAnswered("gang", first)
	expect("one is answered", map[transaction.CallKey]time.Duration{other: time.Minute})
	m.LaunchUnanswered("gang", next, errors.New("timeout"))
	expect("the next attempt", map[transaction.CallKey]time.Duration{next: time.Minute})
	m.LaunchAnswered("another", next)
	expect("another request is answered", map[transaction.CallKey]time.Duration{next: time.Minute})
}
