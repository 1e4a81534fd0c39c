package queueing_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/test/queues"
)

// TestACopyDecidesByTheObjects compares the decisions of a copied State with those of a State that was built from the same objects, and
// verifies that the copied State is unchanged.
func TestACopyDecidesByTheObjects(t *testing.T) {
	compared, seeds := 0, queues.Cases(200)
	for seed := range seeds {
		ends := map[bool]map[string]lifecycle.Action{}
		for _, copies := range []bool{true, false} {
			r := rand.New(rand.NewPCG(seed, 9))
			w := randomTree(t, r)
			for range 20 {
				w.Machines["spot"], w.Machines["ondemand"] = r.IntN(5), r.IntN(5)
				shakeMore(w, t, r)
				if !copies {
					w.Cycles(t)
					continue
				}
				copied := w.State.WithoutWorkloads(nil)
				for _, x := range w.State.AllWorkloads() {
					copied.Join(x)
				}
				got := queues.Outcomes(copied.Cycle(w.Now))
				// What LocalQueues have used since the last report is in no object.
				if w.State.Sharing == nil {
					if diff := cmp.Diff(queues.Outcomes(w.Restarted().Cycle(w.Now)), got); diff != "" {
						t.Fatalf("seed %d (-restarted +copy):\n%s", seed, diff)
					}
					compared += len(got)
				}
				w.Cycles(t)
			}
			shakeMore(w, t, r)
			ends[copies] = queues.Outcomes(w.State.Cycle(w.Now))
		}
		if diff := cmp.Diff(ends[false], ends[true]); diff != "" {
			t.Fatalf("seed %d: a State that was copied decides otherwise (-alone +copied):\n%s", seed, diff)
		}
	}
	if compared < 5*int(seeds) {
		t.Errorf("%d decisions were compared: too few to prove anything", compared)
	}
}
