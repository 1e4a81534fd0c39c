package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestLaunch(t *testing.T) {
	for name, tc := range map[string]struct {
		script v1alpha1.KwokPool
		state  State
		count  int
		at     time.Duration

		want        []Machine
		wantRefusal *v1alpha1.KwokError
	}{
		"an empty script gives at once": {
			count: 2,
			want:  []Machine{{Ordinal: 0}, {Ordinal: 1}},
		},
		"ordinals go on where the pool stands": {
			script: v1alpha1.KwokPool{BootDelay: span("30s"), DeviceDelay: span("5s")},
			state:  State{Live: 1, Next: 7},
			count:  1,
			want:   []Machine{{Ordinal: 7, BootDelay: 30 * time.Second, DeviceDelay: 5 * time.Second}},
		},
		"a pool that holds 7 gives 7 of 8 and refuses the rest": {
			script: v1alpha1.KwokPool{Holds: new(int32(7))},
			count:  8,
			want:   plain(0, 1, 2, 3, 4, 5, 6),
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 7 machines and 0 are in use: asked for 8, got 7"},
		},
		"an exhausted pool gives none": {
			script: v1alpha1.KwokPool{Holds: new(int32(2))},
			state:  State{Live: 2, Next: 2},
			count:  1,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 2 machines and 2 are in use: asked for 1, got 0"},
		},
		"a pool that was shrunk below what lives gives none": {
			script: v1alpha1.KwokPool{Holds: new(int32(1))},
			state:  State{Live: 2, Next: 2},
			count:  1,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 1 machines and 2 are in use: asked for 1, got 0"},
		},
		"the limit of the group refuses all, before the stock is looked at": {
			script: v1alpha1.KwokPool{Holds: new(int32(1))},
			state:  State{Live: 98, Next: 98},
			count:  3,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Quota, Code: CodeMaxMachines,
				Message: "asked for 3 machines beside the 98 that exist, and the group may have 100: raise spec.maxNodes"},
		},
		"dry between from and until: just before": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry, From: at("10s"), Until: at("20s")}),
			count:  1,
			at:     10*time.Second - 1,
			want:   plain(0),
		},
		"dry between from and until: at from": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry, From: at("10s"), Until: at("20s")}),
			count:  1,
			at:     10 * time.Second,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 0 machines and 0 are in use: asked for 1, got 0"},
		},
		"dry between from and until: at until": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry, From: at("10s"), Until: at("20s")}),
			count:  1,
			at:     20 * time.Second,
			want:   plain(0),
		},
		"a pool that is nearly dry gives what it still holds": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry, Holds: 3}),
			state:  State{Live: 1, Next: 1},
			count:  4,
			want:   plain(1, 2),
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 3 machines and 1 are in use: asked for 4, got 2"},
		},
		"a pool that is nearly dry gives whole launches that are small enough": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry, Holds: 3}),
			state:  State{Live: 1, Next: 1},
			count:  2,
			want:   plain(1, 2),
		},
		"no drought makes a pool hold more than it does": {
			script: v1alpha1.KwokPool{Holds: new(int32(1)), Faults: []v1alpha1.KwokFault{{Type: v1alpha1.FaultDry, Holds: 3}}},
			count:  2,
			want:   plain(0),
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
				Message: "the pool holds 1 machines and 0 are in use: asked for 2, got 1"},
		},
		"a call that fails does so before the stock is looked at": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDry},
				v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError, Error: &v1alpha1.KwokError{Class: v1alpha1.Throttle,
					Code: "RequestLimitExceeded"}}),
			count:       1,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Throttle, Code: "RequestLimitExceeded"},
		},
		"a launch error is passed on word for word": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError,
				Error: &v1alpha1.KwokError{Class: v1alpha1.Throttle, Code: "RequestLimitExceeded", Message: "slow down"}}),
			count:       1,
			wantRefusal: &v1alpha1.KwokError{Class: v1alpha1.Throttle, Code: "RequestLimitExceeded", Message: "slow down"},
		},
		"the listed machine dies halfway through its boot": {
			script: withBoot("30s", v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}}),
			count:  2,
			want:   []Machine{{Ordinal: 0, BootDelay: 30 * time.Second}, {Ordinal: 1, BootDelay: 30 * time.Second, DieAfter: new(15 * time.Second)}},
		},
		"a machine that dies of two causes dies of the earlier": {
			script: withBoot("30s", v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, After: at("9s")},
				v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath}),
			count: 1,
			want:  []Machine{{Ordinal: 0, BootDelay: 30 * time.Second, DieAfter: new(9 * time.Second)}},
		},
		"devices are late by as much as each fault says": {
			script: v1alpha1.KwokPool{DeviceDelay: span("1s"), Faults: []v1alpha1.KwokFault{
				{Type: v1alpha1.FaultLateDevices, After: at("10s")}, {Type: v1alpha1.FaultLateDevices, After: at("20s"), Percent: new(int32(100))}}},
			count: 1,
			want:  []Machine{{Ordinal: 0, DeviceDelay: 31 * time.Second}},
		},
		"devices vanish for a while, by the first fault that says so": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultDevicesVanish, For: at("1m"), Machines: []int64{0}},
				v1alpha1.KwokFault{Type: v1alpha1.FaultDevicesVanish, After: at("5m"), For: at("2m")}),
			count: 2,
			want: []Machine{{Ordinal: 0, Vanishes: &kwokv1alpha1.DeviceGap{For: span("1m")}},
				{Ordinal: 1, Vanishes: &kwokv1alpha1.DeviceGap{After: span("5m"), For: span("2m")}}},
		},
		"reclaims hit the machines launched in their time": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, After: at("1m"), Until: at("10s")},
				v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, After: at("2m"), From: at("5s")}),
			count: 1,
			at:    15 * time.Second,
			want:  []Machine{{Ordinal: 0, ReclaimAfter: new(2 * time.Minute)}},
		},
		"no percent is nobody": {
			script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, After: at("1m"), Percent: new(int32(0))}),
			count:  1,
			want:   plain(0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := Pool{Script: tc.script, Created: created, MaxMachines: 100}
			got, refusal := pool.Launch(tc.state, tc.count, created.Add(tc.at))
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantRefusal, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// A pool of 16 in a drought within a drought, with all of its machines requested again and again.
func TestADroughtDeepensAndRecedes(t *testing.T) {
	pool := Pool{Created: created, MaxMachines: 100, Script: v1alpha1.KwokPool{Holds: new(int32(16)), Faults: []v1alpha1.KwokFault{
		{Type: v1alpha1.FaultDry, From: at("10m"), Until: at("25m"), Holds: 6},
		{Type: v1alpha1.FaultDry, From: at("14m"), Until: at("20m")},
	}}}
	var got []int
	for minute := 9; minute <= 25; minute++ {
		machines, _ := pool.Launch(State{}, 100, created.Add(time.Duration(minute)*time.Minute))
		got = append(got, len(machines))
	}
	want := []int{16, 6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 16}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machines to be had from the 9th to the 25th minute (-want +got):\n%s", diff)
	}
}

