package simulation

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/test/invariants/promises"
)

var (
	runs   = flag.Int("runs", 100, "how many random scenarios are simulated")
	from   = flag.Uint64("from", 0, "the seed of the first random scenario, where many are simulated in parts")
	replay = flag.Int64("seed", -1, "simulate the random scenario of this seed alone, and print its trace with -v")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// One thread: goroutines that a step wakes run one after the other, and nothing
	// is gained by more, since all wait for the simulator.
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// result is what came of one run.
type result struct {
	trace    []string
	features map[string]bool
	problems []string
	points   []string
	// digest is how the scenario ended.
	digest  []string
	scatter scatter
}

// simulate runs the random scenario of a seed.
func simulate(t *testing.T, seed uint64) result { return simulateScenario(t, seed, 0, nil) }

// simulateScenario runs the random scenario of a seed, in which the clock jumps in so many of a thousand steps. A theme changes what is
// generated; nil for none.
func simulateScenario(t *testing.T, seed uint64, jumps int, theme func(*generator)) (r result) {
	synctest.Test(t, func(*testing.T) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newSimulator(seed, randomFaults(random))
		s.jumps = jumps
		g := &generator{world: s.world, random: random, start: time.Now()}
		if theme != nil {
			theme(g)
		}
		g.generate()
		s.run(time.Now().Add(scenarioTime))
		s.faults = faults{staleness: time.Second}
		s.run(time.Now().Add(calm + time.Duration(jumps)*farthest))
		s.rest()
		r = s.end()
	})
	return r
}

// end stops muster and says what came of the run.
func (s *simulator) end() result {
	r := result{trace: s.trace, features: s.features, points: s.points, digest: s.digest(), scatter: s.scatter}
	if s.muster != nil {
		s.awaitEnd(0)
	}
	s.checker.Finish(time.Now())
	if s.checker.Stats().Judged[promises.ProvisionsInDomain] > 0 {
		s.feature("request Provisioned in one rack")
	}
	for _, v := range s.checker.Violations() {
		r.problems = append(r.problems, v.String())
	}
	if s.failure != nil {
		r.problems = append(r.problems, s.failure.Error())
	}
	if len(r.problems) == 0 {
		r.problems = s.left()
	}
	if s.unrest != "" {
		r.problems = append(r.problems, s.unrest)
	}
	if s.scatter.worst > mostScattered {
		r.problems = append(r.problems,
			fmt.Sprintf("a machine in another rack was billed for %s after that was known, while muster was up; the bound is %s",
				s.scatter.worst, mostScattered))
	}
	return r
}

// required are the features that the random scenarios must show between them. What no scenario shows is not tested.
var required = []string{
	"Accepted=True Accepted",
	"Provisioned=Unknown ProvisioningInProgress", "Provisioned=False CapacityIsNotFound",
	"Provisioned=True CapacityIsFound", "Provisioned=True CapacityIsProvisioned",
	"Failed=True CapacityIsNotFound", "Failed=True Expired", "Failed=True FailedToCreatePods",
	"BookingExpired=True CapacityBookingConsumed", "BookingExpired=True CapacityReservationTimeExpired",
	"attempt Launching", "attempt RollingBack", "attempt Done", "attempt in several groups", "attempt shares machines", "second attempt", "machine replaced",
	"rollback because of Stockout", "rollback because of Quota", "rollback because of Throttle", "rollback because of Auth", "rollback because of Outage",
	"rollback because of Config", "rollback because of Timeout", "rollback because of Lost", "rollback leaves a machine to pods of others",
	"cordon joining", "cordon booked", "cordon scaling-down", "node booked by several",
	"machine BootFailed", "machine SpotReclaimed", "machine BrokenDown", "machine terminated",
	"request deleted", "request deleted in flight", "request made again", "template deleted", "group deleted", "group limited",
	"human cordon", "human uncordon", "node not ready", "node lost", "node annotated", "pod failed", "pod made again", "stranger on a node",
	"node with an undeclared taint", "devices vanished", "node outlives its machine", "node without a machine deleted",
	"crash", "crash in a call", "watch broken", "conflict", "not found",
	"object touched", "timeout", "throttled", "answer lost", "late effect",
}

func TestRandomScenarios(t *testing.T) {
	shown := playRandom(t, func(seed uint64) result { return simulate(t, seed) })
	wantShown(t, shown, required...)
	logShown(t, shown)
}

