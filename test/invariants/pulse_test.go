package invariants

import (
	"testing"
	"time"
)

// TestPulse: reads of the length take a beat's time from the cluster in proportion.
func TestPulse(t *testing.T) {
	for _, tc := range []struct {
		name     string
		read     time.Duration
		answered bool
		// lost of three reads that begin a beat after the last ended, and during the last of them.
		lost, during time.Duration
	}{
		{"prompt", prompt, true, 0, 0},
		{"four times as slow", 4 * prompt, true, 2 * 900 * time.Millisecond * 3 / 4, 900*time.Millisecond*3/4 + 800*time.Millisecond*2/3},
		{"slower than all", 20 * prompt, true, 2 * 2500 * time.Millisecond * 9 / 10, 2500*time.Millisecond*9/10 + 2400*time.Millisecond*9/10},
		{"not answered", 4 * prompt, false, 0, 800 * time.Millisecond * 2 / 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p pulse
			var during time.Duration
			now := start
			for range 3 {
				p.begin(now)
				during = p.behind(now.Add(tc.read - prompt))
				now = now.Add(tc.read)
				p.end(now, tc.answered)
				now = now.Add(beat)
			}
			near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond }
			if got := p.behind(now); !near(got, tc.lost) {
				t.Errorf("the cluster is behind by %s, want %s", got, tc.lost)
			}
			if !near(during, tc.during) {
				t.Errorf("it was behind by %s before the last answer, want %s", during, tc.during)
			}
		})
	}
}
