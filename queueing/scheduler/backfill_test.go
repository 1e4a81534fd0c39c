package scheduler_test

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
	"github.com/muster-dev/muster/test/queues"
)

// TestBackfillDelaysNoReservation runs random jobs of equal priority through queues that backfill. The published start of a job can
// become earlier, never later, and the job starts by then.
func TestBackfillDelaysNoReservation(t *testing.T) {
	said, around, seeds := 0, 0, queues.Cases(500)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 6))
		w := queues.New()
		for _, name := range []string{"spot", "ondemand"} {
			w.Set(queues.Flavor(name, nil))
		}
		quotas := fmt.Sprintf("spot cpu=%d gpu=%d\nondemand cpu=%d gpu=%d", 4+r.IntN(9), r.IntN(5), r.IntN(9), r.IntN(5))
		w.Set(queues.ClusterQueue(t, "team", map[string]string{"backfill": ""}, quotas))
		w.Set(queues.LocalQueue("main", "team", ""))
		ends := &running{}
		promised := map[string]time.Time{}
		runs := map[string]time.Duration{}
		for created := 0; created < 60 || ends.Len() > 0; {
			next := w.Now.Add(time.Duration(r.IntN(60)) * time.Second)
			if created < 60 && (ends.Len() == 0 || next.Before((*ends)[0].at)) {
				w.Now = next
				limit := 1 + r.IntN(300)
				args := map[string]string{"cpu": fmt.Sprint(r.IntN(6)), "gpu": fmt.Sprint(r.IntN(3)), "count": fmt.Sprint(1 + r.IntN(2)),
					"max": fmt.Sprint(limit)}
				name := fmt.Sprintf("w-%d", created)
				if runs[name] = time.Duration(1+r.IntN(limit)) * time.Second; r.IntN(10) == 0 {
					delete(args, "max")
				}
				w.Set(w.Workload(t, name, args))
				created++
			} else {
				w.Now = (*ends)[0].at
				w.Change(t, "finish", heap.Pop(ends).(ending).name)
			}
			for verdicts := w.State.Cycle(w.Now); len(verdicts) > 0; verdicts = w.State.Cycle(w.Now) {
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
						heap.Push(ends, ending{w.Now.Add(runs[name]), name, w.Now})
						if at, ok := promised[name]; ok && w.Now.After(at) {
							t.Errorf("seed %d: %s was to start at %s, and did at %s", seed, name, at, w.Now)
						}
						delete(promised, name)
						if len(promised) > 0 {
							around++
						}
					}
					w.Apply(v, nil)
				}
			}
		}
		for _, x := range cache.ByName(w.State.Workloads) {
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
