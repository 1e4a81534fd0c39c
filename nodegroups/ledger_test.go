package nodegroups

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// launch is one step of a history: n machines were requested, some time after noon.
type launch struct {
	after time.Duration
	n     int
	class v1alpha1.ErrorClass
}

// learn is the status of a group with such a history, oldest first.
func learn(history ...launch) v1alpha1.NodeGroupStatus {
	return learnMore(v1alpha1.NodeGroupStatus{}, "", history...)
}

// learnMore adds launches that had to be within one domain of the level, if there is one.
func learnMore(status v1alpha1.NodeGroupStatus, level string, history ...launch) v1alpha1.NodeGroupStatus {
	for i, l := range history {
		status = Learn(status, v1alpha1.LaunchAttempt{
			Time: metav1.NewTime(noon.Add(l.after)), Token: fmt.Sprint("gang-", level, i), Requested: int32(l.n), Class: l.class, Level: level,
			Message: "the cloud's words",
		})
	}
	return status
}

// chanceOf is the chance of n machines in such a group.
func chanceOf(status v1alpha1.NodeGroupStatus, n int, after time.Duration) int {
	return (&Group{Ledger: status.Ledger}).Chance(n, "", noon.Add(after))
}

const (
	all      v1alpha1.ErrorClass = ""
	stockout                     = v1alpha1.Stockout
	minute                       = time.Minute
)

// TestWhatOnlyAPersonMendsLeavesNoChance, also once the next launch may try again. Quota comes back with machines that end.
func TestWhatOnlyAPersonMendsLeavesNoChance(t *testing.T) {
	broken := []launch{{0, 4, v1alpha1.Timeout}, {10 * minute, 4, v1alpha1.Timeout}, {20 * minute, 4, v1alpha1.Timeout}}
	for name, tc := range map[string]struct {
		history []launch
		none    bool
	}{
		"configuration":            {[]launch{{0, 4, v1alpha1.Config}}, true},
		"credentials":              {[]launch{{0, 4, v1alpha1.Auth}}, true},
		"an image that never runs": {broken, true},
		"two timeouts":             {broken[:2], false},
		"quota":                    {[]launch{{0, 4, v1alpha1.Quota}}, false},
		"a stockout":               {[]launch{{0, 4, stockout}}, false},
		"a success after it":       {[]launch{{0, 4, v1alpha1.Config}, {10 * minute, 4, all}}, false},
	} {
		g := GroupFrom(&v1alpha1.NodeGroup{}, learn(tc.history...), 0)
		if got := g.Chance(1, "", noon.Add(time.Hour)); (got == 1) != tc.none {
			t.Errorf("%s: the chance is %d in a thousand, want none: %t", name, got, tc.none)
		}
	}
}

