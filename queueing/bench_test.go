package queueing

import (
	"fmt"
	"testing"
)

// BenchmarkFullQueue is one cycle in which nothing can be admitted. The target
// for 10,000 pending is 50 ms on a core of 2026. Compare runs with
//
//	go test ./queueing -run none -bench FullQueue -count 6 | tee new.txt; benchstat old.txt new.txt
func BenchmarkFullQueue(b *testing.B) {
	for _, shapes := range []int{1, 100} {
		for _, pending := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("pending=%d/shapes=%d", pending, shapes), func(b *testing.B) {
				w := newWorld()
				t := new(testing.T)
				w.s.Flavors = append(w.s.Flavors, flavor("spot", nil), flavor("ondemand", nil))
				w.s.ClusterQueues = append(w.s.ClusterQueues, clusterQueue(t, "team", nil, "spot cpu=1\nondemand cpu=1"))
				w.s.LocalQueues = append(w.s.LocalQueues, localQueue("main", "team", ""))
				for i := range pending {
					w.created++
					w.s.Workloads = append(w.s.Workloads, NewWorkload(w.workload(t, fmt.Sprintf("w-%d", i), map[string]string{
						"cpu": fmt.Sprint(2 + i%shapes),
					}), nil))
				}
				for i, v := range Cycle(w.s) {
					object := v.Workload.Object.DeepCopy()
					object.Status = *v.Status
					w.s.Workloads[i] = NewWorkload(object, v.Workload)
				}
				b.ResetTimer()
				for b.Loop() {
					Cycle(w.s)
				}
			})
		}
	}
}
