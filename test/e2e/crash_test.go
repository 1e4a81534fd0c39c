package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// kills is how often muster is killed in each story: here at moments spread over the
// course of a job that takes about three seconds, in which its gang is launched, boots,
// joins, is booked, runs and is given back. test/simulation kills it at every write.
var kills = flag.Int("kills", 4, "how often muster is killed in each story of a test that kills it")

// recovery is how long muster may take to be back at work: its start, and the
// pause of the sandbox before it.
const recovery = 5 * time.Second

// The seed is fixed, so that a failure can be looked for at the same moments.
const seed = 2026

func TestKillingMusterLosesNothing(t *testing.T) {
	s := newSite(t)
	random := rand.New(rand.NewPCG(seed, seed))
	holds := int32(3)
	spot := s.group("-spot", func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType, g.Spec.Kwok.Holds = v1alpha1.Spot, &holds })
	steady := s.group("-steady", nil)
	s.queue(spot, steady)
	step := 3 * time.Second / time.Duration(*kills)
	for i := range *kills {
		after := time.Duration(i)*step + time.Duration(random.Int64N(int64(step)))
		s.Logf("killing muster %s after the job's creation", after)
		j := s.job(fmt.Sprintf("job-%d", i), 4, nil)
		killed := time.NewTimer(after)
		<-killed.C
		watcher.StandStill(time.Now().Add(recovery))
		if err := running.Kill(cluster.Muster); err != nil {
			t.Fatal(err)
		}
		s.complete(j)
		s.empty(spot.Name)
		s.empty(steady.Name)
		if err := running.WaitReady(t.Context(), cluster.Muster); err != nil {
			t.Fatal(err)
		}
	}
}