func TestChance(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history []launch
		// want, at the time that after says, by the size of the launch.
		after time.Duration
		want  map[int]int
	}{
		{"a fresh group is nearly sure, for all sizes alike", nil, 0, map[int]int{1: 950, 16: 950, 100_000: 950}},
		{"a stockout shows, the less the smaller the launch", []launch{{0, 16, stockout}}, 0,
			map[int]int{1: 921, 2: 894, 4: 844, 8: 760, 16: 633, 31: 633, 32: 633, 1024: 633}},
		{"half of a stockout is left after 30 minutes", []launch{{0, 16, stockout}}, 30 * minute, map[int]int{1: 935, 16: 760}},
		{"a quarter after an hour", []launch{{0, 16, stockout}}, 60 * minute, map[int]int{16: 844}},
		{"next to nothing after four", []launch{{0, 16, stockout}}, 240 * minute, map[int]int{16: 948}},
		{"nothing after a day", []launch{{0, 16, stockout}}, 24 * 60 * minute, map[int]int{16: 950}},
		{"two stockouts, of which one is a minute old", []launch{{0, 16, stockout}, {minute, 16, stockout}}, minute, map[int]int{16: 478}},
		{"five in a row, each tried when the last has had its wait", []launch{
			{0, 16, stockout}, {minute, 16, stockout}, {2 * minute, 16, stockout}, {4 * minute, 16, stockout}, {8 * minute, 16, stockout},
		}, 8 * minute, map[int]int{1: 834, 16: 294}},
		{"a success is known to be one", []launch{{0, 16, all}}, 0, map[int]int{16: 967}},
		{"a success at 16 says that 4 is obtainable", []launch{{0, 16, all}}, 0, map[int]int{1: 967, 4: 967, 16: 967}},
		{"and something of 32, less of 1024", []launch{{0, 16, all}}, 0, map[int]int{32: 960, 1024: 950}},
		{"a stockout at 4 says that 16 is not", []launch{{0, 4, stockout}}, 0, map[int]int{1: 844, 2: 760, 4: 633, 16: 633, 1024: 633}},
		{"4 came and 16 did not", []launch{{0, 4, all}, {minute, 16, stockout}}, minute, map[int]int{4: 892, 16: 661}},
		{"a success after a stockout", []launch{{0, 16, stockout}, {10 * minute, 16, all}}, 10 * minute, map[int]int{16: 764}},
		{"machines that did not join, or were lost, were not obtained", []launch{{0, 8, v1alpha1.Timeout}, {minute, 8, v1alpha1.Lost}}, minute, map[int]int{8: 478}},
		{"quota, throttling, credentials and configuration say nothing", []launch{
			{0, 8, v1alpha1.Quota}, {0, 8, v1alpha1.Network}, {0, 8, v1alpha1.Throttle}, {0, 8, v1alpha1.Auth}, {0, 8, v1alpha1.Config},
		}, 0, map[int]int{1: 950, 8: 950}},
		{"gangs that meet the same stockout have seen one", []launch{{0, 16, stockout}, {0, 16, stockout}, {time.Second, 31, stockout}}, 0, map[int]int{16: 633}},
		{"a stockout of fewer machines is another", []launch{{0, 16, stockout}, {0, 4, stockout}}, 0, map[int]int{4: 585, 16: 475}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := learn(tc.history...)
			for n, want := range tc.want {
				if got := chanceOf(status, n, tc.after); got != want {
					t.Errorf("the chance of %d machines is %d in 1000, want %d", n, got, want)
				}
			}
		})
	}
}

// TestChanceWithinADomain: what comes within one rack comes, and what does not come does not come within one; no more follows.
func TestChanceWithinADomain(t *testing.T) {
	scattered := launch{0, 8, v1alpha1.Scattered}
	for _, tc := range []struct {
		name                      string
		status                    v1alpha1.NodeGroupStatus
		anywhere, inRack, inBlock int
	}{
		{"nothing is known", learn(), 950, 950, 950},
		{"scattered over racks", learnMore(learn(), "rack", scattered), 950, 633, 950},
		{"no room in one rack", learnMore(learn(), "rack", launch{0, 8, stockout}), 950, 633, 950},
		{"none at all", learn(launch{0, 8, stockout}), 633, 633, 633},
		{"came in one rack", learnMore(learn(), "rack", launch{0, 8, all}), 967, 967, 950},
		{"came somewhere", learn(launch{0, 8, all}), 967, 950, 950},
		{"came somewhere, and was scattered over racks", learnMore(learn(launch{0, 8, all}), "rack", scattered), 967, 633, 950},
	} {
		for level, want := range map[string]int{"": tc.anywhere, "rack": tc.inRack, "block": tc.inBlock} {
			if got := (&Group{Ledger: tc.status.Ledger}).Chance(8, level, noon); got != want {
				t.Errorf("%s: the chance within one %q is %d in 1000, want %d", tc.name, level, got, want)
			}
		}
	}
}

// TestALedgerIsBounded by what its NodeGroup may hold, and the newest evidence is in it.
func TestALedgerIsBounded(t *testing.T) {
	var l *v1alpha1.Ledger
	for i := range 500 {
		l = observe(l, 1<<(i%17), fmt.Sprint("level-", i/17), observation, 0, noon)
		if len(l.Sizes) > mostEvidence {
			t.Fatalf("after %d observations the ledger has %d entries", i+1, len(l.Sizes))
		}
		if got := l.Chance; got < 967 {
			t.Fatalf("the chance of what came last is %d in 1000, want 967 at least", got)
		}
	}
}

