package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/discover"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/cloudprovider/collocation"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// rack is the level of the tests: the nearest layer of the network.
const rack = placement.NetworkLayerLabel + "3"

// racked has each pool in racks of 6, 9 and 9 machines.
func racked(c *cloudsim.Config) { racksOf(6, 9, 9)(c) }

// racksOf has each pool in racks nn-a, nn-b and so on, to which it deals one machine after the other.
func racksOf(machines ...int32) func(*cloudsim.Config) {
	return func(c *cloudsim.Config) {
		for i := range c.Pools {
			d := &v1alpha1.KwokDomains{NodeLabel: rack, Placement: v1alpha1.PlacedScattered}
			for at, n := range machines {
				d.Of = append(d.Of, v1alpha1.KwokDomain{Name: "nn-" + string(rune('a'+at)), Machines: n})
			}
			c.Pools[i].Script.Domains = d
		}
	}
}

// together requests machines in one rack; in the named one, unless that is empty.
func together(g *v1alpha1.NodeGroup, count int, token, in string) cloudprovider.LaunchRequest {
	r := request(g, count, token)
	r.Together = cloudprovider.Domain{Level: rack, Value: in}
	return r
}

// racks counts the machines that are alive by their rack.
func (s *sim) racks() map[string]int {
	out := map[string]int{}
	for _, in := range s.world.Instances(true) {
		if in.Phase != cloudsim.Terminated {
			out[in.Domain()]++
		}
	}
	return out
}

// gathers are the ways to launch for which Muster makes a placement group.
var gathers = []int{0, 1, 3}

func eachGathering(t *testing.T, test func(t *testing.T, i int)) {
	for _, i := range gathers {
		t.Run(ways[i].name, func(t *testing.T) { t.Parallel(); test(t, i) })
	}
}

func TestAGangIsLaunchedInOneRack(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(racked), account())
		for _, p := range []*Provider{s.provider(), s.provider()} { // once more with the same token, after a restart
			if machines, err := p.Launch(t.Context(), together(g, 8, token, "")); err != nil || len(machines) != 8 {
				t.Fatalf("got %d machines and %v, want 8", len(machines), err)
			}
		}
		made := len(s.front.PlacementGroups())
		if !slices.Contains(gathers, i) {
			if made > 0 {
				t.Errorf("%d placement groups were made, and this way to launch has none of Muster's", made)
			}
			return
		}
		if in := s.racks(); in["nn-b"] != 8 || made != 1 {
			t.Errorf("the machines are in %v and %d placement groups were made, want 8 in the first rack that has room, by one group", in, made)
		}
	})
}

// A gang of two groups of one zone is in one rack; what needs none gets no placement group.
func TestOnePlacementGroupForAToken(t *testing.T) {
	s, g := way(t, 0, plenty(racked), account())
	p := s.provider()
	if _, err := p.Launch(t.Context(), request(g, 1, token+"0")); err != nil || len(s.front.PlacementGroups()) > 0 {
		t.Fatalf("%v; a launch that needs no domain made the groups %q", err, s.front.PlacementGroups())
	}
	other := g.DeepCopy()
	other.Name = "gpu-b"
	for _, g := range []*v1alpha1.NodeGroup{g, other} {
		if _, err := p.Launch(t.Context(), together(g, 2, token, "")); err != nil {
			t.Fatal(err)
		}
	}
	if groups, in := s.front.PlacementGroups(), s.racks(); len(groups) != 1 || in["nn-a"] != 5 {
		t.Errorf("placement groups %q, machines in %v: want one, and all machines in nn-a", groups, in)
	}
}

// No rack has room for all: nothing comes, though the pool has more.
func TestARackThatIsTooSmallIsAStockout(t *testing.T) {
	eachGathering(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(racked), account())
		_, err := s.provider().Launch(t.Context(), together(g, 10, token, ""))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Stockout ||
			refused.Code != "InsufficientInstanceCapacity" {
			t.Errorf("got %v, want AWS's stockout", err)
		}
		if s.live() > 0 || s.ownReserved() > 0 {
			t.Errorf("%d machines and %d reserved places are left", s.live(), s.ownReserved())
		}
	})
}

