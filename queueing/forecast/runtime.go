package forecast

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// A run of unknown length takes between shortestRun and longestRun, log-uniformly. In one draw it never ends.
	shortestRun = 4 * time.Minute
	longestRun  = 16 * time.Hour
)

// runTime is what is known about the run time of a Workload, over all admissions.
type runTime struct {
	// kind and runs come from the history; runs is empty if there are too few.
	kind kind
	runs []run
	// limit is the maximum execution time; negative without one.
	limit time.Duration
}

func (h *History) runTimeOf(w *kueue.Workload) *runTime {
	l := &runTime{limit: -1}
	if s := w.Spec.MaximumExecutionTimeSeconds; s != nil {
		l.limit = time.Duration(*s) * time.Second
	}
	l.kind, l.runs = h.known(kindOf(w))
	return l
}

// isUnknown reports whether there is neither history nor a limit.
func (l *runTime) isUnknown() bool { return len(l.runs) == 0 && l.limit < 0 }

// assumptions are what one draw assumes.
type assumptions struct {
	number uint64
	// endless: runs of unknown length never end.
	endless  bool
	runTimes map[types.UID]*runTime
	// The runs of a kind, the shortest first. Each draw assumes a history of its own, resampled from the true one with
	// replacement: few runs say little about the next one, and an error applies to all Workloads of the kind.
	drawnRuns map[kind][]time.Duration
	// launches are the launch times by group, the shortest first.
	launches map[string][]time.Duration
}

// newAssumptions returns the assumptions of a draw. In the last draw, runs of unknown length never end.
func newAssumptions(number int, lengths map[types.UID]*runTime, launches map[string][]time.Duration) assumptions {
	return assumptions{
		number: uint64(number), endless: number == draws-1, runTimes: lengths, drawnRuns: map[kind][]time.Duration{}, launches: launches,
	}
}

// total returns the total run time of a Workload that has run for the elapsed time.
func (b *assumptions) total(uid types.UID, elapsed time.Duration) time.Duration {
	l, luck := b.runTimes[uid], b.random(string(uid))
	total := l.limit
	switch {
	case l.isUnknown() && b.endless:
		return forever
	case len(l.runs) > 0:
		total = outlasting(b.assumedRuns(l), elapsed, luck)
	case l.limit < 0 && elapsed < longestRun:
		from := float64(max(elapsed, shortestRun))
		total = time.Duration(from * math.Pow(float64(longestRun)/from, luck))
	case l.limit < 0:
		total = asLongAgain(elapsed, luck)
	}
	if l.limit >= 0 {
		total = min(total, l.limit)
	}
	return max(total, elapsed)
}

// outlasting picks one of the runs that took longer than the elapsed time.
func outlasting(sorted []time.Duration, elapsed time.Duration, luck float64) time.Duration {
	i, _ := slices.BinarySearch(sorted, elapsed+1)
	if i == len(sorted) {
		return asLongAgain(elapsed, luck)
	}
	return sorted[i+int(luck*float64(len(sorted)-i))]
}

// asLongAgain draws the length of a run that has outlasted all runs of the History: up to twice the elapsed time.
func asLongAgain(elapsed time.Duration, luck float64) time.Duration {
	return elapsed + time.Duration(luck*float64(elapsed))
}

func (b *assumptions) assumedRuns(l *runTime) []time.Duration {
	if out := b.drawnRuns[l.kind]; out != nil {
		return out
	}
	r := rand.New(rand.NewPCG(b.number, l.kind.template^hashOf(l.kind.queue.String())))
	out := make([]time.Duration, len(l.runs))
	for i := range out {
		out[i] = l.runs[r.IntN(len(l.runs))].took
	}
	slices.Sort(out)
	b.drawnRuns[l.kind] = out
	return out
}

// random returns a number from 0 to 1 that depends only on the draw and the name. So it does not depend on the order of
// calls, and the next forecast draws the same.
func (b *assumptions) random(name string) float64 {
	return rand.New(rand.NewPCG(b.number, hashOf(name))).Float64()
}

func hashOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}
