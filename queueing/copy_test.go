package queueing

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/queueing/lifecycle"
)

// TestACopyDecidesByTheObjects compares the decisions of a copied State with those of a State that was built from the same objects, and
// verifies that the copied State is unchanged.
func TestACopyDecidesByTheObjects(t *testing.T) {
	compared, seeds := 0, cases(200)
	for seed := range seeds {
		ends := map[bool]map[string]lifecycle.Action{}
		for _, copies := range []bool{true, false} {
			r := rand.New(rand.NewPCG(seed, 9))
			w := randomTree(t, r)
			for range 20 {
				w.machines["spot"], w.machines["ondemand"] = r.IntN(5), r.IntN(5)
				w.shakeMore(t, r)
				if !copies {
					w.cycles(t)
					continue
				}
				copied := w.s.WithoutWorkloads(nil)
				for _, x := range w.s.AllWorkloads() {
					copied.Join(x)
				}
				got := outcomes(copied.Cycle(w.now))
				// What LocalQueues have used since the last report is in no object.
				if w.s.Sharing == nil {
					if diff := cmp.Diff(outcomes(w.restarted().Cycle(w.now)), got); diff != "" {
						t.Fatalf("seed %d (-restarted +copy):\n%s", seed, diff)
					}
					compared += len(got)
				}
				w.cycles(t)
			}
			w.shakeMore(t, r)
			ends[copies] = outcomes(w.s.Cycle(w.now))
		}
		if diff := cmp.Diff(ends[false], ends[true]); diff != "" {
			t.Fatalf("seed %d: a State that was copied decides otherwise (-alone +copied):\n%s", seed, diff)
		}
	}
	if compared < 5*int(seeds) {
		t.Errorf("%d decisions were compared: too few to prove anything", compared)
	}
}

// restarted is a State that is fed all objects of the world.
func (w *world) restarted() *State {
	out := New(w.s.Config, w.s.plan)
	feed := func(o metav1.Object) { out.Set(o) }
	out.Nodes.TopologyCache, out.Nodes.Known = w.s.Nodes.Clone(), w.s.Nodes.Known
	for _, o := range w.s.Topologies {
		feed(o)
	}
	for name, ns := range w.s.Namespaces {
		out.Namespaces.At(name).Labels = ns.Labels
	}
	for _, o := range w.s.Flavors {
		feed(o)
	}
	for _, o := range w.s.Checks {
		feed(o)
	}
	for _, o := range w.s.Cohorts {
		feed(o)
	}
	for _, o := range w.s.ClusterQueues {
		feed(o)
	}
	for _, o := range w.s.LocalQueues {
		feed(o.Object)
	}
	for _, x := range w.s.Workloads {
		feed(x.Object)
		// Ten seconds of memory that a restart loses.
		out.Workloads[x.Object.UID].Unobtained = x.Unobtained
	}
	for _, requests := range w.s.Requests {
		for _, r := range requests {
			feed(r)
		}
	}
	out.SetCapacity(w.s.capacity)
	return out
}