// Placement groups that owners name count, and types that cannot be in one have none.
func TestWhereMusterMakesNone(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*simaws.Config)
		in     string
	}{
		"the Auto Scaling group names one": {func(c *simaws.Config) { c.Groups[0].PlacementGroup = "own" }, "own"},
		"the launch template names one":    {func(c *simaws.Config) { c.Templates[0].PlacementGroup = "own" }, "own"},
		"the hardware is its own":          {func(c *simaws.Config) { c.Templates[0].Tenancy = "dedicated" }, ""},
		"the type has no clusters":         {func(c *simaws.Config) { c.Types[0].NotClustered = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			eachGathering(t, func(t *testing.T, i int) {
				s, g := way(t, i, plenty(racked), account(tc.change))
				before := s.front.PlacementGroups()
				if _, err := s.provider().Launch(t.Context(), together(g, 4, token, "")); err != nil {
					t.Fatal(err)
				}
				if got := s.front.PlacementGroups(); !slices.Equal(got, before) {
					t.Errorf("placement groups are %q, want %q", got, before)
				}
				for _, in := range s.world.Instances(true) {
					if in.Together != tc.in {
						t.Errorf("machine %s is in placement group %q, want %q", in.ID, in.Together, tc.in)
					}
				}
			})
		})
	}
}

// Machines in place of others join those that are there.
func TestAReplacementJoinsItsGang(t *testing.T) {
	eachGathering(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(racked), account())
		p := s.provider()
		machines, err := p.Launch(t.Context(), together(g, 7, token, ""))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Launch(t.Context(), together(g, 4, token+"0", "")); err != nil { // another gang, elsewhere
			t.Fatal(err)
		}
		if err := p.Terminate(t.Context(), g.Name, names(machines[:2])); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.provider().Launch(t.Context(), together(g, 2, token+"r1", "nn-b")); err != nil {
				t.Fatal(err)
			}
		}
		if in := s.racks(); in["nn-b"] != 7 || s.alive()[token+"r1"] != 2 || len(s.front.PlacementGroups()) != 2 {
			t.Errorf("the machines are in %v, placement groups %q: want 7 in nn-b", in, s.front.PlacementGroups())
		}
	})
}

// Machines of the request that are in another zone are no neighbours: a placement group is of one zone.
func TestNeighboursAreInTheZone(t *testing.T) {
	s, g := way(t, 0, plenty(func(c *cloudsim.Config) {
		other := demandPool
		other.Zone = "us-east-1b"
		c.Pools = append(c.Pools, cloudsim.Pool{PoolKey: other})
	}, racked), account(func(c *simaws.Config) { c.Groups[0].Subnets = []string{subnet, "subnet-b"} }))
	elsewhere := g.DeepCopy()
	elsewhere.Name, elsewhere.Spec.Zone, elsewhere.Spec.AWS.Subnet = "gpu-b", "us-east-1b", "subnet-b"
	for _, r := range []cloudprovider.LaunchRequest{
		together(elsewhere, 4, token, ""), together(g, 2, token+"0", ""), together(g, 1, token+"0r1", "nn-a"),
	} {
		if err := s.until(t, r.Group, r); err != nil {
			t.Fatal(err)
		}
	}
	if groups := s.front.PlacementGroups(); len(groups) != 2 {
		t.Errorf("placement groups are %q, want one in each zone", groups)
	}
}

// Machines that join others which are in no placement group of Muster's launch without one, and leave the owner's alone.
func TestAReplacementWithoutAPlacementGroup(t *testing.T) {
	for name, own := range map[string]string{"there was none": "", "the owner's has been taken off the group": "own"} {
		t.Run(name, func(t *testing.T) {
			eachGathering(t, func(t *testing.T, i int) {
				c := account(func(c *simaws.Config) { c.Groups[0].PlacementGroup = own })
				s, g := way(t, i, plenty(racked), c)
				if err := s.until(t, g, request(g, 2, token)); err != nil {
					t.Fatal(err)
				}
				c.Groups[0].PlacementGroup = ""
				before := s.front.PlacementGroups()
				if err := s.until(t, g, together(g, 2, token+"r1", s.world.Instances(true)[0].Domain())); err != nil &&
					ways[i].method != v1alpha1.AWSReservation {
					t.Fatal(err)
				}
				if s.listFor(s.provider(), time.Hour); !slices.Equal(s.front.PlacementGroups(), before) {
					t.Errorf("placement groups are %q, want %q", s.front.PlacementGroups(), before)
				}
			})
		})
	}
}

