package spend

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// noon is when all meters begin.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestAMeterLosesNothing compares meters that are read at random times, and whose rate
// changes, with fractions.
func TestAMeterLosesNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		m, exact := Meter{At: noon}, new(big.Int)
		now := noon
		for range 2000 {
			step := time.Duration(r.IntN(50)) * time.Millisecond
			if r.IntN(100) == 0 {
				step = time.Duration(r.IntN(100)) * time.Hour
			}
			now = now.Add(step)
			exact.Add(exact, new(big.Int).Mul(big.NewInt(step.Milliseconds()), big.NewInt(m.MicroUSDPerHour)))
			m = m.Until(now)
			if r.IntN(3) == 0 {
				m = m.Rated(r.Int64N(1e9), now)
			}
		}
		if want := new(big.Int).Div(exact, big.NewInt(3_600_000)).Int64(); m.MicroUSD != want || !m.At.Equal(now) {
			t.Fatalf("seed %d: the meter shows %d at %s, want %d at %s", seed, m.MicroUSD, m.At, want, now)
		}
	}
}

func TestTheBoundsOfAMeter(t *testing.T) {
	for _, tc := range []struct {
		name  string
		meter Meter
		after time.Duration
		want  int64
	}{
		{"an hour at a USD an hour", Meter{At: noon, MicroUSDPerHour: 1e6}, time.Hour, 1e6},
		{"a clock that was set back", Meter{At: noon, MicroUSDPerHour: 1e6, MicroUSD: 7}, -time.Hour, 7},
		{"less than a millisecond is kept for later", Meter{At: noon, MicroUSDPerHour: math.MaxInt64}, 999 * time.Microsecond, 0},
		{"more than it can show", Meter{At: noon, MicroUSDPerHour: math.MaxInt64}, 1000 * time.Hour, math.MaxInt64},
		{"more than it can show beside what it shows", Meter{At: noon, MicroUSDPerHour: 1e6, MicroUSD: math.MaxInt64 - 5}, time.Hour, math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.meter.Until(noon.Add(tc.after)).MicroUSD; got != tc.want {
				t.Errorf("it shows %d, want %d", got, tc.want)
			}
		})
	}
}
