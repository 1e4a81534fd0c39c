package forecast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// coming are jobs like the given one that were created one after the other, from so long
// ago until so long ago.
func coming(like func(name string) *kueue.Workload, every, from, until time.Duration) (out []*kueue.Workload) {
	for ago := from; ago > until; ago -= every {
		w := like(fmt.Sprintf("came-%s-ago", ago))
		created(noon.Add(-ago))(w)
		out = append(out, w)
	}
	return out
}

func seen(list ...*kueue.Workload) *History {
	h := &History{}
	for _, w := range list {
		h.Arrived(w)
	}
	return h
}

func TestHowOftenTheyCome(t *testing.T) {
	like := func(name string) *kueue.Workload { return job(name, 1) }
	tests := []struct {
		name string
		past []*kueue.Workload
		want time.Duration
	}{
		{"one an hour", coming(like, time.Hour, 20*time.Hour, 0), time.Hour},
		{"of many the latest count", coming(like, time.Minute, 20*time.Hour, 0), time.Minute},
		{"what was long ago counts for less", append(coming(like, time.Hour, 48*time.Hour, 24*time.Hour), coming(like, 4*time.Hour, 24*time.Hour, 0)...), 150 * time.Minute},
		{"the time before the first of them counts if others came in it", append(coming(like, time.Hour, 2*time.Hour, 0), job("other", 2, created(noon.Add(-12*time.Hour)))), 5 * time.Hour},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h := seen(tc.past...)
			s := h.streams(stateOf(), noon)
			i := slices.IndexFunc(s, func(s *arrivalStream) bool { return s.like.Object.Spec.PodSets[0].Count == 1 })
			if got := s[i].gap; got < tc.want*8/10 || got > tc.want*12/10 {
				t.Errorf("one comes every %s, want about %s", got, tc.want)
			}
			r := rand.New(rand.NewPCG(1, 2))
			r.Shuffle(len(tc.past), func(i, j int) { tc.past[i], tc.past[j] = tc.past[j], tc.past[i] })
			other := seen(tc.past...).streams(stateOf(), noon)[i]
			if other.gap != s[i].gap || other.like.Object.Name != s[i].like.Object.Name {
				t.Errorf("in another order one like %s comes every %s, want %s and %s", other.like.Object.Name, other.gap,
					s[i].like.Object.Name, s[i].gap)
			}
		})
	}
}

// TestThoseToComeAreForeseen has a job wait for another that ends in an hour, while
// others have been coming.
func TestThoseToComeAreForeseen(t *testing.T) {
	each := func(options ...func(*kueue.Workload)) func(name string) *kueue.Workload {
		return func(name string) *kueue.Workload { return job(name, 4, append(options, atMost(time.Hour))...) }
	}
	small := func(name string) *kueue.Workload { return job(name, 1, atMost(3*time.Hour)) }
	tests := []struct {
		name string
		past []*kueue.Workload
		with func(*kueue.ClusterQueue)
		// from and to are between when the start is expected.
		from, to time.Duration
	}{
		{"no arrivals", nil, nil, time.Hour, time.Hour},
		{"those of higher priority go before it", coming(each(priority(1)), 30*time.Minute, 20*time.Hour, 0), nil, 150 * time.Minute, 24 * time.Hour},
		{"those of the same priority come after it", coming(each(), 30*time.Minute, 20*time.Hour, 0), nil, time.Hour, time.Hour},
		{"small ones go around it", coming(small, 15*time.Minute, 20*time.Hour, 0), nil, 150 * time.Minute, 48 * time.Hour},
		{"but not in StrictFIFO", coming(small, 15*time.Minute, 20*time.Hour, 0), strict, time.Hour, time.Hour},
		{"those that have not come for long do not come any more", coming(each(priority(1)), 30*time.Minute, 20*time.Hour, 8*time.Hour), nil, time.Hour, time.Hour},
		{"those that came only once are not awaited for long", coming(each(priority(1)), time.Hour, time.Minute, 0), nil, time.Hour, time.Hour},
		{"the first hours of a cluster say nothing", coming(each(priority(1)), time.Minute, 170*time.Minute, 0), nil, time.Hour, time.Hour},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cq := queue("team", "spot=4")
			if tc.with != nil {
				tc.with(cq)
			}
			s := stateOf(cq, flavor("spot"), localQueue("main", "team"),
				job("first", 1, atMost(time.Hour), running(noon)), job("next", 4, created(noon.Add(-time.Minute))))
			h := seen(tc.past...)
			report := Forecast(s, h, noon, 7*24*time.Hour)
			for _, e := range report.Estimates {
				if got := e.Start.Sub(noon); got < tc.from || got > tc.to {
					t.Errorf("%s is expected to start in %s, want %s to %s", e.Workload.Name, got, tc.from, tc.to)
				}
			}
			if len(report.Estimates) != 1 {
				t.Errorf("there are %d estimates, want one: expected arrivals get none", len(report.Estimates))
			}
		})
	}
}

