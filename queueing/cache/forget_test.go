package cache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/test/queues"
)

// TestUsageIsWhatWorkloadsHave: for any order of events of Workloads, their deletions and the responses to writes, the usage of a queue
// is that of its existing Workloads.
func TestUsageIsWhatWorkloadsHave(t *testing.T) {
	cpu := quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceCPU}
	reserved, orphaned := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := queues.New()
		w.Set(queues.Flavor("spot", nil))
		w.Set(queues.ClusterQueue(t, "team", map[string]string{}, "spot cpu=8"))
		w.Set(queues.LocalQueue("main", "team", ""))
		w.State.Cycle(w.Now)
		var open []*lifecycle.Verdict // verdicts without an answer
		answer := func(i int) {
			v := open[i]
			open = slices.Delete(open, i, i+1)
			var written *kueue.Workload
			if v.Status != nil && random.IntN(3) > 0 {
				written = v.Workload.Object.DeepCopy()
				written.Status = *v.Status.DeepCopy()
				w.Write(written)
				if w.State.Workloads[written.UID] == nil {
					orphaned++
				}
			}
			w.State.Settle(v.Workload.Object.UID, written)
		}
		for step := range 60 {
			live := cache.ByName(w.State.Workloads)
			switch op := random.IntN(5); {
			case op == 0 || len(live) == 0:
				w.Set(w.Workload(t, fmt.Sprintf("job-%d", step), map[string]string{"cpu": strconv.Itoa(1 + random.IntN(4))}))
			case op == 1 && len(open) > 0:
				answer(random.IntN(len(open)))
			case op == 2 && len(open) > 0: // the informer is ahead of the answer
				v := open[random.IntN(len(open))]
				if v.Status != nil && w.State.Workloads[v.Workload.Object.UID] != nil {
					seen := v.Workload.Object.DeepCopy()
					seen.Status = *v.Status.DeepCopy()
					w.Set(seen)
				}
			case op == 3:
				w.Delete(live[random.IntN(len(live))].Object)
			default:
				for _, v := range w.State.Cycle(w.Now) {
					if v.Acts() {
						reserved++
						open = append(open, &v)
					}
				}
			}
			want := int64(0)
			for _, x := range w.State.Workloads {
				if x.Phase == cache.Reserving {
					want += x.Usage[cpu]
				}
				if x.Phase != cache.Reserving {
					want += x.AssumedUsage[cpu]
				}
			}
			if got := w.State.Queues["team"].Node.Usage(cpu); got != want {
				t.Fatalf("seed %d, step %d: %d are in use, want %d", seed, step, got, want)
			}
		}
		for len(open) > 0 {
			answer(0)
		}
		for _, x := range cache.ByName(w.State.Workloads) {
			w.Delete(x.Object)
		}
		if left := w.State.Queues["team"].Node.Usage(cpu); left != 0 {
			t.Fatalf("seed %d: when all are gone %d are in use", seed, left)
		}
	}
	if reserved < 1000 || orphaned < 100 {
		t.Errorf("%d verdicts, %d answers for Workloads that had gone: too few to tell", reserved, orphaned)
	}
}

// TestAWorkloadThatGoesBeforeItsVerdictIsSettled takes its quota with it, whether its
// object has shown that or not: the answer to a write may come after the news of all that
// came of it, or never.
func TestAWorkloadThatGoesBeforeItsVerdictIsSettled(t *testing.T) {
	for name, tc := range map[string]struct{ seen, settled bool }{
		"before anything of it was seen":              {},
		"and the answer comes late":                   {settled: true},
		"after its quota was seen":                    {seen: true},
		"after its quota was seen, and a late answer": {seen: true, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := queues.NewWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
				UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}})
			w.Set(queues.Flavor("spot", nil))
			w.Set(queues.ClusterQueue(t, "team", map[string]string{"byusage": ""}, "spot cpu=8"))
			w.Set(queues.LocalQueue("main", "team", ""))
			first, second := w.Workload(t, "first", map[string]string{"cpu": "8"}), w.Workload(t, "second", map[string]string{"cpu": "8"})
			w.Set(first)
			verdicts := w.State.Cycle(w.Now)
			if len(verdicts) != 1 || verdicts[0].Action != lifecycle.Reserve {
				t.Fatalf("verdicts are %v, want a reservation", verdicts)
			}
			w.Set(second)
			if tc.seen {
				written := first.DeepCopy()
				written.Status = *verdicts[0].Status.DeepCopy()
				w.Set(written)
			}
			for _, v := range w.State.Cycle(w.Now) {
				if v.Action != lifecycle.Wait {
					t.Errorf("%v %s while the quota is taken", v.Action, v.Workload.Object.Name)
				}
			}
			w.Delete(first)
			if tc.settled {
				w.State.Settle(first.UID, nil)
			}
			verdicts = w.State.Cycle(w.Now)
			if len(verdicts) != 1 || verdicts[0].Action != lifecycle.Reserve || verdicts[0].Workload.Object.Name != "second" {
				t.Errorf("then the verdicts are %v, want a reservation for the second", verdicts)
			}
			cpu := quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceCPU}
			if used := w.State.Queues["team"].Node.Usage(cpu); used != 8000 {
				t.Errorf("%d thousandths of a CPU are in use, want 8000", used)
			}
		})
	}
}