func TestTheRefusalIsNotTheScriptsOwn(t *testing.T) {
	pool := Pool{MaxMachines: 1, Script: faults(v1alpha1.KwokFault{Type: v1alpha1.FaultLaunchError,
		Error: &v1alpha1.KwokError{Class: v1alpha1.Auth, Code: "Denied"}})}
	_, refusal := pool.Launch(State{}, 1, created)
	refusal.Code = "changed"
	if code := pool.Script.Faults[0].Error.Code; code != "Denied" {
		t.Errorf("the script now says %q: callers may change what they are given", code)
	}
}

// Random launches and returns against a random script.
func TestNeverMoreLiveThanThePoolHolds(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		pool := randomPool(random)
		live, next := 0, int64(0)
		for step := range 30 {
			if random.IntN(3) == 0 {
				live -= random.IntN(live + 1)
				continue
			}
			count := 1 + random.IntN(8)
			now := created.Add(time.Duration(step) * time.Second)
			got, refusal := pool.Launch(State{Live: live, Next: next}, count, now)
			if (refusal != nil) != (len(got) < count) {
				t.Fatalf("seed %d: asked for %d, got %d, refusal %v: one goes with the other", seed, count, len(got), refusal)
			}
			for i, m := range got {
				if m.Ordinal != next+int64(i) {
					t.Fatalf("seed %d: machine %d has the ordinal %d, want %d", seed, i, m.Ordinal, next+int64(i))
				}
				if jitter := m.BootDelay - pool.Script.BootDelay.Duration; jitter < 0 || jitter > pool.Script.BootJitter.Duration {
					t.Fatalf("seed %d: jitter %s is not in 0..%s", seed, jitter, pool.Script.BootJitter.Duration)
				}
			}
			live, next = live+len(got), next+int64(len(got))
			if most := holdsAt(pool, now); live > pool.MaxMachines || live > most && len(got) > 0 {
				t.Fatalf("seed %d: %d machines live where the pool holds %d", seed, live, most)
			}
		}
	}
}

