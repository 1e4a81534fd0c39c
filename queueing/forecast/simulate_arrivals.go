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

// Arrivals returns when Workloads that arrive together at a later time are expected to start, up to the horizon from
// then. It does not change the State. rest is called as in Paced: if it returns false there are no estimates, and ok is
// false.
func Arrivals(state *queueing.State, history *History, submissions []*kueue.Workload, at, now time.Time, horizon time.Duration,
	rest func() bool) (out []Estimate, ok bool) {
	submissions = Arriving(submissions, at)
	together := Copy(state)
	indexes := make(map[types.UID]int, len(submissions))
	for i, w := range submissions {
		together.Set(w)
		indexes[w.UID] = i
	}
	lengths := map[types.UID]*runTime{}
	var there, waiting, coming []*cache.Workload
	for _, w := range together.AllWorkloads() {
		if workload.IsFinished(w.Object) {
			continue
		}
		lengths[w.Object.UID] = history.runTimeOf(w.Object)
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
	runs := make([]*draw, draws)
	for i := range runs {
		f := newDraw(state, there, streams, newAssumptions(i, lengths, launches), now)
		f.at(at, func() {
			for _, w := range coming {
				f.addLater(w)
			}
		})
		f.afterCycle = rest
		if f.runUntil(slices.Concat(waiting, coming), at.Add(horizon)); f.stopped {
			return nil, false
		}
		runs[i] = f
	}
	out = make([]Estimate, len(submissions))
	for _, w := range coming {
		out[indexes[w.Object.UID]] = estimate(w, runs)
	}
	return out, true
}

// addLater adds a Workload that arrives after all others.
func (f *draw) addLater(w *cache.Workload) {
	if !isPlain(w.Object) {
		f.join(w, nil)
		return
	}
	if f.queues[queueOf(w.Object)] == nil {
		f.inOrder = append(f.inOrder, f.pendingQueueOf(w.Object))
	}
	f.groupOf[w.Object.UID] = f.pendingQueueOf(w.Object).addLast(w, groupKeyOf(w))
}
