package forecast

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/workload"
)

// Arrivals tells when Workloads are expected to start that come together at a later
// time, up to the horizon from then; nothing of those that are finished. The State is not
// changed. Rest is called as in Paced: there are no estimates, and ok is false, if it reports false.
func Arrivals(state *queueing.State, history *History, newcomers []*kueue.Workload, at, now time.Time, horizon time.Duration,
	rest func() bool) (out []Estimate, ok bool) {
	newcomers = Arriving(newcomers, at)
	together := Copy(state)
	indexes := make(map[types.UID]int, len(newcomers))
	for i, w := range newcomers {
		together.Set(w)
		indexes[w.UID] = i
	}
	lengths := map[types.UID]*length{}
	var there, waiting, coming []*cache.Workload
	for _, w := range together.AllWorkloads() {
		if workload.IsFinished(w.Object) {
			continue
		}
		lengths[w.Object.UID] = history.lengthOf(w.Object)
		if _, ok := indexes[w.Object.UID]; ok {
			coming = append(coming, w)
			continue
		}
		there = append(there, w)
		if !workload.IsAdmitted(w.Object) && workload.IsActive(w.Object) {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(coming, func(a, b *cache.Workload) int { return cmp.Compare(indexes[a.Object.UID], indexes[b.Object.UID]) })
	streams, launches := history.streams(state, now), history.launchTimes()
	runs := make([]*future, draws)
	for i := range runs {
		f := newFuture(state, there, streams, believes(i, lengths, launches), now)
		f.at(at, func() {
			for _, w := range coming {
				f.come(w)
			}
		})
		f.rested = rest
		if f.unfold(slices.Concat(waiting, coming), at.Add(horizon)); f.stopped {
			return nil, false
		}
		runs[i] = f
	}
	out = make([]Estimate, len(newcomers))
	for _, w := range coming {
		out[indexes[w.Object.UID]] = estimate(w, runs)
	}
	return out, true
}

// come has a Workload that comes later than all others wait for its turn.
func (f *future) come(w *cache.Workload) {
	if !isPlain(w.Object) {
		f.join(w, nil)
		return
	}
	if f.lanes[queueOf(w.Object)] == nil {
		f.inOrder = append(f.inOrder, f.laneOf(w.Object))
	}
	f.lineOf[w.Object.UID] = f.laneOf(w.Object).come(w, likenessOf(w))
}