func TestArrivalsAreBounded(t *testing.T) {
	h := &History{}
	for i := range maxKinds + 10 {
		h.Arrived(job(fmt.Sprint(i), 1, of(fmt.Sprint(i)), created(noon.Add(time.Duration(i)*time.Second))))
	}
	for i := range 2 * maxArrivals {
		h.Arrived(job(fmt.Sprint("last-", i), 1, of("last"), created(noon.Add(time.Duration(i)*time.Hour))))
	}
	last := h.sources[arrivalSource{kindOf(job("last", 1, of("last"))), 0}]
	if len(h.sources) != maxKinds || len(last.times) != maxArrivals {
		t.Errorf("%d sources are remembered, and %d arrivals of one, want %d and %d", len(h.sources), len(last.times), maxKinds, maxArrivals)
	}
	if h.sources[arrivalSource{kindOf(job("0", 1, of("0"))), 0}] != nil {
		t.Error("the source of which one came first is remembered, and later ones are not")
	}
}

// TestWhatIsKeptOfAnArrival: what is judged of a Workload is kept, and what else makes
// it large is not.
func TestWhatIsKeptOfAnArrival(t *testing.T) {
	w := job("large", 4, priority(3), atMost(time.Hour), running(noon))
	w.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "client"}}
	w.Spec.PodSets[0].Template.Spec.Containers[0].Args = []string{"a very long command"}
	s := stateOf()
	s.Set(w)
	like := seen(w).streams(s, noon.Add(3*time.Hour))[0].like
	if o := like.Object; len(o.ManagedFields)+len(o.Spec.PodSets[0].Template.Spec.Containers[0].Args)+len(o.Status.Conditions) > 0 {
		t.Errorf("it keeps what is not needed: %+v", o)
	}
	if got, want := groupKeyOf(like), groupKeyOf(s.AllWorkloads()[0]); got != want {
		t.Errorf("it is judged as %+v, want %+v", got, want)
	}
	if kindOf(like.Object) != kindOf(w) {
		t.Error("it runs as one of another kind")
	}
}

// TestArrivalsFromManySourcesAreBounded: forty sources of one in four minutes would keep a draw busy for long.
func TestArrivalsFromManySourcesAreBounded(t *testing.T) {
	var past []*kueue.Workload
	for i := range 40 {
		past = append(past, coming(func(name string) *kueue.Workload {
			return job(fmt.Sprint(name, i), 4, of(fmt.Sprint(i)), priority(1), atMost(time.Hour))
		}, 4*time.Minute, 4*time.Hour, 0)...)
	}
	s := stateOf(queue("team", "spot=4"), flavor("spot"), localQueue("main", "team"),
		job("first", 4, atMost(time.Hour), running(noon)), job("next", 4))
	h := seen(past...)
	streams := h.streams(s, noon)
	lengths := map[types.UID]*runTime{}
	for _, w := range s.AllWorkloads() {
		lengths[w.Object.UID] = h.runTimeOf(w.Object)
	}
	f := newDraw(s, s.AllWorkloads(), streams, assumptions{number: draws - 1, runTimes: lengths, drawnRuns: map[kind][]time.Duration{}}, noon)
	f.runUntil(s.AllWorkloads()[1:], noon.Add(7*24*time.Hour))
	come := 0
	for _, n := range f.arrived {
		come += n
	}
	if come < maxArrivalsPerDraw/2 || come > 2*maxArrivalsPerDraw {
		t.Errorf("%d have come in a draw, want about %d", come, maxArrivalsPerDraw)
	}
}
