package loop

import (
	"testing"
	"time"
)

func TestRestsGrowUnderLoad(t *testing.T) {
	r := resting{shortest: shortestRest}
	var under time.Duration
	n := 0
	for ; r.after(0) < busyRest; n++ {
		if under += r.after(0); n > 1000 {
			t.Fatalf("rests are %s after %d that ended with events", r.after(0), n)
		}
		r.ended(true)
	}
	if under < 500*time.Millisecond || under > 3*time.Second {
		t.Errorf("rests are %s after %s of load, in %d", busyRest, under, n)
	}
	rests := func(when string, after map[time.Duration]time.Duration) {
		for took, want := range after {
			if got := r.after(took); got != want {
				t.Errorf("after a step of %s %s it rests %s, want %s", took, when, got, want)
			}
		}
	}
	rests("under load", map[time.Duration]time.Duration{0: busyRest, 10 * time.Millisecond: 190 * time.Millisecond, time.Second: longestRest})
	r.ended(false)
	rests("without", map[time.Duration]time.Duration{0: shortestRest, 2 * time.Millisecond: 38 * time.Millisecond, time.Second: longestRest})
	// The start of one job is a handful of events in a row.
	for range 5 {
		r.ended(true)
	}
	if got := r.after(0); got > 30*time.Millisecond {
		t.Errorf("after 5 events in a row it rests %s", got)
	}
}
