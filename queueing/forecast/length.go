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
	// A run of which nothing is known takes between shortestRun and longestRun, any
	// order of magnitude as likely as another, and in one draw it never ends.
	shortestRun = 4 * time.Minute
	longestRun  = 16 * time.Hour
)

// length is what is known of how long a Workload runs, all its admissions together.
type length struct {
	// kind and runs are those of the history; no runs where it knows too little.
	kind kind
	runs []run
	// limit is the maximum execution time; negative without one.
	limit time.Duration
}

func (h *History) lengthOf(w *kueue.Workload) *length {
	l := &length{limit: -1}
	if s := w.Spec.MaximumExecutionTimeSeconds; s != nil {
		l.limit = time.Duration(*s) * time.Second
	}
	l.kind, l.runs = h.known(kindOf(w))
	return l
}

// unknown reports whether nothing is known.
func (l *length) unknown() bool { return len(l.runs) == 0 && l.limit < 0 }

// belief is what one draw takes to be true.
type belief struct {
	number uint64
	// endless: runs of which nothing is known never end.
	endless bool
	lengths map[types.UID]*length
	// runs by kind, the shortest first. Each draw believes in a history of its own,
	// which as many runs picked from the true one make up: few runs say little about the
	// next, and all Workloads of the kind are misjudged together.
	runs map[kind][]time.Duration
	// launches are the times of launches by group, the shortest first.
	launches map[string][]time.Duration
}

// believes is what the draw of a number does; the last one has what is unknown never end.
func believes(number int, lengths map[types.UID]*length, launches map[string][]time.Duration) belief {
	return belief{
		number: uint64(number), endless: number == draws-1, lengths: lengths, runs: map[kind][]time.Duration{}, launches: launches,
	}
}

// total is how long a Workload runs that has run for so long.
func (b *belief) total(uid types.UID, elapsed time.Duration) time.Duration {
	l, luck := b.lengths[uid], b.chance(string(uid))
	total := l.limit
	switch {
	case l.unknown() && b.endless:
		return forEver
	case len(l.runs) > 0:
		total = outlasting(b.believed(l), elapsed, luck)
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

// outlasting picks one of the runs that took longer than what has elapsed.
func outlasting(sorted []time.Duration, elapsed time.Duration, luck float64) time.Duration {
	i, _ := slices.BinarySearch(sorted, elapsed+1)
	if i == len(sorted) {
		return asLongAgain(elapsed, luck)
	}
	return sorted[i+int(luck*float64(len(sorted)-i))]
}

// asLongAgain draws the length of a run that has outlasted all runs of the History. It may
// take up to as long again as it has run.
func asLongAgain(elapsed time.Duration, luck float64) time.Duration {
	return elapsed + time.Duration(luck*float64(elapsed))
}

func (b *belief) believed(l *length) []time.Duration {
	if out := b.runs[l.kind]; out != nil {
		return out
	}
	r := rand.New(rand.NewPCG(b.number, l.kind.template^hashOf(l.kind.queue.String())))
	out := make([]time.Duration, len(l.runs))
	for i := range out {
		out[i] = l.runs[r.IntN(len(l.runs))].took
	}
	slices.Sort(out)
	b.runs[l.kind] = out
	return out
}

// chance is a number from 0 to 1 that only the draw and the name decide, so that
// nothing depends on the order of questions, and the next forecast draws alike.
func (b *belief) chance(name string) float64 {
	return rand.New(rand.NewPCG(b.number, hashOf(name))).Float64()
}

func hashOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}
