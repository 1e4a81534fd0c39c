package forecast

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
)

// TestWorkloadsThatTheLaneJudges puts a job of 4 pods in a LocalQueue and another one behind
// it, and checks which of them are judged.
func TestWorkloadsThatTheLaneJudges(t *testing.T) {
	later := created(noon)
	selecting := func(w *kueue.Workload) {
		w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	}
	memory := func(amount string) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(amount)
		}
	}
	atLeast := func(n int32) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Spec.PodSets[0].MinCount = &n }
	}
	for name, tt := range map[string]struct {
		first []func(*kueue.Workload)
		other *kueue.Workload
		// both says that the other may start while the first waits.
		both bool
	}{
		"one that is alike comes after it":                 {other: job("other", 4, later)},
		"one of more pods waits as long":                   {other: job("other", 5, later)},
		"one of fewer pods may fit":                        {other: job("other", 3, later), both: true},
		"one that asks for another resource waits as long": {other: job("other", 4, later, memory("1Gi"))},
		"one that asks for less of a resource may fit":     {first: []func(*kueue.Workload){memory("2Gi")}, other: job("other", 5, later, memory("1Gi")), both: true},
		"one of other machines may find them":              {other: job("other", 4, later, selecting), both: true},
		"one of a lower priority has fewer victims, but they are others": {
			first: []func(*kueue.Workload){priority(1)}, other: job("other", 4, later), both: true},
		"one that ends sooner may go around it": {
			first: []func(*kueue.Workload){atMost(2 * time.Hour)}, other: job("other", 4, later, atMost(time.Hour)), both: true},
		"one that may take longer waits as long":             {first: []func(*kueue.Workload){atMost(time.Hour)}, other: job("other", 4, later)},
		"one that is content with fewer pods may fit":        {other: job("other", 5, later, atLeast(1)), both: true},
		"behind one that is content with fewer, any may fit": {first: []func(*kueue.Workload){atLeast(1)}, other: job("other", 5, later, atLeast(1)), both: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(job("first", 4, tt.first...), tt.other)
			for i := range alwaysEvaluated - 1 {
				s.Set(job(fmt.Sprint("ahead-", i), int32(1+i), priority(9)))
			}
			l := &pendingQueue{groups: map[groupKey]*workloadGroup{}}
			lines := map[string]*workloadGroup{}
			for _, w := range s.AllWorkloads() {
				lines[w.Object.Name] = l.add(w)
			}
			l.order()
			judged := func() (names []string) {
				for w := l.next(); w != nil; w = l.next() {
					if priorityOf(w.Object) < 9 {
						names = append(names, w.Object.Name)
					}
				}
				return names
			}
			want := []string{"first"}
			if tt.both {
				want = append(want, "other")
			}
			if got := judged(); !slices.Equal(got, want) {
				t.Errorf("judged are %v, want %v", got, want)
			}
			l.remove(lines["first"], "uid-first")
			if got := judged(); tt.both != (len(got) == 0) {
				t.Errorf("once the first has started, %v are judged", got)
			}
		})
	}
}

// TestAHigherPriorityIsJudgedAtOnce, however many are judged already. A Workload that comes
// after them waits for room.
func TestAHigherPriorityIsJudgedAtOnce(t *testing.T) {
	s := stateOf()
	for i := range maxEvaluated + 2 {
		s.Set(job(fmt.Sprint("w-", i), int32(100-i), created(noon.Add(time.Duration(i)*time.Second))))
	}
	s.Set(job("high", 100, priority(1), created(noon.Add(time.Hour))))
	s.Set(job("low", 1, created(noon.Add(time.Hour))))
	l := &pendingQueue{groups: map[groupKey]*workloadGroup{}}
	var high, low *cache.Workload
	for _, w := range s.AllWorkloads() {
		switch w.Object.Name {
		case "high":
			high = w
		case "low":
			low = w
		default:
			l.add(w)
		}
	}
	l.order()
	judged := 0
	for l.next() != nil {
		judged++
	}
	if judged != maxEvaluated {
		t.Fatalf("%d are judged, want %d", judged, maxEvaluated)
	}
	l.addLast(low, groupKeyOf(low))
	if w := l.next(); w != nil {
		t.Errorf("%s is judged, though there is no room and it comes last", w.Object.Name)
	}
	l.addLast(high, groupKeyOf(high))
	if w := l.next(); w != high {
		t.Errorf("judged is %v, want the one of high priority", w)
	}
}
