package queueing

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/lifecycle"
)

// TestBackfillDelaysNoReservation runs random jobs of equal priority through queues that backfill. The published start of a job can
// become earlier, never later, and the job starts by then.
func TestBackfillDelaysNoReservation(t *testing.T) {
	said, around, seeds := 0, 0, cases(500)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 6))
		w := newWorld()
		for _, name := range []string{"spot", "ondemand"} {
			w.set(flavor(name, nil))
		}
		quotas := fmt.Sprintf("spot cpu=%d gpu=%d\nondemand cpu=%d gpu=%d", 4+r.IntN(9), r.IntN(5), r.IntN(9), r.IntN(5))
		w.set(clusterQueue(t, "team", map[string]string{"backfill": ""}, quotas))
		w.set(localQueueTo("main", "team", ""))
		ends := &running{}
		promised := map[string]time.Time{}
		runs := map[string]time.Duration{}
		for created := 0; created < 60 || ends.Len() > 0; {
			next := w.now.Add(time.Duration(r.IntN(60)) * time.Second)
			if created < 60 && (ends.Len() == 0 || next.Before((*ends)[0].at)) {
				w.now = next
				limit := 1 + r.IntN(300)
				args := map[string]string{"cpu": fmt.Sprint(r.IntN(6)), "gpu": fmt.Sprint(r.IntN(3)), "count": fmt.Sprint(1 + r.IntN(2)),
					"max": fmt.Sprint(limit)}
				name := fmt.Sprintf("w-%d", created)
				if runs[name] = time.Duration(1+r.IntN(limit)) * time.Second; r.IntN(10) == 0 {
					delete(args, "max")
				}
				w.set(w.workload(t, name, args))
				created++
			} else {
				w.now = (*ends)[0].at
				w.change(t, "finish", heap.Pop(ends).(ending).name)
			}
			for verdicts := w.s.Cycle(w.now); len(verdicts) > 0; verdicts = w.s.Cycle(w.now) {
				for i := range verdicts {
					v := &verdicts[i]
					name := v.Workload.Object.Name
					if _, text, ok := strings.Cut(v.Message, "it can start at "); ok && v.Action == lifecycle.Wait {
						at, err := time.Parse(time.RFC3339, strings.TrimSuffix(text, " at the latest"))
						if err != nil {
							t.Fatal(err)
						}
						if before, ok := promised[name]; ok && at.After(before) {
							t.Errorf("seed %d: %s was to start at %s, and now at %s", seed, name, before, at)
						}
						promised[name] = at
						said++
					}
					if v.Action == lifecycle.Reserve {
						heap.Push(ends, ending{w.now.Add(runs[name]), name, w.now})
						if at, ok := promised[name]; ok && w.now.After(at) {
							t.Errorf("seed %d: %s was to start at %s, and did at %s", seed, name, at, w.now)
						}
						delete(promised, name)
						if len(promised) > 0 {
							around++
						}
					}
					w.apply(v, nil)
				}
			}
		}
		for _, x := range cache.ByName(w.s.Workloads) {
			if x.Phase == cache.Pending && x.Reason != kueue.WorkloadQuotaReservedReasonExceedsMaxQuota {
				t.Errorf("seed %d: %s waits in an empty queue: %s: %s", seed, x.Object.Name, x.Reason, x.Message)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if said < 2*int(seeds) || around < 2*int(seeds) {
		t.Errorf("%d times said and %d jobs started around: too few to prove anything", said, around)
	}
}
