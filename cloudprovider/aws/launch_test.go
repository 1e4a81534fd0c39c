package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// ways are all ways to launch.
var ways = []struct {
	name         string
	method       v1alpha1.AWSLaunchMethod
	capacityType v1alpha1.CapacityType
	call         string
	pool         cloudsim.PoolKey
}{
	{"Fleet/OnDemand", v1alpha1.AWSFleet, v1alpha1.OnDemand, "CreateFleet", demandPool},
	{"Fleet/Spot", v1alpha1.AWSFleet, v1alpha1.Spot, "CreateFleet", spotPool},
	{"Fleet/Reserved", v1alpha1.AWSFleet, v1alpha1.Reserved, "RunInstances", reservedPool},
	{"Reservation", v1alpha1.AWSReservation, v1alpha1.OnDemand, "RunInstances", demandPool},
	{"LaunchInstances", v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand, "LaunchInstances", demandPool},
}

// way is a simulated AWS that is ready for a way to launch.
func way(t *testing.T, i int, world cloudsim.Config, account simaws.Config) (*sim, *v1alpha1.NodeGroup) {
	t.Helper()
	w := ways[i]
	if w.capacityType == v1alpha1.Reserved {
		// The account has reserved 64 machines, and the pool has no others.
		world.Pools = append(world.Pools, cloudsim.Pool{PoolKey: reservedPool})
	}
	s := newSim(t, world, account)
	g := nodeGroup(w.method, w.capacityType)
	if w.capacityType == v1alpha1.Reserved {
		if _, refused := s.world.Reserve("cr-bought", cloudsim.Order{Pool: reservedPool, Count: 64}, time.Time{}); refused != nil {
			t.Fatal(refused)
		}
		g.Spec.AWS.CapacityReservation = "cr-bought"
		s.clock.Step(time.Hour)
	}
	s.groups = []*v1alpha1.NodeGroup{g}
	return s, g
}

func eachWay(t *testing.T, test func(t *testing.T, i int)) {
	for i, w := range ways {
		t.Run(w.name, func(t *testing.T) { t.Parallel(); test(t, i) })
	}
}

// ownReserved is how many machines the account has reserved without Muster.
func (s *sim) ownReserved() int { return s.reservedPlaces() - s.bought() }

// Discovery refuses them, but does not look at a NodeGroup that was written by hand.
func TestMachinesThatCannotBeEndedAreNotLaunched(t *testing.T) {
	for _, method := range []v1alpha1.AWSLaunchMethod{v1alpha1.AWSFleet, v1alpha1.AWSReservation} {
		s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Templates[0].Protected = true }))
		g := nodeGroup(method, v1alpha1.OnDemand)
		s.groups = []*v1alpha1.NodeGroup{g}
		_, err := s.provider().Launch(context.Background(), request(g, 2, token))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Config || len(s.world.Bill()) > 0 {
			t.Errorf("%s: got %v and the bill %v, want a refusal before anything is made", method, err, s.world.Bill())
		}
	}
}

func (s *sim) bought() (n int) {
	for _, r := range s.world.Reservations() {
		if r.ID == "cr-bought" && r.EndedAt.IsZero() {
			n += r.Count
		}
	}
	return n
}

func TestALaunchComesWhole(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		long := request(g, 64, token)
		long.Request += strings.Repeat("-very-long", 30) // names may be longer than the values of tags
		machines, err := s.provider().Launch(context.Background(), long)
		if err != nil || len(machines) != 64 {
			t.Fatalf("got %d machines and %v, want 64", len(machines), err)
		}
		for _, in := range s.world.Instances(true) {
			if in.Pool != ways[i].pool || in.Tags[inventory.LaunchTag] != token || !strings.HasPrefix(in.Tags[inventory.RequestTag], "team/train") ||
				in.Tags[inventory.NodeGroupTag] != g.Name || in.Tags[inventory.GroupTag] != group ||
				in.Tags[inventory.ClusterTag+cluster] != inventory.Owned {
				t.Fatalf("instance %+v lacks a tag or is of another pool", in)
			}
		}
		m := machines[0]
		want := cloudprovider.Machine{Name: m.Name, Group: g.Name, Launch: token, ProviderID: "aws:///us-east-1a/" + m.Name}
		if m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
		if n := s.ownReserved(); n > 0 {
			t.Errorf("%d places are still reserved", n)
		}
	})
}

