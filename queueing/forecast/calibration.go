package forecast

import (
	"slices"
	"time"
)

const (
	// fewestErrors are needed before they say how wide a range has to be.
	fewestErrors = 30
	// beforeRange and afterRange are the shares of the starts, in thousandths, that may lie
	// before a range and after it.
	beforeRange = 100
	afterRange  = 100
)

// calibration is by how much, in thousandths, the waits until both ends of a range have to
// be stretched to hold as many starts as they are meant to.
type calibration struct{ early, late int64 }

// narrowest is what ranges are stretched by at least. Draws leave out what they all take for
// granted, such as that cycles judge at once, and that turned out to be about a tenth.
var narrowest = calibration{early: 900, late: 1100}

// stretch is by how much the waits until both ends of a range should have been stretched to
// end with the start, in thousandths; 0 for an end that is beyond the horizon.
type stretch struct{ early, late int64 }

func stretchOf(e *Estimate, made, started time.Time) stretch {
	// The shortest wait is added to both, so that a second instead of none is not an
	// infinite factor.
	truth := max(0, started.Sub(made)) + shortestWait
	of := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return 1000 * truth.Milliseconds() / (max(0, at.Sub(made)) + shortestWait).Milliseconds()
	}
	out := stretch{of(e.Early), of(e.Late)}
	if out.late > 0 {
		// Rounded outwards, or a start would lie a little beyond what it has taught.
		out.late++
	}
	return out
}

// calibrate learns from the latest starts: had all ranges been stretched by this, the
// shares of the starts before and after them would have been those that are meant. It has
// no need to know what was wrong, and holds for the next ones as far as they are like these.
// It never narrows a range: among recent estimates those of early starts are known first,
// which makes starts look earlier than they are.
func calibrate(errors []misjudgement) calibration {
	var early, late []int64
	for _, m := range errors {
		if m.stretch.early > 0 {
			early = append(early, m.stretch.early)
		}
		if m.stretch.late > 0 {
			late = append(late, m.stretch.late)
		}
	}
	out := narrowest
	// The next one may fall between any two of n, or beyond them: into one of n + 1 gaps.
	if n := len(early); n >= fewestErrors {
		slices.Sort(early)
		out.early = min(out.early, early[(n+1)*beforeRange/1000-1])
	}
	if n := len(late); n >= fewestErrors {
		slices.Sort(late)
		out.late = max(out.late, late[n-(n+1)*afterRange/1000])
	}
	return out
}

// apply is the estimate with its range stretched.
func (c calibration) apply(e Estimate, made time.Time) Estimate {
	at := func(t time.Time, permille int64) time.Time {
		if t.IsZero() {
			return t
		}
		wait := (max(0, t.Sub(made)) + shortestWait) * time.Duration(permille) / 1000
		return made.Add(max(0, wait-shortestWait))
	}
	e.Early, e.Late = at(e.Early, c.early), at(e.Late, c.late)
	return e
}
