package forecast

import (
	"slices"
	"time"
)

const (
	// minErrors is the number of errors that a calibration requires.
	minErrors = 30
	// beforeRange and afterRange are the intended shares of starts before and after a range, in thousandths.
	beforeRange = 100
	afterRange  = 100
)

// calibration is how much the waits until both ends of a range are stretched, in thousandths, so that ranges contain
// the intended share of starts.
type calibration struct{ early, late int64 }

// narrowest is the minimum stretch. Draws ignore what all of them assume, such as that cycles evaluate at once.
// Measurements showed an error of about a tenth.
var narrowest = calibration{early: 900, late: 1100}

// stretch is how much the waits until both ends of a range would have to be stretched to end at the start, in
// thousandths; 0 for an end beyond the horizon.
type stretch struct{ early, late int64 }

func stretchOf(e *Estimate, made, started time.Time) stretch {
	// The shortest wait is added to both, so that a second instead of zero is not an infinite factor.
	truth := max(0, started.Sub(made)) + shortestWait
	of := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return 1000 * truth.Milliseconds() / (max(0, at.Sub(made)) + shortestWait).Milliseconds()
	}
	out := stretch{of(e.Early), of(e.Late)}
	if out.late > 0 {
		// Round outwards, so that the start itself is in the stretched range.
		out.late++
	}
	return out
}

// calibrate returns the stretch with which the ranges of the latest starts would have had the intended shares of starts
// before and after them. It makes no assumption about the cause of the errors, and holds for future starts that are
// similar. It never narrows a range: of recent estimates, those of early starts are known first, which makes starts
// look earlier than they are.
func calibrate(errors []estimateError) calibration {
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
	// The next start may be between any two of n, or beyond them: in one of n + 1 gaps.
	if n := len(early); n >= minErrors {
		slices.Sort(early)
		out.early = min(out.early, early[(n+1)*beforeRange/1000-1])
	}
	if n := len(late); n >= minErrors {
		slices.Sort(late)
		out.late = max(out.late, late[n-(n+1)*afterRange/1000])
	}
	return out
}

// apply returns the estimate with a stretched range.
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