func TestTheSameTokenMakesNothingTwice(t *testing.T) {
	for name, change := range map[string]func(*cloudsim.Config){
		"lists know at once": lag(0), "lists know late": lag(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, i int) {
				s, g := way(t, i, plenty(change), account(func(c *simaws.Config) { c.Groups[0].Max = 8 }))
				first, second := s.provider(), s.provider()
				var ids []string
				for round := range 6 {
					p := first
					if round >= 3 {
						p = second // after a restart
					}
					machines, err := p.Launch(context.Background(), request(g, 8, token))
					if len(s.world.Instances(true)) > 8 {
						t.Fatalf("round %d: %d instances, want 8", round, len(s.world.Instances(true)))
					}
					if err != nil {
						if cloudprovider.Refusal(err) != nil {
							t.Fatalf("round %d: the launch of its own machines is refused: %v", round, err)
						}
						s.clock.Step(time.Minute)
						continue
					}
					if ids == nil {
						ids = names(machines)
					}
					if fmt.Sprint(ids) != fmt.Sprint(names(machines)) {
						t.Errorf("round %d: got %v, first %v", round, names(machines), ids)
					}
				}
				if len(ids) != 8 || s.alive()[token] != 8 || s.ownReserved() != 0 {
					t.Errorf("got %d machines, alive %v, reserved %d", len(ids), s.alive(), s.ownReserved())
				}
			})
		})
	}
}

// A gang of several groups launches in each of them under one token.
func TestOneTokenInTwoGroups(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		other := g.DeepCopy()
		other.Name = "gpu-b"
		p := s.provider()
		for _, g := range []*v1alpha1.NodeGroup{g, other} {
			machines, err := p.Launch(context.Background(), request(g, 4, token))
			if err != nil || len(machines) != 4 || machines[0].Group != g.Name {
				t.Fatalf("%s: got %v and %v", g.Name, machines, err)
			}
		}
		if s.alive()[token] != 8 {
			t.Errorf("alive: %v, want 8", s.alive())
		}
	})
}

func TestNothingComesOfAStockout(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(holds(63)), account())
		count := 64
		if ways[i].capacityType == v1alpha1.Reserved {
			count = 65 // more than are reserved
		}
		p := s.provider()
		machines, err := p.Launch(context.Background(), request(g, count, token))
		refused := cloudprovider.Refusal(err)
		if refused == nil || refused.Class != v1alpha1.Stockout {
			t.Fatalf("got %v, want a stockout", err)
		}
		if ways[i].method != v1alpha1.AWSLaunchInstances {
			if len(machines) > 0 || len(s.alive()) > 0 || s.ownReserved() > 0 {
				t.Errorf("got %d machines, alive %v, reserved %d: want nothing", len(machines), s.alive(), s.ownReserved())
			}
			return
		}
		// Auto Scaling launches what there is: it comes beside the error, and goes.
		if len(machines) != 63 || s.alive()[token] != 63 {
			t.Fatalf("got %d machines, alive %v, want 63", len(machines), s.alive())
		}
		if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
			t.Fatal(err)
		}
		if len(s.alive()) > 0 {
			t.Errorf("alive after the termination: %v", s.alive())
		}
	})
}

func TestWhatABrokenFleetLaunchedComesBesideTheError(t *testing.T) {
	s := newSim(t, plenty(holds(5)), account(func(c *simaws.Config) { c.HalfLaunched = []int{0} }))
	g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot)
	p := s.provider()
	for range 2 {
		machines, err := p.Launch(context.Background(), request(g, 8, token))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Stockout || len(machines) != 5 {
			t.Fatalf("got %d machines and %v, want 5 and a stockout", len(machines), err)
		}
	}
	if n := len(s.world.Instances(true)); n != 5 {
		t.Errorf("%d instances, want 5", n)
	}
}

func TestQuotaIsNoStockout(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		if ways[i].capacityType == v1alpha1.Reserved {
			t.Skip("places that are reserved have been counted before")
		}
		s, g := way(t, i, plenty(func(c *cloudsim.Config) {
			c.Quotas = []cloudsim.Quota{{Cloud: v1alpha1.ProviderAWS, CapacityType: ways[i].capacityType, Machines: 7}}
		}), account())
		_, err := s.provider().Launch(context.Background(), request(g, 8, token))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Quota {
			t.Fatalf("got %v, want class Quota", err)
		}
		if len(s.alive()) > 0 || s.ownReserved() > 0 {
			t.Errorf("alive %v, reserved %d: want nothing", s.alive(), s.ownReserved())
		}
	})
}