// playRandom plays the random scenarios, and returns how many of them show each feature. With -seed it plays that of the seed alone, prints
// its trace, and skips the rest of the test.
func playRandom(t *testing.T, play func(seed uint64) result) (shown map[string]int) {
	t.Helper()
	if *replay >= 0 {
		r := play(uint64(*replay))
		t.Log("The trace:\n" + strings.Join(r.trace, "\n"))
		r.report(t, uint64(*replay), 0)
		t.SkipNow()
	}
	shown = map[string]int{}
	tail := 60
	for seed := *from; seed < *from+uint64(max(1, *runs)); seed++ {
		r := play(seed)
		r.report(t, seed, tail)
		if len(r.problems) > 0 {
			tail = max(0, tail-20) // the first lines are the history of the shown ones
		}
		for f := range r.features {
			shown[f]++
		}
	}
	return shown
}

// wantShown fails the test if no scenario shows one of the features. Few scenarios need not show them all.
func wantShown(t *testing.T, shown map[string]int, features ...string) {
	t.Helper()
	for _, f := range features {
		if shown[f] == 0 && *runs >= 500 {
			t.Errorf("no scenario shows this feature: %s", f)
		}
	}
}

// logShown logs which part of the scenarios shows each feature.
func logShown(t *testing.T, shown map[string]int) {
	t.Helper()
	var table strings.Builder
	for _, f := range slices.Sorted(maps.Keys(shown)) {
		fmt.Fprintf(&table, "\n%6.1f%% %s", 100*float64(shown[f])/float64(*runs), f)
	}
	t.Logf("Of %d scenarios, these show:%s", *runs, table.String())
}

// report fails the test if something is wrong with the scenario of a seed.
func (r result) report(t *testing.T, seed uint64, steps int) {
	t.Helper()
	if len(r.problems) > 0 {
		t.Errorf("seed %d: %s\nThe end of its trace:\n%s\nReplay it: go test ./test/simulation -run '%s$' -v -seed %d",
			seed, strings.Join(r.problems, "\n"), strings.Join(r.trace[max(0, len(r.trace)-steps):], "\n"), t.Name(), seed)
	}
}

// inRacks is the theme of gangs that must be in one rack.
func inRacks(a *generator) { a.inRacks = true }

// byClaim is the theme of gangs that claim devices.
func byClaim(a *generator) { a.withClaims = true }

// TestRandomScenariosByClaim: drivers publish the devices of machines, and pods claim them. Pools are late, incomplete, empty or one short,
// devices get taints, and slices vanish under pods, with all faults of other scenarios. A request that is Provisioned has devices.
func TestRandomScenariosByClaim(t *testing.T) {
	shown := playRandom(t, func(seed uint64) result { return simulateScenario(t, seed, 0, byClaim) })
	wantShown(t, shown,
		"Provisioned=True CapacityIsFound", "Provisioned=True CapacityIsProvisioned", "BookingExpired=True CapacityBookingConsumed",
		"attempt in several groups", "attempt shares machines", "machine replaced", "rollback because of Timeout", "node booked by several",
		"claim allocated", "devices of a booking judged", "device tainted", "rule taints devices", "generation bumped", "slices vanished",
		"slices vanished under pods", "driver fault empty", "driver fault short", "driver fault two books", "crash", "crash in a call",
		"watch broken")
	logShown(t, shown)
}

// TestRandomScenariosByClaimInRacks: gangs that claim devices must be in one rack, as GPUs of one NVLink clique are. A gang is in one rack
// and has its devices, or has no machine.
func TestRandomScenariosByClaimInRacks(t *testing.T) {
	theme := func(a *generator) { a.inRacks, a.withClaims = true, true }
	shown := playRandom(t, func(seed uint64) result { return simulateScenario(t, seed, 0, theme) })
	wantShown(t, shown,
		"request Provisioned in one rack", "pod bound in one rack", "devices of a booking judged", "claim allocated",
		"slices vanished under pods",
		"rollback because of Scattered", "gang repaired")
}

