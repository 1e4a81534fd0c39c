package forecast

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxTracked bounds how many Workloads are tracked at a time; further ones are not counted.
	maxTracked = 10_000
	// maxErrors is the number of latest starts that the figures cover.
	maxErrors = 1000
	// shortestWait replaces shorter waits, because an error of a second does not matter to users.
	shortestWait = time.Minute
)

// AccuracyTracker compares estimates with actual starts. The zero value is empty. It is not safe for concurrent use.
type AccuracyTracker struct {
	tracked map[types.UID]trackedEstimate
	// errors of the latest starts, the oldest first.
	errors []estimateError
	// calibration is computed from errors; nil if there are new ones.
	calibration *calibration
}

// trackedEstimate is the first estimate for a Workload: raw as the forecast made it, and calibrated as its user saw it.
type trackedEstimate struct {
	made            time.Time
	raw, calibrated Estimate
}

type estimateError struct {
	// permille is the error of the estimate relative to the wait.
	permille int64
	within   bool
	stretch  stretch
}

// Calibrated returns the estimate to show for one that a forecast has just made: its waits are stretched by the
// calibration.
func (a *AccuracyTracker) Calibrated(e Estimate, now time.Time) Estimate {
	if a.calibration == nil {
		a.calibration = new(calibrate(a.errors))
	}
	return a.calibration.apply(e, now)
}

// Record records the first estimate of a forecast for a Workload. It ignores unknown estimates, which have no time.
func (a *AccuracyTracker) Record(uid types.UID, e Estimate, now time.Time) {
	if _, tracked := a.tracked[uid]; tracked || e.Unknown || len(a.tracked) >= maxTracked {
		return
	}
	if a.tracked == nil {
		a.tracked = map[types.UID]trackedEstimate{}
	}
	a.tracked[uid] = trackedEstimate{made: now, raw: e, calibrated: a.Calibrated(e, now)}
}

// Started records that a Workload was admitted. If it was not expected to start within the horizon, the error is the
// whole wait.
func (a *AccuracyTracker) Started(uid types.UID, at time.Time) {
	p, tracked := a.tracked[uid]
	if !tracked {
		return
	}
	delete(a.tracked, uid)
	m := estimateError{permille: 1000, within: p.calibrated.Covers(at), stretch: stretchOf(&p.raw, p.made, at)}
	if !p.calibrated.Start.IsZero() {
		m.permille = at.Sub(p.calibrated.Start).Abs().Milliseconds() * 1000 / max(at.Sub(p.made), shortestWait).Milliseconds()
	}
	if len(a.errors) == maxErrors {
		a.errors = slices.Delete(a.errors, 0, 1)
	}
	a.errors, a.calibration = append(a.errors, m), nil
}

// Forget records that a Workload will not start.
func (a *AccuracyTracker) Forget(uid types.UID) { delete(a.tracked, uid) }

// Tracked is the number of Workloads with a recorded estimate that have not started.
func (a *AccuracyTracker) Tracked() int { return len(a.tracked) }

// Accuracy is the accuracy of past estimates.
type Accuracy struct {
	// Starts is the number of compared starts; if it is zero the rest is meaningless.
	Starts int
	// MedianError is the median of |estimate − truth| ÷ wait, in thousandths.
	MedianError int64
	// Within is how many of the starts were in the estimated range, in thousandths.
	Within int64
}

// Accuracy returns the accuracy over the latest starts.
func (a *AccuracyTracker) Accuracy() Accuracy {
	n := len(a.errors)
	if n == 0 {
		return Accuracy{}
	}
	var within int64
	sizes := make([]int64, n)
	for i, m := range a.errors {
		if sizes[i] = m.permille; m.within {
			within++
		}
	}
	slices.Sort(sizes)
	return Accuracy{Starts: n, MedianError: sizes[n/2], Within: within * 1000 / int64(n)}
}