// A reservation says where it is, and no machine is ever launched into one that is elsewhere.
func TestReserveReadLaunch(t *testing.T) {
	for name, tc := range map[string]struct {
		in      string
		change  func(*simaws.Config)
		world   []func(*cloudsim.Config)
		refused v1alpha1.ErrorClass
	}{
		"it is there":      {in: "nn-b"},
		"it is elsewhere":  {in: "nn-c", refused: v1alpha1.Scattered},
		"not told":         {in: "nn-c", change: func(c *simaws.Config) { c.NetworkNodes = 2 }},
		"not to be asked":  {in: "nn-c", change: func(c *simaws.Config) { c.Denied = []string{"ec2:DescribeCapacityReservationTopology"} }},
		"it is pending":    {in: "nn-c", change: func(c *simaws.Config) { c.ReservationDelay.Duration = time.Minute }, refused: v1alpha1.Scattered},
		"lists know late":  {in: "nn-c", world: []func(*cloudsim.Config){lag(20 * time.Second)}, refused: v1alpha1.Scattered},
		"replies are lost": {in: "nn-c", world: []func(*cloudsim.Config){fault("DescribeCapacityReservationTopology", cloudsim.CallLost, 0, 1, 2, 3)}, refused: v1alpha1.Scattered},
		"one is throttled": {in: "nn-b", world: []func(*cloudsim.Config){fault("DescribeCapacityReservationTopology", cloudsim.CallRefused, 0, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.change
			if change == nil {
				change = func(*simaws.Config) {}
			}
			s, g := way(t, 3, plenty(append(tc.world, racked)...), account(change))
			if err := s.until(t, g, together(g, 7, token, "")); err != nil {
				t.Fatal(err)
			}
			s.clock.Step(time.Minute)
			err := s.until(t, g, together(g, 1, token+"r1", tc.in))
			refused := cloudprovider.Refusal(err)
			if tc.refused == "" {
				if err != nil || s.alive()[token+"r1"] != 1 {
					t.Errorf("got %v and %v, want the machine", err, s.alive())
				}
				return
			}
			if refused == nil || refused.Class != tc.refused {
				t.Errorf("got %v, want a refusal of class %s", err, tc.refused)
			} else if tc.refused == v1alpha1.Scattered && (!strings.Contains(refused.Message, "is in nn-b") ||
				!strings.Contains(refused.Message, "in nn-c")) {
				t.Errorf("got %v, want it to tell both domains", err)
			}
			if n := len(s.world.Instances(true)); n != 7 || s.ownReserved() != 0 {
				t.Errorf("%d machines have ever been and %d places are reserved, want those of the gang alone", n, s.ownReserved())
			}
		})
	}
}

// A reservation that was bought, too, says where it is, and stays.
func TestABoughtReservationElsewhere(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) { c.Pools = []cloudsim.Pool{{PoolKey: reservedPool}} }, racked,
		func(c *cloudsim.Config) { c.Pools[0].Script.Domains.Of = c.Pools[0].Script.Domains.Of[:1] }), account())
	if _, refused := s.world.Reserve("cr-bought", cloudsim.Order{Pool: reservedPool, Count: 6}, time.Time{}); refused != nil {
		t.Fatal(refused)
	}
	g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Reserved)
	g.Spec.AWS.CapacityReservation = "cr-bought"
	err := s.until(t, g, together(g, 2, token, "nn-c"))
	if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Scattered || s.live() > 0 || s.bought() != 6 {
		t.Errorf("got %v, %d machines and %d places, want a refusal and the places", err, s.live(), s.bought())
	}
	g.Spec.AWS.CapacityReservation = "cr-gone"
	err = s.until(t, g, together(g, 2, token+"0", "nn-c"))
	if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Config {
		t.Errorf("got %v of a reservation that is gone, want a refusal of class Config", err)
	}
}

// until repeats a launch as the core does, by an adapter that knows nothing, until it is through or refused.
func (s *sim) until(t *testing.T, g *v1alpha1.NodeGroup, r cloudprovider.LaunchRequest) error {
	t.Helper()
	for range 20 {
		machines, err := s.provider().Launch(t.Context(), r)
		if err == nil && len(machines) != r.Count {
			t.Fatalf("got %d machines and no error, want %d", len(machines), r.Count)
		}
		if err == nil || cloudprovider.Refusal(err) != nil {
			return err
		}
		s.clock.Step(10 * time.Second)
	}
	t.Fatalf("20 rounds were too few for %s of %s", r.Token, g.Name)
	return nil
}

