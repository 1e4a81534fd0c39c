package queueing

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
)

// TestUsageIsWhatWorkloadsHave: for any order of events of Workloads, their deletions and the responses to writes, the usage of a queue
// is that of its existing Workloads.
func TestUsageIsWhatWorkloadsHave(t *testing.T) {
	cpu := quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceCPU}
	reserved, orphaned := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := newWorld()
		w.set(flavor("spot", nil))
		w.set(clusterQueue(t, "team", map[string]string{}, "spot cpu=8"))
		w.set(localQueueTo("main", "team", ""))
		w.s.Cycle(w.now)
		var open []*lifecycle.Verdict // verdicts without an answer
		answer := func(i int) {
			v := open[i]
			open = slices.Delete(open, i, i+1)
			var written *kueue.Workload
			if v.Status != nil && random.IntN(3) > 0 {
				written = v.Workload.Object.DeepCopy()
				written.Status = *v.Status.DeepCopy()
				w.version++
				written.ResourceVersion = strconv.Itoa(w.version)
				if w.s.Workloads[written.UID] == nil {
					orphaned++
				}
			}
			w.s.Settle(v.Workload.Object.UID, written)
		}
		for step := range 60 {
			live := cache.ByName(w.s.Workloads)
			switch op := random.IntN(5); {
			case op == 0 || len(live) == 0:
				w.set(w.workload(t, fmt.Sprintf("job-%d", step), map[string]string{"cpu": strconv.Itoa(1 + random.IntN(4))}))
			case op == 1 && len(open) > 0:
				answer(random.IntN(len(open)))
			case op == 2 && len(open) > 0: // the informer is ahead of the answer
				v := open[random.IntN(len(open))]
				if v.Status != nil && w.s.Workloads[v.Workload.Object.UID] != nil {
					seen := v.Workload.Object.DeepCopy()
					seen.Status = *v.Status.DeepCopy()
					w.set(seen)
				}
			case op == 3:
				w.s.Delete(live[random.IntN(len(live))].Object)
			default:
				for _, v := range w.s.Cycle(w.now) {
					if v.Acts() {
						reserved++
						open = append(open, &v)
					}
				}
			}
			want := int64(0)
			for _, x := range w.s.Workloads {
				if x.Phase == cache.Reserving {
					want += x.Usage[cpu]
				}
				if x.Phase != cache.Reserving {
					want += x.AssumedUsage[cpu]
				}
			}
			if got := w.s.Queues["team"].Node.Usage(cpu); got != want {
				t.Fatalf("seed %d, step %d: %d are in use, want %d", seed, step, got, want)
			}
		}
		for len(open) > 0 {
			answer(0)
		}
		for _, x := range cache.ByName(w.s.Workloads) {
			w.s.Delete(x.Object)
		}
		if left := w.s.Queues["team"].Node.Usage(cpu); left != 0 {
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
			w := newWorldWith(config.Config{AdmissionFairSharing: &kueueconfig.AdmissionFairSharing{
				UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}}})
			w.set(flavor("spot", nil))
			w.set(clusterQueue(t, "team", map[string]string{"byusage": ""}, "spot cpu=8"))
			w.set(localQueueTo("main", "team", ""))
			first, second := w.workload(t, "first", map[string]string{"cpu": "8"}), w.workload(t, "second", map[string]string{"cpu": "8"})
			w.set(first)
			verdicts := w.s.Cycle(w.now)
			if len(verdicts) != 1 || verdicts[0].Action != lifecycle.Reserve {
				t.Fatalf("verdicts are %v, want a reservation", verdicts)
			}
			w.set(second)
			if tc.seen {
				written := first.DeepCopy()
				written.Status = *verdicts[0].Status.DeepCopy()
				w.set(written)
			}
			for _, v := range w.s.Cycle(w.now) {
				if v.Action != lifecycle.Wait {
					t.Errorf("%v %s while the quota is taken", v.Action, v.Workload.Object.Name)
				}
			}
			w.s.Delete(first)
			if tc.settled {
				w.s.Settle(first.UID, nil)
			}
			verdicts = w.s.Cycle(w.now)
			if len(verdicts) != 1 || verdicts[0].Action != lifecycle.Reserve || verdicts[0].Workload.Object.Name != "second" {
				t.Errorf("then the verdicts are %v, want a reservation for the second", verdicts)
			}
			cpu := quota.FlavorResource{Flavor: "spot", Resource: corev1.ResourceCPU}
			if used := w.s.Queues["team"].Node.Usage(cpu); used != 8000 {
				t.Errorf("%d thousandths of a CPU are in use, want 8000", used)
			}
		})
	}
}
