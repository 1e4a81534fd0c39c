package forecast

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestHistoryDistinguishesKinds(t *testing.T) {
	past := func(name string) *kueue.Workload { return job(name, 4) }
	many := slices.Repeat([]int{10}, minRunsOfQueue)
	tests := []struct {
		name    string
		history *History
		of      *kueue.Workload
		// want is how many runs are found, and of what.
		want string
	}{
		{"runs of the same template are those of the kind", historyOf(past, 10, 20, 30), job("new", 4), "3 of its kind"},
		{"names, labels and arguments make no other kind", historyOf(past, 10, 20, 30), job("new", 4, func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Labels = map[string]string{"job-name": "new"}
			w.Spec.PodSets[0].Template.Spec.Containers[0].Args = []string{"--seed=7"}
		}), "3 of its kind"},
		{"another number of pods is another kind, in the same queue", historyOf(past, many...), job("new", 5), "12 of its queue"},
		{"another image is another kind", historyOf(past, many...), job("new", 4, of("infer")), "12 of its queue"},
		{"another kind of job is another kind", historyOf(past, many...), job("new", 4, func(w *kueue.Workload) { w.OwnerReferences[0].Kind = "JobSet" }), "12 of its queue"},
		{"three runs of others say nothing", historyOf(past, 10, 20, 30), job("new", 5), "0"},
		{"another queue knows nothing", historyOf(past, 10, 20, 30), job("new", 4, inQueue("other")), "0"},
		{"two runs say nothing", historyOf(past, 10, 20), job("new", 4), "0"},
		{"without a history nothing is known", nil, job("new", 4), "0"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			kind, runs := tc.history.known(kindOf(tc.of))
			got := fmt.Sprint(len(runs))
			switch {
			case len(runs) == 0:
			case kind.template == 0:
				got += " of its queue"
			default:
				got += " of its kind"
			}
			if got != tc.want {
				t.Errorf("known are %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHistoryCountsWhatRan(t *testing.T) {
	pending := job("pending", 4)
	neverRan := job("never-ran", 4)
	neverRan.Status = ran(job("x", 4), time.Hour).Status
	neverRan.Status.Conditions = neverRan.Status.Conditions[2:] // Finished alone
	again := ran(job("again", 4), time.Hour)
	again.Status.AccumulatedPastExecutionTimeSeconds = new(int32(600))

	replaced := ran(job("replaced", 4), time.Minute) // its job goes on in another slice
	apimeta.FindStatusCondition(replaced.Status.Conditions, kueue.WorkloadFinished).Reason = kueue.WorkloadSliceReplaced

	h := &History{}
	for _, w := range []*kueue.Workload{pending, neverRan, replaced, again, again} {
		h.Observe(w)
	}
	runs := h.kinds[kindOf(again)].list
	if len(runs) != 1 || runs[0].took != 70*time.Minute {
		t.Errorf("runs are %v, want one of 1h10m: what ran, once, all its admissions together", runs)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := &History{}
	first := job("first", 1, of("first"))
	for i := range 2 * maxRuns {
		h.Observe(ran(job(fmt.Sprintf("first-%d", i), 1, of("first")), time.Duration(i)*time.Minute))
	}
	if runs := h.kinds[kindOf(first)].list; len(runs) != maxRuns || runs[0].took != maxRuns*time.Minute {
		t.Errorf("%d runs are remembered, the oldest of %s: want the latest %d", len(runs), runs[0].took, maxRuns)
	}
	for i := range 2 * maxKinds {
		h.Observe(ran(job(fmt.Sprintf("other-%d", i), 1, of(fmt.Sprint(i))), time.Minute))
	}
	if len(h.kinds) != maxKinds {
		t.Errorf("%d kinds are remembered, want %d", len(h.kinds), maxKinds)
	}
	if h.kinds[kindOf(first)] != nil || h.kinds[kindOf(job("last", 1, of(fmt.Sprint(2*maxKinds-1))))] == nil {
		t.Error("a kind that ended lately was forgotten before one that did not")
	}
}

func TestACopyOfTheHistoryStaysAsItIs(t *testing.T) {
	h := historyOf(func(name string) *kueue.Workload { return job(name, 4) }, 10, 20, 30)
	before := h.Copy()
	h.Observe(ran(job("new", 4), time.Hour))
	h.Observe(ran(job("other", 5), time.Hour))
	if got := len(before.kinds[kindOf(job("x", 4))].list); got != 3 || len(before.kinds) != 2 {
		t.Errorf("the copy knows %d runs of the kind and %d kinds, want 3 and 2", got, len(before.kinds))
	}
}

func TestAccount(t *testing.T) {
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	tests := []struct {
		name     string
		estimate Estimate
		started  time.Duration
		want     Accuracy
	}{
		{"a start at the time that was told", Estimate{Start: after(time.Hour), Early: after(time.Hour), Late: after(time.Hour)}, time.Hour, Accuracy{1, 0, 1000}},
		{"half an hour late after an hour and a half", Estimate{Start: after(time.Hour), Early: after(time.Hour), Late: after(80 * time.Minute)}, 90 * time.Minute, Accuracy{1, 333, 0}},
		{"half an hour early", Estimate{Start: after(time.Hour), Early: after(20 * time.Minute), Late: after(2 * time.Hour)}, 30 * time.Minute, Accuracy{1, 1000, 1000}},
		{"a range that is open covers all that is late", Estimate{Start: after(time.Hour), Early: after(20 * time.Minute)}, 4 * time.Hour, Accuracy{1, 750, 1000}},
		{"what was never to start is wrong by the whole wait", Estimate{}, time.Hour, Accuracy{1, 1000, 0}},
		{"a second of a wait of two is no error of a half", Estimate{Start: after(time.Second), Early: noon, Late: after(time.Minute)}, 2 * time.Second, Accuracy{1, 16, 1000}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			a := &AccuracyTracker{}
			a.Record("w", tc.estimate, noon)
			a.Record("w", Estimate{Start: after(999 * time.Hour)}, noon) // the first one counts
			a.Record("gone", tc.estimate, noon)
			a.Forget("gone")
			a.Started("gone", noon)
			a.Started("w", after(tc.started))
			a.Started("w", after(999*time.Hour)) // again, after an eviction
			a.Started("untold", noon)
			if got := a.Accuracy(); got != tc.want {
				t.Errorf("accuracy is %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAccountIsBounded(t *testing.T) {
	a := &AccuracyTracker{}
	for i := range 2 * maxTracked {
		a.Record(job(fmt.Sprint(i), 1).UID, Estimate{Start: noon, Early: noon, Late: noon}, noon)
	}
	if len(a.tracked) != maxTracked {
		t.Errorf("%d workloads are followed, want %d", len(a.tracked), maxTracked)
	}
	for i := range maxTracked {
		at := noon
		if i < maxTracked-maxErrors {
			at = noon.Add(time.Hour)
		}
		a.Started(job(fmt.Sprint(i), 1).UID, at)
	}
	if got, want := a.Accuracy(), (Accuracy{maxErrors, 0, 1000}); got != want {
		t.Errorf("accuracy is %+v, want that of the latest: %+v", got, want)
	}
}