func TestMaxSizeCountsAllOfTheGroup(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		// 3 machines of the group's own, 4 of another launch: 3 of 10 are left.
		s, g := way(t, i, plenty(lag(time.Minute)), account(func(c *simaws.Config) {
			c.Groups[0].Max, c.Groups[0].Desired, c.Groups[0].Suspended = 10, 3, nil
		}))
		p := s.provider()
		if _, err := p.Launch(context.Background(), request(g, 4, "other-1")); cloudprovider.Refusal(err) != nil {
			t.Fatal(err)
		}
		_, err := p.Launch(context.Background(), request(g, 4, token))
		refused := cloudprovider.Refusal(err)
		if refused == nil || refused.Class != v1alpha1.Quota || refused.Code != "MaxSize" {
			t.Fatalf("got %v, want the group's MaxSize", err)
		}
		if want := "4 machines requested in addition to the 7 of Auto Scaling group gpu, which exceeds its MaxSize of 10"; !strings.Contains(
			err.Error(), want) {
			t.Errorf("got %q, want it to say %q", err, want)
		}
		if _, err := p.Launch(context.Background(), request(g, 3, token+"0")); cloudprovider.Refusal(err) != nil {
			t.Errorf("3 would have fitted: %v", err)
		}
	})
}

// Launches whose calls get lost are repeated until they are through, by the same
// adapter or by one that knows nothing.
func TestLostCallsAndReplies(t *testing.T) {
	for _, kind := range []cloudsim.CallFaultType{cloudsim.ReplyLost, cloudsim.CallLost} {
		t.Run(string(kind), func(t *testing.T) {
			eachWay(t, func(t *testing.T, i int) {
				// The SDK itself tries three times.
				actions := []string{ways[i].call, "CreateTags", "CreateOrUpdateTags", "DeleteTags", "CreateCapacityReservation",
					"CancelCapacityReservation"}
				var faults []func(*cloudsim.Config)
				for _, a := range actions {
					faults = append(faults, fault(a, kind, 0, 1, 2, 3))
				}
				s, g := way(t, i, plenty(faults...), account())
				for round := range 20 {
					machines, err := s.provider().Launch(context.Background(), request(g, 8, token))
					s.clock.Step(10 * time.Second)
					if err == nil {
						if len(machines) != 8 || s.alive()[token] != 8 || len(s.world.Instances(true)) != 8 || s.ownReserved() != 0 {
							t.Fatalf("round %d: got %d machines, alive %v, reserved %d", round, len(machines), s.alive(), s.ownReserved())
						}
						if holds := held(s.listed(s.provider())); len(holds) > 0 {
							t.Errorf("holds are left: %v", holds)
						}
						return
					}
					if cloudprovider.Refusal(err) != nil {
						t.Fatalf("round %d: %v", round, err)
					}
				}
				t.Error("20 rounds were too few")
			})
		})
	}
}

func held(list []cloudprovider.Machine) (out []string) {
	for _, m := range list {
		if m.Hold {
			out = append(out, m.Name)
		}
	}
	return out
}

func TestThrottlingHasItsClass(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(fault(ways[i].call, cloudsim.CallRefused, 0, 1, 2)), account())
		p := s.provider()
		_, err := p.Launch(context.Background(), request(g, 8, token))
		if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Throttle {
			t.Fatalf("got %v, want class Throttle", err)
		}
		if len(s.alive()) > 0 || s.ownReserved() > 0 {
			t.Errorf("alive %v, reserved %d: want nothing", s.alive(), s.ownReserved())
		}
		if n := s.world.Calls(v1alpha1.ProviderAWS)[ways[i].call]; n != 3 {
			t.Errorf("%s was called %d times, want 3: throttled calls are worth another try", ways[i].call, n)
		}
	})
}

// TestWhatWasRefusedIsNotBoughtToTakeItBack: to repeat the call of an intent, so that it names what it has made, would make machines
// where no try of it was looked at.
func TestWhatWasRefusedIsNotBoughtToTakeItBack(t *testing.T) {
	for code, tries := range map[string]int{"RequestLimitExceeded": 3, "UnauthorizedOperation": 1, "RequestExpired": 1} {
		for _, ends := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the intent ends %t", code, ends), func(t *testing.T) {
				s, g := ownedGroup(t, plenty())
				refuse := func(action string, calls int) {
					s.world.HitNext(cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: action, Type: cloudsim.CallRefused,
						Error: &cloudsim.Error{Status: 400, Code: code, Message: "by the test"}}, calls)
				}
				refuse("LaunchInstances", tries)
				if !ends {
					refuse("DeleteTags", tries)
				}
				p := s.provider()
				if _, err := p.Launch(t.Context(), request(g, 4, token)); err == nil || ends && cloudprovider.Refusal(err) == nil {
					t.Fatalf("got %v, want a refusal", err)
				}
				if holds := held(s.listed(p)); len(holds) > 0 {
					if err := p.Terminate(t.Context(), g.Name, holds); err != nil {
						t.Fatal(err)
					}
				}
				if made := len(s.world.Instances(true)); made > 0 || len(held(s.listed(p))) > 0 {
					t.Errorf("%d machines were made, and the holds %v are left", made, held(s.listed(p)))
				}
			})
		}
	}
}

