package multikueue

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/queueing/dispatch"
)

var rounds = flag.Int("rounds", 0, "how many jobs TestCompareDispatchers runs, one after another, in each of its scenes; 0 skips it")

// TestCompareDispatchers measures the dispatcher of -dispatcher: what is billed in clusters that a job does not run in, and how long
// it takes to be admitted. One run for each:
//
//	go test ./test/multikueue -run TestCompareDispatchers -v -rounds 5 -workers 3 -dispatcher kueue.x-k8s.io/multikueue-dispatcher-all-at-once
func TestCompareDispatchers(t *testing.T) {
	if *rounds == 0 {
		t.Skip("-rounds is 0")
	}
	for _, scene := range []struct {
		name  string
		holds func(worker int) int32
	}{
		{"all have machines", func(int) int32 { return 64 }},
		{"the first is stocked out", func(worker int) int32 { return int32(min(worker, 1) * 64) }},
	} {
		t.Run(strings.ReplaceAll(scene.name, " ", "-"), func(t *testing.T) {
			var holds []int32
			for i := range workers {
				holds = append(holds, scene.holds(i))
			}
			s := newSite(t, holds...)
			var waited, billed, moved time.Duration
			for i := range *rounds {
				began := time.Now()
				j := s.job(fmt.Sprint("train-", i), 4)
				ran := ""
				s.Within(10*time.Minute, "admission of "+j.Name, func() bool {
					w := s.Workload(j)
					if w != nil && w.Status.ClusterName != nil {
						ran = *w.Status.ClusterName
					}
					return ran != ""
				}, func() string { return s.standing(j) })
				waited += time.Since(began)
				if w := s.Workload(j); w != nil {
					if r, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation]); err == nil && len(r.Refusals) > 0 {
						moved += r.At.Sub(r.Refusals[len(r.Refusals)-1].At)
					}
				}
				s.Within(10*time.Minute, "end of "+j.Name, func() bool { return s.IsComplete(j) }, func() string { return s.standing(j) })
				s.Within(10*time.Minute, "machines gone", func() bool { return spending.idle(s.Name) }, func() string { return "" })
				billed += spending.billed(s.Name, slices.Index(clusterNames(), ran))
				spending.forget(s.Name)
			}
			n := time.Duration(*rounds)
			t.Logf("%s, %s: admitted after %s, %s after a refusal the next cluster was asked, %s machine-seconds in other clusters, a job of 4 machines",
				*dispatcherName, scene.name, (waited / n).Round(10*time.Millisecond), (moved / n).Round(10*time.Millisecond),
				(billed / n).Round(10*time.Millisecond))
		})
	}
}
