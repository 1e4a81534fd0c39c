package forecast

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// mostPromises bounds how many Workloads are followed at a time; of those beyond,
	// nothing is counted.
	mostPromises = 10_000
	// mostErrors is over how many of the latest starts the figures are.
	mostErrors = 1000
	// shortestWait is what a shorter wait counts as, since an error of a second does not
	// matter to users.
	shortestWait = time.Minute
)

// Account compares estimates with what came true. Its zero value has seen none. It is
// not safe for concurrent use.
type Account struct {
	promises map[types.UID]promise
	// errors of the latest starts, the oldest first.
	errors []misjudgement
	// learned from them; nil if there have been new ones since.
	learned *calibration
}

// promise is the first estimate that was made for a Workload: told is what its user was
// told, drawn what the forecast said.
type promise struct {
	made        time.Time
	drawn, told Estimate
}

type misjudgement struct {
	// permille of the wait by which the estimate was wrong.
	permille int64
	within   bool
	stretch  stretch
}

// Calibrated is what to tell of an estimate that a forecast has made now: its waits are
// stretched by what the latest starts say.
func (a *Account) Calibrated(e Estimate, now time.Time) Estimate {
	if a.learned == nil {
		a.learned = new(calibrate(a.errors))
	}
	return a.learned.apply(e, now)
}

// Told notes an estimate as a forecast made it, of which users were told what Calibrated
// made of it, unless there has been one for the Workload. One that is unknown tells no time.
func (a *Account) Told(uid types.UID, e Estimate, now time.Time) {
	if _, told := a.promises[uid]; told || e.Unknown || len(a.promises) >= mostPromises {
		return
	}
	if a.promises == nil {
		a.promises = map[types.UID]promise{}
	}
	a.promises[uid] = promise{made: now, drawn: e, told: a.Calibrated(e, now)}
}

// Started says that a Workload was admitted. What was not to start at all within the
// horizon counts as wrong by the whole wait.
func (a *Account) Started(uid types.UID, at time.Time) {
	p, told := a.promises[uid]
	if !told {
		return
	}
	delete(a.promises, uid)
	m := misjudgement{permille: 1000, within: p.told.Covers(at), stretch: stretchOf(&p.drawn, p.made, at)}
	if !p.told.Start.IsZero() {
		m.permille = at.Sub(p.told.Start).Abs().Milliseconds() * 1000 / max(at.Sub(p.made), shortestWait).Milliseconds()
	}
	if len(a.errors) == mostErrors {
		a.errors = slices.Delete(a.errors, 0, 1)
	}
	a.errors, a.learned = append(a.errors, m), nil
}

// Gone says that a Workload will not start any more.
func (a *Account) Gone(uid types.UID) { delete(a.promises, uid) }

// Followed is how many Workloads have been told of that have not started yet.
func (a *Account) Followed() int { return len(a.promises) }

// Accuracy is how good estimates were.
type Accuracy struct {
	// Starts is how many it is about; with none the rest means nothing.
	Starts int
	// MedianError is the median of |estimate − truth| ÷ wait, in thousandths.
	MedianError int64
	// Within is how many of the starts lay in the range that was given, in thousandths.
	Within int64
}

// Accuracy is that of the latest starts.
func (a *Account) Accuracy() Accuracy {
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