func TestAReservationThatIsPendingIsWaitedFor(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.ReservationDelay.Duration = time.Minute }))
	g := nodeGroup(v1alpha1.AWSReservation, v1alpha1.OnDemand)
	p := s.provider()
	_, err := p.Launch(context.Background(), request(g, 8, token))
	if err == nil || cloudprovider.Refusal(err) != nil || !strings.Contains(err.Error(), "is still pending") {
		t.Fatalf("got %v, want an error that says what it waits for", err)
	}
	list := s.listed(s.provider())
	if len(list) != 1 || !list[0].Hold || list[0].Launch != token || list[0].Group != g.Name || list[0].State != cloudprovider.Booting {
		t.Fatalf("got %+v, want the hold under its token", list)
	}
	s.clock.Step(time.Minute)
	if machines, err := s.provider().Launch(context.Background(), request(g, 8, token)); err != nil || len(machines) != 8 {
		t.Fatalf("got %d machines and %v", len(machines), err)
	}
	if s.reservedPlaces() != 0 || s.alive()[token] != 8 {
		t.Errorf("reserved %d, alive %v", s.reservedPlaces(), s.alive())
	}
}

// The dead-man's switch: no process comes back to the reservation.
func TestAReservationEndsByItself(t *testing.T) {
	for name, c := range map[string]struct {
		timeout *metav1.Duration
		want    time.Duration
	}{
		"by the group's timeout": {&metav1.Duration{Duration: time.Hour}, time.Hour},
		"not too soon":           {&metav1.Duration{Duration: time.Second}, 5 * time.Minute},
		"without a timeout":      {nil, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plenty(), account(func(c *simaws.Config) { c.ReservationDelay.Duration = 24 * time.Hour }))
			g := nodeGroup(v1alpha1.AWSReservation, v1alpha1.OnDemand)
			g.Spec.JoinTimeout = c.timeout
			if _, err := s.provider().Launch(context.Background(), request(g, 8, token)); err == nil || s.reservedPlaces() != 8 {
				t.Fatalf("got %v, reserved %d", err, s.reservedPlaces())
			}
			s.clock.Step(24 * time.Hour)
			for _, line := range s.world.Bill() {
				if got := line.Until.Sub(line.From); line.Open || got != c.want {
					t.Errorf("billed for %s (open: %v), want %s", got, line.Open, c.want)
				}
			}
		})
	}
}

// Machines that have died and that the group may not replace do not fill it for ever.
func TestTheDeadAreTakenOutOfTheGroup(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) {
		c.Pools[0].Script.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{0, 1, 2, 3}}}
	}), account(func(c *simaws.Config) { c.Groups[0].Max = 4 }))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	p := s.provider()
	for _, token := range []string{token, token + "0"} {
		if machines, err := p.Launch(context.Background(), request(g, 4, token)); err != nil || len(machines) != 4 {
			t.Fatalf("got %d machines and %v", len(machines), err)
		}
		s.clock.Step(2 * time.Minute)
	}
	if n := s.live(); n != 4 {
		t.Errorf("%d machines are alive, want 4", n)
	}
}

func TestWhatNoCallCouldMakeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1alpha1.NodeGroup)
		account func(*simaws.Config)
		count   int
		want    string
	}{
		"no spec.aws":    {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS = nil }, want: "has no spec.aws"},
		"another region": {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS.Region = "eu-west-1" }, want: "is eu-west-1, and Muster runs for us-east-1"},
		"group is gone":  {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS.AutoScalingGroup = "old" }, want: "there is no Auto Scaling group old"},
		"no reservation": {change: func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType = v1alpha1.Reserved }, want: "no spec.aws.capacityReservation"},
		"Spot, reserved": {change: func(g *v1alpha1.NodeGroup) {
			g.Spec.AWS.LaunchMethod, g.Spec.CapacityType = v1alpha1.AWSReservation, v1alpha1.Spot
		}, want: "only OnDemand can be reserved first"},
		"101 at once":       {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS.LaunchMethod = v1alpha1.AWSLaunchInstances }, count: 101, want: "LaunchInstances launches at most 100"},
		"no template":       {account: func(c *simaws.Config) { c.Groups[0].Template = "" }, want: "has no launch template"},
		"template is gone":  {account: func(c *simaws.Config) { c.Groups[0].Version = "7" }, want: "Could not find the specified version 7"},
		"subnet is gone":    {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS.Subnet = "subnet-x" }, want: "The subnet ID 'subnet-x' does not exist"},
		"type is not known": {change: func(g *v1alpha1.NodeGroup) { g.Spec.AWS.InstanceType = "p9.large" }, want: "The instance type 'p9.large' does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			a := account()
			if c.account != nil {
				c.account(&a)
			}
			s := newSim(t, plenty(), a)
			g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)
			if c.change != nil {
				c.change(g)
			}
			_, err := s.provider().Launch(context.Background(), request(g, max(c.count, 1), token))
			if cloudprovider.Refusal(err) == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a refusal that says %q", err, c.want)
			}
			if len(s.alive()) > 0 {
				t.Errorf("alive: %v", s.alive())
			}
		})
	}
}

// TestASucceededProcessChangesNothing: a process that another has succeeded neither
// launches nor terminates what the other has launched.
func TestASucceededProcessChangesNothing(t *testing.T) {
	deposed := errors.New("another leads")
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		p := s.providerThat(func() error { return deposed })
		if _, err := p.Launch(t.Context(), request(g, 2, token)); !errors.Is(err, deposed) || cloudprovider.Refusal(err) != nil {
			t.Errorf("Launch: %v; want what keeps it from acting, and no refusal", err)
		}
		if alive, reserved := s.alive(), s.ownReserved(); len(alive)+reserved > 0 {
			t.Errorf("it made machines of %v and reserved %d", alive, reserved)
		}
		machines, err := s.provider().Launch(t.Context(), request(g, 2, token))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Terminate(t.Context(), g.Name, names(machines)); !errors.Is(err, deposed) {
			t.Errorf("Terminate: %v; want what keeps it from acting", err)
		}
		if n := s.live(); n != 2 {
			t.Errorf("%d machines are alive, want the two that another has launched", n)
		}
	})
}

// A group that balances its zones terminates machines of a gang, which is in one zone.
func TestAGroupThatRebalancesGetsNoGang(t *testing.T) {
	twoZones := func(suspended ...string) *sim {
		return newSim(t, plenty(func(c *cloudsim.Config) {
			other := demandPool
			other.Zone = "us-east-1b"
			c.Pools = append(c.Pools, cloudsim.Pool{PoolKey: other})
		}), account(func(c *simaws.Config) {
			c.Groups[0].Subnets, c.Groups[0].Suspended = []string{subnet, "subnet-b"}, suspended
		}))
	}
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s := twoZones()
	s.groups = []*v1alpha1.NodeGroup{g}
	_, err := s.provider().Launch(context.Background(), request(g, 8, token))
	s.listed(s.provider()) // at each call the simulated group moves a machine
	if refused := cloudprovider.Refusal(err); refused == nil || refused.Class != v1alpha1.Config ||
		!strings.Contains(err.Error(), "suspend its process AZRebalance") {
		t.Errorf("the launch ends with %v and %d of 8 machines, want a refusal that names the fix", err, s.alive()[token])
	}
	s = twoZones("AZRebalance")
	s.groups = []*v1alpha1.NodeGroup{g}
	if _, err := s.provider().Launch(context.Background(), request(g, 8, token)); err != nil {
		t.Fatal(err)
	}
	s.listed(s.provider())
	if alive := s.alive()[token]; alive != 8 {
		t.Errorf("%d of 8 machines are alive in a group whose rebalancing is suspended", alive)
	}
}

// efa is an account whose launch template attaches network interfaces.
func efa(c *simaws.Config) {
	c.Types[0].EFAs = 32
	c.Templates[0].Interfaces = []simaws.Interface{
		{Type: "efa", Groups: []string{"sg-1", "sg-2"}}, {Type: "efa-only", Card: 1, Device: 1, Groups: []string{"sg-1"}},
	}
}