// holdsAt says it the long way: of all that bounds the pool at that time, the least.
func holdsAt(p Pool, now time.Time) int {
	bounds := []int{p.MaxMachines}
	if p.Script.Holds != nil {
		bounds = append(bounds, int(*p.Script.Holds))
	}
	for _, f := range p.Script.Faults {
		if f.Type == v1alpha1.FaultDry && !now.Before(p.Created.Add(f.From.Duration)) && now.Before(p.Created.Add(f.Until.Duration)) {
			bounds = append(bounds, int(f.Holds))
		}
	}
	return slices.Min(bounds)
}

func TestALaunchInTwoPartsGivesTheSameMachines(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		pool := randomPool(random)
		pool.Script.Holds = nil
		count := 2 + random.IntN(20)
		first := 1 + random.IntN(count-1)

		whole, refusal := pool.Launch(State{}, count, created)
		a, _ := pool.Launch(State{}, first, created)
		b, _ := pool.Launch(State{Live: len(a), Next: int64(len(a))}, count-first, created)
		if refusal != nil {
			continue
		}
		if diff := cmp.Diff(whole, slices.Concat(a, b)); diff != "" {
			t.Fatalf("seed %d: %d machines at once and %d then %d (-once +parts):\n%s", seed, count, first, count-first, diff)
		}
	}
}

func TestTheSeedDecides(t *testing.T) {
	script := v1alpha1.KwokPool{BootJitter: span("1h"), Faults: []v1alpha1.KwokFault{
		{Type: v1alpha1.FaultReclaim, After: at("1m"), Percent: new(int32(50))},
		{Type: v1alpha1.FaultBootDeath, After: at("1m"), Percent: new(int32(50))}}}
	run := func(seed int64) []Machine {
		script.Seed = seed
		machines, _ := Pool{Script: script, MaxMachines: 10000}.Launch(State{}, 10000, created)
		return machines
	}
	first := run(1)
	if !cmp.Equal(first, run(1)) {
		t.Error("the same seed gave another run")
	}
	if cmp.Equal(first, run(2)) {
		t.Error("another seed gave the same run")
	}

	var jitter time.Duration
	reclaimed, both := 0, 0
	for _, m := range first {
		jitter += m.BootDelay / 10000
		if m.ReclaimAfter != nil {
			reclaimed++
			if m.DieAfter != nil {
				both++
			}
		}
	}
	// Six standard deviations: 10,000 draws of 50 % have one of 50, of 25 % of
	// 43; the mean of as many uniform draws from an hour one of 10 s.
	within(t, "machines reclaimed", reclaimed, 5000, 300)
	within(t, "machines hit by two independent faults", both, 2500, 260)
	within(t, "mean jitter in seconds", int(jitter.Seconds()), 1800, 60)
}

func within(t *testing.T, what string, got, want, off int) {
	t.Helper()
	if got < want-off || got > want+off {
		t.Errorf("%s: %d, want %d ± %d", what, got, want, off)
	}
}

func randomPool(random *rand.Rand) Pool {
	pool := Pool{Created: created, MaxMachines: 1 + random.IntN(30), Script: v1alpha1.KwokPool{
		Seed:       random.Int64(),
		BootDelay:  span(fmt.Sprintf("%ds", random.IntN(60))),
		BootJitter: span(fmt.Sprintf("%ds", random.IntN(60))),
	}}
	if random.IntN(2) == 0 {
		pool.Script.Holds = new(random.Int32N(20))
	}
	types := []v1alpha1.KwokFaultType{v1alpha1.FaultDry, v1alpha1.FaultBootDeath, v1alpha1.FaultLateDevices, v1alpha1.FaultReclaim}
	for range random.IntN(4) {
		fault := v1alpha1.KwokFault{Type: types[random.IntN(len(types))], After: at("1s")}
		if from := random.IntN(20); fault.Type == v1alpha1.FaultDry {
			fault.From, fault.Until = at(fmt.Sprintf("%ds", from)), at(fmt.Sprintf("%ds", from+random.IntN(10)))
			fault.Holds = random.Int32N(10)
		} else {
			fault.Percent = new(random.Int32N(101))
		}
		pool.Script.Faults = append(pool.Script.Faults, fault)
	}
	return pool
}

func plain(ordinals ...int64) (out []Machine) {
	for _, o := range ordinals {
		out = append(out, Machine{Ordinal: o})
	}
	return out
}

func faults(f ...v1alpha1.KwokFault) v1alpha1.KwokPool { return v1alpha1.KwokPool{Faults: f} }

func withBoot(delay string, f ...v1alpha1.KwokFault) v1alpha1.KwokPool {
	return v1alpha1.KwokPool{BootDelay: span(delay), Faults: f}
}

func span(s string) metav1.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return metav1.Duration{Duration: d}
}

func at(s string) *metav1.Duration { return new(span(s)) }