// A process may end before any of its calls, and the next one goes on: nothing is made twice and nothing is left.
func TestCrashesOfLaunchesTogether(t *testing.T) {
	crash := errors.New("the process has ended")
	eachGathering(t, func(t *testing.T, i int) {
		for _, in := range []string{"", "nn-c"} { // "nn-c" is refused where the place of a reservation is looked at
			for calls := range 8 {
				s, g := way(t, i, plenty(racked), account())
				if in != "" {
					if err := s.until(t, g, together(g, 7, token, "")); err != nil {
						t.Fatal(err)
					}
					s.clock.Step(time.Minute)
				}
				before, left := len(s.world.Instances(true)), calls
				first := s.providerThat(func() error {
					if left--; left < 0 {
						return crash
					}
					return nil
				})
				_, err := first.Launch(t.Context(), together(g, 2, token+"r1", in))
				through := !errors.Is(err, crash)
				if !through {
					err = s.until(t, g, together(g, 2, token+"r1", in))
				}
				want := 2
				if in != "" && ways[i].method == v1alpha1.AWSReservation {
					if want = 0; cloudprovider.Refusal(err) == nil {
						t.Errorf("%d calls, %s: got %v, want a refusal", calls, in, err)
					}
				} else if err != nil {
					t.Errorf("%d calls, %s: %v", calls, in, err)
				}
				if n := len(s.world.Instances(true)) - before; n != want || s.ownReserved() != 0 || len(s.front.PlacementGroups()) != 1 {
					t.Errorf("%d calls, %s: %d machines were made, %d places are reserved, placement groups are %q; want %d, none and one", calls, in, n,
						s.ownReserved(), s.front.PlacementGroups(), want)
				}
				if through {
					break
				}
			}
		}
	})
}

func TestLostCallsOfLaunchesTogether(t *testing.T) {
	for _, kind := range []cloudsim.CallFaultType{cloudsim.ReplyLost, cloudsim.CallLost} {
		t.Run(string(kind), func(t *testing.T) {
			eachGathering(t, func(t *testing.T, i int) {
				var faults []func(*cloudsim.Config)
				for _, a := range []string{"CreatePlacementGroup", "DescribePlacementGroups", "DescribeInstanceTypes", ways[i].call,
					"CreateCapacityReservation"} {
					faults = append(faults, fault(a, kind, 0, 1, 2, 3)) // the SDK itself tries three times
				}
				s, g := way(t, i, plenty(append(faults, racked, lag(15*time.Second))...), account())
				if err := s.until(t, g, together(g, 8, token, "")); err != nil {
					t.Fatal(err)
				}
				if in := s.racks(); in["nn-b"] != 8 || len(s.front.PlacementGroups()) != 1 || s.ownReserved() != 0 {
					t.Errorf("machines are in %v, placement groups %q, reserved %d", in, s.front.PlacementGroups(), s.ownReserved())
				}
			})
		})
	}
}

// Without a placement group machines may be scattered, which is found out later: Muster says why, and launches.
func TestPlacementGroupsThatCannotBeMade(t *testing.T) {
	limit := func(c *cloudsim.Config) {
		c.Calls = append(c.Calls, cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: "CreatePlacementGroup", Type: cloudsim.CallRefused,
			Calls: []int64{0}, Error: &cloudsim.Error{Status: 400, Code: "PlacementGroupLimitExceeded",
				Message: "The maximum number has been reached."}})
	}
	for name, tc := range map[string]struct {
		world  func(*cloudsim.Config)
		denied []string
		says   string
	}{
		"not allowed":           {denied: []string{"ec2:CreatePlacementGroup"}, says: "UnauthorizedOperation"},
		"not allowed to look":   {denied: []string{"ec2:DescribePlacementGroups"}, says: "UnauthorizedOperation"},
		"the account has 500":   {world: limit, says: "PlacementGroupLimitExceeded"},
		"one may be made again": {world: limit},
	} {
		t.Run(name, func(t *testing.T) {
			world := []func(*cloudsim.Config){racked}
			if tc.world != nil {
				world = append(world, tc.world)
			}
			s, g := way(t, 0, plenty(world...), account(func(c *simaws.Config) { c.Denied = tc.denied }))
			p := s.provider()
			if _, err := p.Launch(t.Context(), together(g, 4, token, "")); err != nil || len(s.racks()) < 2 {
				t.Fatalf("got %v and machines in %v, want a launch without a placement group", err, s.racks())
			}
			if tc.says == "" {
				if _, err := p.Launch(t.Context(), together(g, 1, token+"0", "")); err != nil {
					t.Fatal(err)
				}
			}
			found, err := p.Discover(t.Context())
			if err != nil || len(found.Groups) == 0 {
				t.Fatalf("%+v, %v", found, err)
			}
			warned := slices.ContainsFunc(found.Groups[0].Warnings, func(w cloudprovider.Warning) bool {
				return w.Reason == discover.NoPlacementGroup && strings.Contains(w.Message, tc.says)
			})
			if warned != (tc.says != "") {
				t.Errorf("warnings are %+v, want one that says %q", found.Groups[0].Warnings, tc.says)
			}
		})
	}
}