// What an Auto Scaling group gives to its machines Muster's have too, by every way to launch,
// though most are launched beside it.
func TestWhatAGroupHoldsIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*simaws.Config)
		holds  func(s *sim, in cloudsim.Instance) bool
	}{
		"network interfaces of the launch template": {efa, func(*sim, cloudsim.Instance) bool { return true }},
		"tags that propagate": {
			func(c *simaws.Config) {
				c.Groups[0].Propagated = map[string]string{"cost-center": "42", "aws:cloudformation:stack-name": "gpus"}
			},
			func(_ *sim, in cloudsim.Instance) bool { return in.Tags["cost-center"] == "42" },
		},
		"a placement group": {
			func(c *simaws.Config) { c.Groups[0].PlacementGroup = "rack" },
			func(_ *sim, in cloudsim.Instance) bool { return in.Together == "rack" },
		},
		"several subnets of a zone": {
			func(c *simaws.Config) {
				c.Subnets[0].Full = true
				c.Subnets = append(c.Subnets, simaws.Subnet{ID: "subnet-a-2", Zone: zone})
				c.Groups[0].Subnets = []string{subnet, "subnet-a-2"}
			},
			func(*sim, cloudsim.Instance) bool { return true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, i int) {
				s, g := way(t, i, plenty(), account(tc.change))
				p := s.provider()
				for range 2 { // once more with the same token
					if machines, err := p.Launch(context.Background(), request(g, 4, token)); err != nil || len(machines) != 4 {
						t.Fatalf("got %d machines and %v, want 4", len(machines), err)
					}
				}
				for _, in := range s.world.Instances(true) {
					if !tc.holds(s, in) {
						t.Errorf("machine %s lacks it; its tags are %v", in.ID, in.Tags)
					}
				}
				if n := len(s.listed(p)); n != 4 {
					t.Errorf("%d machines are listed, want 4", n)
				}
			})
		})
	}
}

// What passes by itself is no fault of the group. A launch into a reservation that is refused for it has made nothing, and does not keep
// the reservation, which is billed.
func TestARefusalThatPassesKeepsNoReservation(t *testing.T) {
	for _, code := range []string{"IncorrectState", "IncorrectInstanceState", "InsufficientVolumeCapacity", "InsufficientCapacityOnOutpost"} {
		status := 400
		if strings.HasPrefix(code, "Insufficient") {
			status = 500
		}
		s, g := way(t, 3, plenty(func(c *cloudsim.Config) {
			c.Calls = []cloudsim.CallFault{{
				Cloud: v1alpha1.ProviderAWS, Action: "RunInstances", Type: cloudsim.CallRefused,
				Error: &cloudsim.Error{Status: status, Code: code, Message: "Not now."},
			}}
		}), account())
		_, err := s.provider().Launch(t.Context(), request(g, 8, token))
		refused := cloudprovider.Refusal(err)
		if refused == nil || refused.Class != v1alpha1.Outage && refused.Class != v1alpha1.Stockout || s.ownReserved() > 0 {
			t.Errorf("%s: got %v and %d places are reserved, want a refusal and none", code, err, s.ownReserved())
		}
		if n := s.world.Calls(v1alpha1.ProviderAWS)["RunInstances"]; n != 1 {
			t.Errorf("%s: RunInstances was called %d times", code, n)
		}
	}
}

// TestAReservationThatEndsBetweenTwoCallsIsNoFaultOfTheGroup: a request that is deleted while its machines are made has its reservation
// terminated. The launch that runs into it is then refused, which says nothing about the group.
func TestAReservationThatEndsBetweenTwoCallsIsNoFaultOfTheGroup(t *testing.T) {
	for _, code := range []string{"InvalidCapacityReservationState", "InvalidCapacityReservationState.Unavailable"} {
		s, g := way(t, 3, plenty(func(c *cloudsim.Config) {
			c.Calls = []cloudsim.CallFault{{
				Cloud: v1alpha1.ProviderAWS, Action: "RunInstances", Type: cloudsim.CallRefused,
				Error: &cloudsim.Error{Status: 400, Code: code, Message: "The capacity reservation is in state 'cancelled'."},
			}}
		}), account())
		p := s.provider()
		if _, err := p.Launch(t.Context(), request(g, 8, token)); err == nil || cloudprovider.Refusal(err) != nil {
			t.Errorf("%s: got %v, want an error that is no refusal", code, err)
		}
		if err := p.Terminate(t.Context(), g.Name, held(s.listed(p))); err != nil || s.ownReserved() > 0 {
			t.Errorf("%s: %v, and %d places are reserved", code, err, s.ownReserved())
		}
	}
}