func TestAThousandSuccessesDoNotHideADryPool(t *testing.T) {
	var history []launch
	for i := range 1000 {
		history = append(history, launch{time.Duration(i) * time.Second, 8, all})
	}
	for i := range 3 {
		history = append(history, launch{20*minute + time.Duration(i)*5*minute, 8, stockout})
	}
	if got := chanceOf(learn(history...), 8, 30*minute); got > 800 {
		t.Errorf("after three stockouts in a row the chance is still %d in 1000", got)
	}
}

func TestTheStatusShowsTheChanceAsOfTheLastOutcome(t *testing.T) {
	status := learn(launch{0, 1, all}, launch{minute, 16, stockout}, launch{2 * minute, 1, v1alpha1.Throttle})
	want := &v1alpha1.Ledger{
		At: metav1.NewTime(noon.Add(minute)), Chance: int32(chanceOf(status, 16, minute)),
		Sizes: []v1alpha1.Evidence{{AtLeast: 1, Got: 977_389}, {AtLeast: 16, Failed: observation}},
	}
	if diff := cmp.Diff(want, status.Ledger); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
}

func TestTheOrderOfNewsHardlyMatters(t *testing.T) {
	early := launch{0, 8, all}
	late := launch{45 * minute, 8, stockout}
	a, b := learn(early, late), learn(late, early)
	if x, y := chanceOf(a, 8, time.Hour), chanceOf(b, 8, time.Hour); x != y {
		t.Errorf("the chance is %d when the older outcome comes first and %d when it comes last", x, y)
	}
	if got := chanceOf(a, 8, 0); got != chanceOf(a, 8, 45*minute) {
		t.Errorf("an outcome from the future of a slow clock counts as more than new: %d", got)
	}
}

// The properties of every ledger, on random histories: more stockouts never raise a
// chance, successes never lower it, time moves it to that of a fresh group, and it
// never rises with the number of machines.
func TestChancesMoveTheRightWay(t *testing.T) {
	sizes := []int{1, 2, 3, 4, 7, 8, 16, 40, 100, 1000, 65_536, 100_000}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		pick := func() int { return sizes[r.IntN(len(sizes))] }
		var l *v1alpha1.Ledger
		now := noon
		for range r.IntN(30) {
			now = now.Add(time.Duration(r.Int64N(int64(40 * minute))))
			switch r.IntN(3) {
			case 0:
				l = observe(l, pick(), "", observation, 0, now)
			case 1:
				l = observe(l, pick(), "", 0, observation, now)
			default:
				l = withAdvice(l, &v1alpha1.Advice{Machines: int32(pick()), Chance: r.Int32N(1001), At: metav1.NewTime(now)})
			}
		}
		at, next := pick(), now.Add(time.Duration(r.Int64N(int64(time.Hour))))
		better, worse := observe(l, at, "", observation, 0, next), observe(l, at, "", 0, observation, next)
		last := 1000
		for _, n := range sizes {
			c := chance(l, n, "", next)
			if c < 1 || c > last {
				t.Errorf("seed %d: the chance of %d machines is %d, of fewer it is %d", seed, n, c, last)
			}
			last = c
			// One unit of the thousandths may be lost where old evidence is rounded.
			if b := chance(better, n, "", next); b < c-1 {
				t.Errorf("seed %d: a success at %d lowers the chance of %d machines from %d to %d", seed, at, n, c, b)
			}
			if w := chance(worse, n, "", next); w > c+1 {
				t.Errorf("seed %d: a stockout at %d raises the chance of %d machines from %d to %d", seed, at, n, c, w)
			}
			before := c
			for later := next; later.Before(next.Add(24 * time.Hour)); later = later.Add(time.Duration(1 + r.Int64N(int64(time.Hour)))) {
				c := chance(l, n, "", later)
				if c < min(before, unknownChance) || c > max(before, unknownChance) {
					t.Errorf("seed %d: time moves the chance of %d machines from %d to %d, away from %d", seed, n, before, c, unknownChance)
				}
				before = c
			}
			if before != unknownChance {
				t.Errorf("seed %d: after a day the chance of %d machines is %d", seed, n, before)
			}
		}
	}
}

