package liveness

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestSilence(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	clock := testingclock.NewFakePassiveClock(noon)
	p := New(clock)
	if got := p.Since(at(0)); !got.IsZero() {
		t.Errorf("before the first answer it is %s", got)
	}
	for _, tc := range []struct {
		answer int
		again  bool
		since  time.Time
	}{
		{0, false, time.Time{}}, {5, false, time.Time{}}, {20, false, time.Time{}}, {36, true, at(36)}, {41, false, at(36)},
		{641, true, at(641)}, {646, false, at(641)},
	} {
		clock.SetTime(at(tc.answer))
		if again := p.Answered(); again != tc.again || !p.Since(at(tc.answer)).Equal(tc.since) {
			t.Errorf("after the answer at %d s: again %t, since %s", tc.answer, again, p.Since(at(tc.answer)))
		}
	}
	if got := p.Since(at(700)); !got.Equal(at(700)) {
		t.Errorf("while it is silent it is %s, want now", got)
	}
}