// A placement group that was made a moment ago may not be known where machines are launched.
func TestAPlacementGroupThatIsNotVisibleYet(t *testing.T) {
	for _, i := range gathers {
		s, g := way(t, i, plenty(racked), account())
		s.world.HitNext(cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: ways[i].call, Type: cloudsim.CallRefused,
			Error: &cloudsim.Error{Status: 400, Code: "InvalidPlacementGroup.Unknown", Message: "The Placement Group is unknown."}}, 1)
		_, err := s.provider().Launch(t.Context(), together(g, 4, token, ""))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Throttle || s.live()+s.ownReserved() > 0 {
			t.Errorf("%s: got %v, %d machines and %d places; want to come back soon, since no person needs to act", ways[i].name, err,
				s.live(), s.ownReserved())
		}
	}
}

// listFor lists as a watch does, once a minute.
func (s *sim) listFor(p *Provider, d time.Duration) {
	for end := s.clock.Now().Add(d); s.clock.Now().Before(end); s.clock.Step(time.Minute) {
		_, _ = p.list(context.Background()) // one that fails is tried again
	}
}

// A placement group goes once no machine and no reservation is in it: after a launch, in the middle of one, and under
// another process.
func TestPlacementGroupsGo(t *testing.T) {
	const within = 15 * time.Minute
	for name, tc := range map[string]struct {
		world []func(*cloudsim.Config)
		crash string
		other bool
		slow  time.Duration
	}{
		"after its machines":                      {},
		"under another process":                   {other: true},
		"lists know late":                         {world: []func(*cloudsim.Config){lag(time.Minute)}},
		"its machines take a while to end":        {slow: 25 * time.Minute},
		"nothing was launched":                    {crash: ways[0].call, other: true},
		"it was made, and no answer came":         {crash: "DescribePlacementGroups", other: true},
		"its deletion is lost, and its answer":    {world: []func(*cloudsim.Config){fault("DeletePlacementGroup", cloudsim.CallLost, 0, 1, 2), fault("DeletePlacementGroup", cloudsim.ReplyLost, 3, 4, 5)}},
		"placement groups cannot be looked at":    {world: []func(*cloudsim.Config){fault("DescribePlacementGroups", cloudsim.CallLost, 1, 2, 3, 4, 5, 6)}, other: true},
		"and its deletion is throttled once more": {world: []func(*cloudsim.Config){fault("DeletePlacementGroup", cloudsim.CallRefused, 0, 1, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := plenty(append(tc.world, racked)...)
			if tc.slow > 0 {
				world.Terminations = []cloudsim.TerminationFault{{Cloud: v1alpha1.ProviderAWS, Delay: &metav1.Duration{Duration: tc.slow}}}
			}
			if tc.crash != "" {
				fault(tc.crash, cloudsim.CallLost, 0, 1, 2)(&world)
			}
			s, g := way(t, 0, world, account())
			p := s.provider()
			err := errors.New("")
			for range 8 {
				if _, err = p.Launch(t.Context(), together(g, 4, token, "")); err == nil || tc.crash != "" {
					break
				}
				s.clock.Step(15 * time.Second)
			}
			if (err != nil) != (tc.crash != "") || len(s.front.PlacementGroups()) != 1 {
				t.Fatalf("%v; placement groups are %q", err, s.front.PlacementGroups())
			}
			if tc.other {
				p = s.provider()
			}
			if err == nil {
				if s.listFor(p, time.Hour); len(s.front.PlacementGroups()) != 1 {
					t.Fatal("it went while machines were in it")
				}
				if err := p.Terminate(context.Background(), g.Name, names(s.listed(p))); err != nil {
					t.Fatal(err)
				}
			}
			if s.listFor(p, within+tc.slow); len(s.front.PlacementGroups()) > 0 {
				t.Errorf("%s later there are still the placement groups %q", within+tc.slow, s.front.PlacementGroups())
			}
		})
	}
}

// A launch may still need a placement group that was made a short while ago, under whatever process.
func TestAPlacementGroupStaysForAWhile(t *testing.T) {
	s, g := way(t, 0, plenty(racked, fault("CreateFleet", cloudsim.CallLost, 0, 1, 2)), account())
	p := s.provider()
	if _, err := p.Launch(t.Context(), together(g, 4, token, "")); err == nil {
		t.Fatal("the launch is through")
	}
	s.clock.Step(collocation.SweepAfter - time.Second)
	for name, p := range map[string]*Provider{"the one that made it": p, "another process": s.provider()} {
		if s.listed(p); len(s.front.PlacementGroups()) != 1 {
			t.Fatalf("%s has deleted it after %s", name, collocation.SweepAfter-time.Second)
		}
	}
	s.clock.Step(time.Second)
	if s.listed(p); len(s.front.PlacementGroups()) != 0 {
		t.Errorf("it is still there after %s", collocation.SweepAfter)
	}
}

// What a cluster has not made it does not delete.
func TestPlacementGroupsOfOthersStay(t *testing.T) {
	s, groups := twins(t, 0)
	theirs, ours := s.providerOf(twinUID, nil), s.provider()
	if _, err := theirs.Launch(t.Context(), together(groups[1], 2, token, "")); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Terminate(t.Context(), groups[1].Name, names(s.listed(theirs))); err != nil {
		t.Fatal(err)
	}
	if s.listFor(ours, time.Hour); len(s.front.PlacementGroups()) != 1 {
		t.Errorf("the placement group of another cluster of the name was deleted")
	}
	deposed := s.providerOf(twinUID, func() error { return errors.New("another leads") })
	if s.listFor(deposed, time.Hour); len(s.front.PlacementGroups()) != 1 {
		t.Errorf("a process that another has succeeded has deleted it")
	}
}

// A machine that its cloud has stopped may be started again, in its placement group only.
func TestAPlacementGroupOfStoppedMachinesStays(t *testing.T) {
	s, g := way(t, 0, plenty(racked), account())
	p := s.provider()
	machines, err := p.Launch(t.Context(), together(g, 2, token, ""))
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Step(2 * time.Minute)
	for _, m := range machines {
		s.world.Stop(m.Name, time.Hour)
	}
	if s.listFor(p, 2*collocation.SweepAfter); len(s.front.PlacementGroups()) != 1 {
		t.Error("it is gone")
	}
}

// Without the permissions of a former version there is nothing to look after, and that is checked seldom.
func TestPlacementGroupsThatCannotBeManaged(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Denied = []string{"ec2:DescribePlacementGroups"} }))
	s.listFor(s.provider(), time.Hour)
	if n := s.world.Calls(v1alpha1.ProviderAWS)["DescribePlacementGroups"]; n > 7 {
		t.Errorf("an hour took %d calls", n)
	}
}