func TestAdviceIsMixedIn(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history []launch
		advice  *v1alpha1.Advice
		n       int
		want    int
	}{
		{"the cloud says never", nil, &v1alpha1.Advice{Machines: 8, Chance: 0, At: metav1.NewTime(noon)}, 8, 317},
		{"half", nil, &v1alpha1.Advice{Machines: 8, Chance: 500, At: metav1.NewTime(noon)}, 8, 650},
		{"always", nil, &v1alpha1.Advice{Machines: 8, Chance: 1000, At: metav1.NewTime(noon)}, 8, 983},
		{"more than always", nil, &v1alpha1.Advice{Machines: 8, Chance: 2000, At: metav1.NewTime(noon)}, 8, 983},
		{"never, half an hour ago", nil, &v1alpha1.Advice{Machines: 8, Chance: 0, At: metav1.NewTime(noon.Add(-30 * minute))}, 8, 475},
		{"never, for eight: that is not said of one", nil, &v1alpha1.Advice{Machines: 8, Chance: 0, At: metav1.NewTime(noon)}, 1, 760},
		{"always, against a stockout of our own", []launch{{0, 8, stockout}}, &v1alpha1.Advice{Machines: 8, Chance: 1000, At: metav1.NewTime(noon)}, 8, 843},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := learn(tc.history...)
			ledger := before.Ledger.DeepCopy()
			g := Group{Ledger: withAdvice(ledger, tc.advice)}
			if got := g.Chance(tc.n, "", noon); got != tc.want {
				t.Errorf("the chance is %d, want %d", got, tc.want)
			}
			if diff := cmp.Diff(before.Ledger, ledger); diff != "" {
				t.Errorf("the ledger itself was changed:\n%s", diff)
			}
		})
	}
}

func TestSizeClasses(t *testing.T) {
	for n, want := range map[int]int32{
		-1: 1, 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 7: 4, 8: 8, 15: 8, 16: 16, 100: 64, 65_535: 32_768, 65_536: 65_536, 100_000: 65_536, 1 << 40: 65_536,
	} {
		if got := smallest(n); got != want {
			t.Errorf("%d machines are of the size from %d, want from %d", n, got, want)
		}
	}
}

// The table against the function that it stands for.
func TestRemaining(t *testing.T) {
	last := int64(whole)
	for age := -time.Hour; age < 12*time.Hour; age += 7 * time.Second {
		got := remaining(age)
		exact := math.Exp2(-float64(max(age, 0))/float64(halfLife)) * whole
		if math.Abs(float64(got)-exact) > 240 {
			t.Errorf("%d millionths are left after %s, exactly it is %.0f", got, age, exact)
		}
		if got > last {
			t.Errorf("more is left after %s than before: %d, %d", age, got, last)
		}
		last = got
	}
	for age, want := range map[time.Duration]int64{
		0: whole, halfLife: whole / 2, 2 * halfLife: whole / 4, 10 * halfLife: whole >> 10, 20 * halfLife: 0, math.MaxInt64: 0,
	} {
		if got := remaining(age); got != want {
			t.Errorf("%d millionths are left after %s, want %d", got, age, want)
		}
	}
}

func TestExpectedCost(t *testing.T) {
	for _, tc := range []struct {
		microUSD int64
		chance   int
		want     int64
	}{
		{0, 500, 0},
		{-5, 500, 0},
		{98_320_000, 1000, 98_320_000},
		{98_320_000, 950, 103_494_736},
		{98_320_000, 500, 196_640_000},
		{1, 1, 1000},
		{1, 0, 1000},
		{7, 2000, 7},
		{MaxUSD * 1e6, 1, MaxUSD * 1e9},
		{math.MaxInt64, 1000, math.MaxInt64},
		{math.MaxInt64, 999, math.MaxInt64},
		{math.MaxInt64 / 1000, 1, math.MaxInt64 / 1000 * 1000},
		{math.MaxInt64, 1, math.MaxInt64},
		{92_233_720_368_547_759, 5, math.MaxInt64}, // × 1000 is just over 5 × 2⁶⁴
	} {
		if got := ExpectedCost(tc.microUSD, tc.chance); got != tc.want {
			t.Errorf("%d at a chance of %d in 1000 costs %d, want %d", tc.microUSD, tc.chance, got, tc.want)
		}
	}
}
