package scheduler_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// BenchmarkFullQueue is one cycle in which nothing can be admitted. The target
// for 10,000 pending is 50 ms on a core of 2026. Compare runs with
//
//	go test ./queueing/scheduler -run none -bench FullQueue -count 6 | tee new.txt; benchstat old.txt new.txt
func BenchmarkFullQueue(b *testing.B) {
	for _, shapes := range []int{1, 100} {
		for _, pending := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("pending=%d/shapes=%d", pending, shapes), func(b *testing.B) {
				w := queues.New()
				t := new(testing.T)
				w.Set(queues.Flavor("spot", nil))
				w.Set(queues.Flavor("ondemand", nil))
				w.Set(queues.ClusterQueue(t, "team", nil, "spot cpu=1\nondemand cpu=1"))
				w.Set(queues.LocalQueue("main", "team", ""))
				for i := range pending {
					w.Set(w.Workload(t, fmt.Sprintf("w-%d", i), map[string]string{"cpu": fmt.Sprint(2 + i%shapes)}))
				}
				w.State.Cycle(w.Now)
				b.ResetTimer()
				for b.Loop() {
					w.State.Trees[0].QuotaReleased = true
					w.State.Cycle(w.Now)
				}
			})
		}
	}
}

// BenchmarkManyQueues has so many Workloads wait in a hundredth as many queues, 20
// to a cohort, all full. A cycle is one in which a Workload has ended and another
// has its place; rebuild is one after an object other than a Workload has changed.
func BenchmarkManyQueues(b *testing.B) {
	for _, pending := range []int{10_000, 100_000} {
		w := queues.New()
		t := new(testing.T)
		w.Set(queues.Flavor("spot", nil))
		number := pending / 100
		for i := range number {
			name := fmt.Sprintf("queue-%d", i)
			w.Set(queues.ClusterQueue(t, name, map[string]string{"cohort": fmt.Sprintf("cohort-%d", i/20), "reclaim": "Any",
				"within": "LowerPriority"}, "spot cpu=10"))
			w.Set(queues.LocalQueue(name, name, ""))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range pending + number {
			w.Set(w.Workload(t, fmt.Sprintf("w-%d", i), map[string]string{"lq": fmt.Sprintf("queue-%d", i%number), "cpu": "10",
				"priority": fmt.Sprint(i % 3)}))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		objects := float64(after.HeapAlloc-before.HeapAlloc) / float64(pending)
		for verdicts := w.State.Cycle(w.Now); len(verdicts) > 0; verdicts = w.State.Cycle(w.Now) {
			for i := range verdicts {
				if verdicts[i].Acts() {
					w.Apply(&verdicts[i], nil)
				}
			}
		}
		b.Run(fmt.Sprintf("pending=%d/cycle", pending), func(b *testing.B) {
			q := 0
			for b.Loop() {
				q++
				for _, x := range w.State.Order[q%number].WithQuota {
					object := x.Object.DeepCopy()
					object.Status = *workload.Finished(object, "Succeeded", "done", w.Now)
					w.Set(object)
				}
				for _, v := range w.State.Cycle(w.Now) {
					if v.Acts() {
						w.Apply(&v, nil)
					}
				}
			}
			b.ReportMetric(objects, "B/workload")
		})
		b.Run(fmt.Sprintf("pending=%d/rebuild", pending), func(b *testing.B) {
			for b.Loop() {
				w.State.Outdated = true
				w.State.Cycle(w.Now)
			}
		})
	}
}