// While there is no placement group, and while those that there are are in use, looking after them costs next to no calls.
func TestPlacementGroupsCostFewCalls(t *testing.T) {
	s, g := way(t, 0, plenty(racked), account())
	p := s.provider()
	for _, step := range []string{"without any", "with one"} {
		before := s.world.Calls(v1alpha1.ProviderAWS)
		s.listFor(p, time.Hour)
		after := s.world.Calls(v1alpha1.ProviderAWS)
		if n := after["DescribePlacementGroups"] - before["DescribePlacementGroups"]; n > 7 || after["DeletePlacementGroup"] > 0 {
			t.Errorf("%s: an hour took %d looks and %d deletions", step, n, after["DeletePlacementGroup"])
		}
		if _, err := p.Launch(t.Context(), together(g, 2, fmt.Sprint(token, len(step)), "")); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Terminate(t.Context(), g.Name, names(s.listed(p))); err != nil {
		t.Fatal(err)
	}
	s.listFor(p, time.Hour)
	if n := s.world.Calls(v1alpha1.ProviderAWS)["DeletePlacementGroup"]; n != 2 {
		t.Errorf("%d calls have deleted two placement groups", n)
	}
}

// A launch that waits for its reservation does not look after its placement group again.
func TestAPendingReservationHasItsPlacementGroup(t *testing.T) {
	s, g := way(t, 3, plenty(racked), account(func(c *simaws.Config) { c.ReservationDelay.Duration = time.Minute }))
	if err := s.until(t, g, together(g, 2, token, "")); err != nil {
		t.Fatal(err)
	}
	calls := s.world.Calls(v1alpha1.ProviderAWS)
	if calls["CreatePlacementGroup"] != 1 || calls["DescribePlacementGroups"] != 1 || calls["DescribeInstanceTypes"] != 1 {
		t.Errorf("got calls %v, want one of each about the placement group", calls)
	}
}
