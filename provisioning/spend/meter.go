package spend

import (
	"math"
	"math/bits"
	"time"
)

// Meter adds up the spend at a rate that changes. The zero value has no spend and no rate.
type Meter struct {
	// At is until when MicroUSD, in millionths of a USD, is counted.
	At       time.Time
	MicroUSD int64
	// MicroUSDPerHour is the rate from then on.
	MicroUSDPerHour int64
	// rest is the remainder below a millionth of a USD, in millionths of a USD per hour times milliseconds, so that frequent reads lose
	// nothing.
	rest uint64
}

// HourMilliseconds is an hour in milliseconds.
const HourMilliseconds = uint64(time.Hour / time.Millisecond)

// Until returns the meter at that time. A clock that was set back adds nothing.
func (m Meter) Until(now time.Time) Meter {
	ms := now.Sub(m.At).Milliseconds()
	if ms <= 0 {
		return m
	}
	m.At = m.At.Add(time.Duration(ms) * time.Millisecond)
	hi, lo := bits.Mul64(uint64(ms), uint64(max(0, m.MicroUSDPerHour)))
	lo, carry := bits.Add64(lo, m.rest, 0)
	if hi += carry; hi >= HourMilliseconds {
		m.MicroUSD = math.MaxInt64
		return m
	}
	whole, rest := bits.Div64(hi, lo, HourMilliseconds)
	m.rest = rest
	m.MicroUSD += int64(min(whole, uint64(math.MaxInt64-m.MicroUSD)))
	return m
}

// Rated returns the meter with another rate from that time on.
func (m Meter) Rated(microUSDPerHour int64, now time.Time) Meter {
	m = m.Until(now)
	m.MicroUSDPerHour = microUSDPerHour
	return m
}