// TestRandomScenariosInRacks: gangs must be in one rack, and clouds spread their machines over uneven racks, report racks late, and lose
// racks, with all faults of other scenarios. A gang is in one rack or has no machine. Machines elsewhere are terminated at once.
func TestRandomScenariosInRacks(t *testing.T) {
	var all scatter
	shown := playRandom(t, func(seed uint64) result {
		r := simulateScenario(t, seed, 0, inRacks)
		all.machines, all.total, all.worst = all.machines+r.scatter.machines, all.total+r.scatter.total, max(all.worst, r.scatter.worst)
		return r
	})
	wantShown(t, shown,
		"request Provisioned in one rack", "pod bound in one rack", "machine of another rack terminated",
		"rollback because of Scattered", "rollback because of Timeout", "machine replaced",
		"Provisioned=True CapacityIsProvisioned", "BookingExpired=True CapacityBookingConsumed", "crash", "crash in a call",
		"gang under repair", "gang repaired", "gang repaired in any rack", "slice lost as a whole, and gang repaired",
		"machine for a gang that has begun", "gang stopped after a repair began", "CapacityRevoked=True MachineLost")
	t.Logf("gangs under repair in %d scenarios, repaired in %d, stopped in %d, stopped at once in %d", shown["gang under repair"],
		shown["gang repaired"],
		shown["gang stopped after a repair began"], shown["CapacityRevoked=True MachineLost"]-shown["gang stopped after a repair began"])
	if all.machines > 0 {
		t.Logf("%d scenarios: %d machines were in another rack and terminated, after %s on average and %s at most; pods in one rack in %d, "+
			"scattered for good in %d",
			*runs, all.machines, (all.total / time.Duration(all.machines)).Round(time.Millisecond), all.worst.Round(time.Millisecond),
			shown["pod bound in one rack"], shown["rollback because of Scattered"])
	}
}

// TestRandomScenariosOfSharers: where nothing goes wrong, no attempt is given up, however gangs share machines. But one may be where a gang
// has found room without a machine that it launched: it takes that back, also if others count on it.
func TestRandomScenariosOfSharers(t *testing.T) { sharers(t, nil) }

// TestRandomScenariosOfSharersByClaim is the same of gangs that claim devices.
func TestRandomScenariosOfSharersByClaim(t *testing.T) { sharers(t, byClaim) }

func sharers(t *testing.T, theme func(*generator)) {
	t.Helper()
	play := func(seed uint64) (r result) {
		synctest.Test(t, func(*testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newSimulator(seed, faults{staleness: 200 * time.Millisecond})
			g := &generator{world: s.world, random: random, start: time.Now()}
			if theme != nil {
				theme(g)
			}
			g.generateSharers()
			s.run(time.Now().Add(scenarioTime + calm))
			r = s.end()
		})
		if r.features["attempt RollingBack"] && !r.features["machine of a gang that has found room without"] {
			r.problems = append(r.problems, "nothing has gone wrong, and an attempt was rolled back")
		}
		return r
	}
	shown := playRandom(t, play)
	for _, f := range []string{
		"attempt shares machines", "attempt launches and shares machines", "node booked by several", "machine terminated",
	} {
		if shown[f] == 0 {
			t.Errorf("no scenario shows this feature: %s", f)
		}
	}
	t.Logf("of %d scenarios %d show gangs that share machines, %d those that launch some beside", *runs, shown["attempt shares machines"],
		shown["attempt launches and shares machines"])
}

// TestRandomScenariosWithClockJumps: the clock of muster's machine is set forwards
// and back by minutes, at any moment of launches, bookings and rollbacks.
func TestRandomScenariosWithClockJumps(t *testing.T) {
	const jumps = 3 // of a thousand steps; a scenario has some hundreds
	shown := map[string]int{}
	for seed := range uint64(max(1, *runs/4)) {
		r := simulateScenario(t, seed, jumps, nil)
		if len(r.problems) > 0 {
			t.Errorf("seed %d: %s\nThe end of its trace:\n%s", seed, strings.Join(r.problems, "\n"),
				strings.Join(r.trace[max(0, len(r.trace)-20):], "\n"))
		}
		for f := range r.features {
			shown[f]++
		}
	}
	for _, f := range []string{
		"clock set back", "clock set forwards", "attempt Launching", "attempt RollingBack", "rollback because of Timeout",
		"BookingExpired=True CapacityReservationTimeExpired", "BookingExpired=True CapacityBookingConsumed", "machine terminated", "crash",
	} {
		if shown[f] == 0 && *runs >= 500 {
			t.Errorf("no scenario shows this feature: %s", f)
		}
	}
}

func TestSeedsReplay(t *testing.T) {
	for seed := range uint64(25) {
		first, second := simulate(t, seed), simulate(t, seed)
		for i := range min(len(first.trace), len(second.trace)) {
			if first.trace[i] != second.trace[i] {
				t.Fatalf("seed %d gave two traces, which part at step %d:\n%s\n%s", seed, i, first.trace[i], second.trace[i])
			}
		}
		if len(first.trace) != len(second.trace) {
			t.Fatalf("seed %d gave two traces, of %d and of %d steps", seed, len(first.trace), len(second.trace))
		}
	}
}
