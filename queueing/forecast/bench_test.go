package forecast

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// BenchmarkForecast is a forecast for so many Workloads that wait in three queues of a
// cohort for 64 GPUs, of so many kinds, with what history has of them. The target for
// 1,000 is under a second on a core of 2026: 0.5 and 1.0 s of CPU were seen on one that
// others used, too. Compare runs with
//
//	go test ./queueing/forecast -run none -bench Forecast -count 6 | tee new.txt; benchstat old.txt new.txt
func BenchmarkForecast(b *testing.B) {
	for _, n := range []struct{ pending, kinds int }{{1000, 12}, {1000, 1000}, {10_000, 12}} {
		b.Run(fmt.Sprintf("pending=%d/kinds=%d", n.pending, n.kinds), func(b *testing.B) {
			objects := []metav1.Object{flavor("spot")}
			for i := range 3 {
				name := fmt.Sprintf("team-%d", i)
				objects = append(objects, queue(name, "spot=64", inCohort("all")), localQueue(name, name))
			}
			h := &History{}
			for i := range n.pending {
				k := i % n.kinds
				like := func(name string) *kueue.Workload {
					return job(name, int32(1+k%16), inQueue(fmt.Sprintf("team-%d", k%3)), of(fmt.Sprintf("image-%d", k)),
						created(noon.Add(time.Duration(i-n.pending)*time.Second)))
				}
				for j := range 10 {
					if i < n.kinds {
						h.Observe(ran(like(fmt.Sprintf("past-%d-%d", i, j)), time.Duration(5+j*k%60)*time.Minute))
					}
				}
				objects = append(objects, like(fmt.Sprintf("w-%d", i)))
			}
			s := stateOf(objects...)
			var report Report
			for b.Loop() {
				report = Forecast(s, h, noon, 30*24*time.Hour)
			}
			starts := 0
			for _, e := range report.Estimates {
				if !e.Start.IsZero() {
					starts++
				}
			}
			b.ReportMetric(float64(starts), "starts/op")
		})
	}
}