// Racks of 4, 2 and 3 machines.
func racks(placement v1alpha1.KwokPlacement, delay string, faults ...v1alpha1.KwokFault) v1alpha1.KwokPool {
	return v1alpha1.KwokPool{Faults: faults, Domains: &v1alpha1.KwokDomains{
		NodeLabel: "example.com/rack", Placement: placement, LabelDelay: span(delay),
		Of: []v1alpha1.KwokDomain{{Name: "r1", Machines: 4}, {Name: "r2", Machines: 2}, {Name: "r3", Machines: 3}},
	}}
}

func TestDomains(t *testing.T) {
	lost := v1alpha1.KwokFault{Type: v1alpha1.FaultDomainLoss, Domains: []string{"r1"}, From: at("10s"), Until: at("20s")}
	for name, tc := range map[string]struct {
		script    v1alpha1.KwokPool
		in        map[string]int
		next      int64
		count     int
		at        time.Duration
		want      []string
		wantError string
	}{
		"together in the first that has room": {
			script: racks(v1alpha1.PlacedTogether, "0s"), in: map[string]int{"r1": 2}, count: 3, want: []string{"r3", "r3", "r3"}},
		"together gets what the emptiest has left": {
			script: racks(v1alpha1.PlacedTogether, "0s"), in: map[string]int{"r1": 2}, count: 4, want: []string{"r3", "r3", "r3"},
			wantError: "the domains of the pool have room for 3 of 4 machines (placement Together)"},
		"overflow fills the emptiest, then the next": {
			script: racks(v1alpha1.PlacedOverflow, "0s"), in: map[string]int{"r1": 2}, count: 4, want: []string{"r3", "r3", "r3", "r1"}},
		"scattered machines alternate": {
			script: racks(v1alpha1.PlacedScattered, "0s"), count: 4, want: []string{"r1", "r2", "r3", "r1"}},
		"scattered machines go on where the pool stands, and skip what is full": {
			script: racks(v1alpha1.PlacedScattered, "0s"), in: map[string]int{"r2": 2}, next: 3, count: 6,
			want: []string{"r3", "r1", "r3", "r1", "r3", "r1"}},
		"full domains give none": {
			script: racks(v1alpha1.PlacedScattered, "0s"), in: map[string]int{"r1": 4, "r2": 2, "r3": 3}, count: 1,
			wantError: "the domains of the pool have room for 0 of 1 machines (placement Scattered)"},
		"a lost domain gives none": {
			script: racks(v1alpha1.PlacedTogether, "0s", lost), at: 10 * time.Second, count: 3, want: []string{"r3", "r3", "r3"}},
		"a domain that is back gives again": {
			script: racks(v1alpha1.PlacedTogether, "0s", lost), at: 20 * time.Second, count: 3, want: []string{"r1", "r1", "r1"}},
	} {
		t.Run(name, func(t *testing.T) {
			live := 0
			for _, n := range tc.in {
				live += n
			}
			p := Pool{Script: tc.script, Created: created, MaxMachines: 100}
			machines, refusal := p.Launch(State{Live: live, Next: max(tc.next, int64(live)), InDomain: tc.in}, tc.count, created.Add(tc.at))
			var got []string
			for _, m := range machines {
				got = append(got, m.Domain)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("domains (-want +got):\n%s", diff)
			}
			message := ""
			if refusal != nil {
				message = refusal.Message
			}
			if message != tc.wantError {
				t.Errorf("refused %q, want %q", message, tc.wantError)
			}
		})
	}
}

// A machine ends when its domain is lost: as one that boots, or as one that runs.
func TestADomainIsLost(t *testing.T) {
	script := racks(v1alpha1.PlacedTogether, "5s", v1alpha1.KwokFault{Type: v1alpha1.FaultDomainLoss, Domains: []string{"r1"}, From: at("1m")})
	script.BootDelay = span("20s")
	for name, tc := range map[string]struct {
		at   time.Duration
		want Machine
	}{
		"that runs":  {at: 10 * time.Second, want: Machine{ReclaimAfter: new(30 * time.Second)}},
		"that boots": {at: 45 * time.Second, want: Machine{DieAfter: new(15 * time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			script.Domains.Of[0].Labels = map[string]string{"example.com/block": "b1"}
			tc.want.Domain, tc.want.LabelDelay = "r1", 5*time.Second
			tc.want.DomainLabels = map[string]string{"example.com/rack": "r1", "example.com/block": "b1"}
			tc.want.BootDelay = 20 * time.Second
			got, refusal := Pool{Script: script, Created: created, MaxMachines: 100}.Launch(State{}, 1, created.Add(tc.at))
			if diff := cmp.Diff([]Machine{tc.want}, got); diff != "" || refusal != nil {
				t.Errorf("refused %v, machines (-want +got):\n%s", refusal, diff)
			}
		})
	}
}
