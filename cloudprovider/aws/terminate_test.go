package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func TestExactlyTheNamedMachinesAreTerminated(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		p := s.provider()
		machines := s.launched(p, g, 64)
		taken := names(machines)[:20]
		// Bad IDs of all kinds are among the good ones.
		mixed := append([]string{"i-0ffffffffffffffff", "i-nonsense", "cr-0ffffffffffffffff", "nonsense", inventory.HoldPrefix + "gone/0",
			inventory.HoldPrefix}, taken...)
		if err := s.provider().Terminate(context.Background(), g.Name, mixed); err != nil {
			t.Fatal(err)
		}
		for _, in := range s.world.Instances(true) {
			if ended := in.Phase == cloudsim.Terminated; ended != slices.Contains(taken, in.ID) {
				t.Errorf("instance %s: ended %v", in.ID, ended)
			}
		}
		if err := p.Terminate(context.Background(), g.Name, mixed); err != nil {
			t.Errorf("once more: %v", err)
		}
		// A group that owns its machines may have lowered its size by these, or it
		// would make others.
		if n := len(s.alive()); s.alive()[token] != 44 || n != 1 {
			t.Errorf("alive: %v, want 44", s.alive())
		}
	})
}

func TestTheGroupDoesNotReplaceWhatIsTerminated(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups[0].Suspended = nil }))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	machines := s.launched(p, g, 8)
	if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
		t.Fatal(err)
	}
	s.listed(p) // at each call the simulated group looks for what it lacks
	if n := len(s.world.Instances(true)); n != 8 || len(s.alive()) != 0 {
		t.Errorf("%d instances were made, alive %v: the group has replaced some", n, s.alive())
	}
}

func TestAGroupAtItsMinimumRefusesByName(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups[0].Min = 2 }))
	s.groups = []*v1alpha1.NodeGroup{nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)}
	p := s.provider()
	err := p.Terminate(context.Background(), "gpu-a", names(s.listed(p)))
	if refused := cloudprovider.CauseOf(err); refused == nil || refused.Class != v1alpha1.Config ||
		!strings.Contains(err.Error(), "minSize (2)") {
		t.Errorf("got %v, want AWS's own words", err)
	}
	if s.alive()[""] != 2 {
		t.Errorf("alive: %v", s.alive())
	}
}

// One machine that must not go keeps none of the others.
func TestARefusalForOneMachineIsForOneMachine(t *testing.T) {
	protected := func(c *simaws.Config) { c.Protected = []string{"i-00000000000000003"} }
	minimum := func(c *simaws.Config) { c.Groups[0].Min, c.Groups[0].Desired = 1, 1 }
	for name, tc := range map[string]struct {
		method v1alpha1.AWSLaunchMethod
		change func(*simaws.Config)
		// left are the machines that stay.
		left int
		text string
		most int64
	}{
		"a machine is protected from termination": {v1alpha1.AWSFleet, protected, 1, "disableApiTermination", 3},
		"the group keeps its minimum":             {v1alpha1.AWSLaunchInstances, minimum, 1, "minSize (1)", 12},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plenty(), account(tc.change))
			g := nodeGroup(tc.method, v1alpha1.OnDemand)
			s.groups = []*v1alpha1.NodeGroup{g}
			p := s.provider()
			if _, err := p.Launch(context.Background(), request(g, 8, token)); err != nil {
				t.Fatal(err)
			}
			err := p.Terminate(context.Background(), g.Name, names(s.listed(p)))
			if refused := cloudprovider.CauseOf(err); refused == nil || refused.Class != v1alpha1.Config || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want the refusal for one machine", err)
			}
			calls := s.world.Calls(v1alpha1.ProviderAWS)
			if n := calls["TerminateInstances"] + calls["TerminateInstanceInAutoScalingGroup"]; s.live() != tc.left || n > tc.most {
				t.Errorf("%d machines are alive after %d calls, want %d after at most %d", s.live(), n, tc.left, tc.most)
			}
		})
	}
}

// Without the permission no machine goes, and AWS is not asked about each of them.
func TestADenialIsForAll(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Denied = []string{"ec2:TerminateInstances"} }))
	g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand)
	p := s.provider()
	machines := s.launched(p, g, 8)
	if err := p.Terminate(context.Background(), g.Name, names(machines)); cloudprovider.CauseOf(err) == nil {
		t.Errorf("got %v, want the refusal", err)
	}
	if n := s.world.Calls(v1alpha1.ProviderAWS)["TerminateInstances"]; n != 1 {
		t.Errorf("TerminateInstances was called %d times, want once", n)
	}
}

// A call whose reply was lost has taken machines out that a lifecycle hook holds. AWS refuses to take them out once more and names one
// of them each time: what there is to do is listed, not found by a call for each.
func TestALostReplyIsNotFoundOutOneByOne(t *testing.T) {
	for name, retains := range map[string]bool{"held": false, "retained": true} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plenty(fault("TerminateInstanceInAutoScalingGroup", cloudsim.ReplyLost, 0)), account(func(c *simaws.Config) {
				c.Groups[0].TerminatingWait.Duration, c.Groups[0].Retains, c.Groups[0].Min = time.Second, retains, 2
			}))
			g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
			s.groups = []*v1alpha1.NodeGroup{g}
			p := s.provider()
			machines := s.launched(p, g, 8)
			for range 3 {
				if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
					t.Fatal(err)
				}
				s.clock.Step(2 * time.Second)
			}
			s.listed(p)
			if s.alive()[token] != 0 || s.alive()[""] != 2 {
				t.Errorf("alive are %v, want the minimum of the group alone", s.alive())
			}
			if n := s.world.Calls(v1alpha1.ProviderAWS)["TerminateInstanceInAutoScalingGroup"]; n > 3 {
				t.Errorf("machines were taken out by %d calls, want at most 3", n)
			}
		})
	}
}

// A machine that a lifecycle hook holds is on its way out: its group shrinks by it once.
func TestALifecycleHookIsWaitedFor(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups[0].TerminatingWait.Duration = 10 * time.Minute }))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	machines := s.launched(p, g, 4)
	for round := range 5 {
		if err := p.Terminate(context.Background(), g.Name, names(machines)[:2]); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if n := s.world.Calls(v1alpha1.ProviderAWS)["TerminateInstanceInAutoScalingGroup"]; n != 1 {
			t.Fatalf("round %d: machines were taken out %d times, want once", round, n)
		}
		s.clock.Step(2 * time.Minute)
	}
	s.clock.Step(time.Minute)
	s.listed(p)
	if s.alive()[token] != 2 {
		t.Errorf("alive are %v, want the 2 that stay", s.alive())
	}
}

// The lifecycle policy of a group may retain a machine whose hook was abandoned. It is billed until
// its termination is requested again, and its group has shrunk by it already.
func TestRetainedMachinesAreTerminated(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) {
		c.Groups[0].TerminatingWait.Duration, c.Groups[0].Retains, c.Groups[0].Min = time.Minute, true, 2
	}))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	machines := s.launched(p, g, 4)
	for range 3 {
		if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(2 * time.Minute)
	}
	s.listed(p)
	if s.alive()[token] != 0 || s.alive()[""] != 2 {
		t.Errorf("alive are %v, want the minimum of the group alone", s.alive())
	}
}

// Where calls take long, two of them may take the same machines out, and the group then wants fewer than it has, down to its minimum.
// The others go all the same.
func TestAGroupThatHasTooManyLetsThemGo(t *testing.T) {
	s := newSim(t, plenty(), account(func(c *simaws.Config) { c.Groups[0].TerminatingWait.Duration, c.Groups[0].Retains = time.Second, true }))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	machines := names(s.launched(p, g, 4))
	for range 2 {
		if err := p.terminator.OutOf(context.Background(), group, machines[:2]); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(2 * time.Second)
	}
	for range 2 {
		if err := p.Terminate(context.Background(), g.Name, machines); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(2 * time.Second)
	}
	if s.live() > 0 {
		t.Errorf("%d machines are alive", s.live())
	}
}

// A launch makes room by what has ended in the group, and leaves alone what AWS has only stopped:
// it starts it again, and a gang is on it.
func TestALaunchSparesStoppedMachines(t *testing.T) {
	s := newSim(t, plenty(), account())
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	machines := s.launched(p, g, 2)
	s.clock.Step(2 * time.Minute)
	s.world.Stop(machines[0].Name, 3*time.Minute)
	if _, err := p.Launch(context.Background(), request(g, 2, "uid-2")); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(5 * time.Minute)
	if s.alive()[token] != 2 || s.alive()["uid-2"] != 2 {
		t.Errorf("alive are %v, want 2 machines of each launch", s.alive())
	}
}

// What AWS has stopped is seen again when it runs again, and goes if it never does.
func TestStoppedMachines(t *testing.T) {
	eachWay(t, func(t *testing.T, i int) {
		s, g := way(t, i, plenty(), account())
		p := s.provider()
		machines := s.launched(p, g, 2)
		s.clock.Step(2 * time.Minute)
		state := func() (out cloudprovider.Machine) {
			for _, m := range s.listed(p) {
				if m.Name == machines[0].Name {
					out = m
				}
			}
			return out
		}
		ran := state()
		s.world.Stop(machines[0].Name, time.Minute)
		if m := state(); m.State != cloudprovider.Terminated || !m.Kept || !strings.Contains(m.Reason, "scheduled retirement") {
			t.Errorf("a stopped machine is listed as %+v", m)
		}
		s.clock.Step(time.Minute)
		if m := state(); m.State != cloudprovider.Running || m.Kept || !m.Restarted(ran) {
			t.Errorf("a machine that was started again is listed as %+v, it was %+v", m, ran)
		}
		s.world.Stop(machines[0].Name, 0)
		if err := p.Terminate(context.Background(), g.Name, names(machines)[:1]); err != nil || s.alive()[token] != 1 {
			t.Errorf("alive are %v after the stopped one was terminated (%v)", s.alive(), err)
		}
	})
}

// A bad ID among 64 must not cost a call for each.
func TestMachinesThatAreNotVisibleYetAreNotForgotten(t *testing.T) {
	s := newSim(t, plenty(func(c *cloudsim.Config) {
		c.Calls = []cloudsim.CallFault{{
			Cloud: v1alpha1.ProviderAWS, Action: "TerminateInstances", Type: cloudsim.CallRefused, Calls: []int64{0, 1, 2},
			Error: &cloudsim.Error{Code: "InvalidInstanceID.NotFound", Message: "The instance IDs do not exist"},
		}}
	}), account())
	g := nodeGroup(v1alpha1.AWSFleet, v1alpha1.Spot)
	p := s.provider()
	machines := s.launched(p, g, 2)
	if err := p.Terminate(context.Background(), g.Name, names(machines)); err == nil {
		t.Error("the machines count as terminated, and are alive")
	}
	if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil || len(s.alive()) > 0 {
		t.Errorf("got %v, alive %v", err, s.alive())
	}
}

func TestHoldsAreTerminatedByName(t *testing.T) {
	t.Run("a reservation", func(t *testing.T) {
		s := newSim(t, plenty(), account(func(c *simaws.Config) { c.ReservationDelay.Duration = time.Hour }))
		g := nodeGroup(v1alpha1.AWSReservation, v1alpha1.OnDemand)
		if _, err := s.provider().Launch(context.Background(), request(g, 8, token)); err == nil {
			t.Fatal("the launch is through")
		}
		p := s.provider()
		if err := p.Terminate(context.Background(), g.Name, names(s.listed(p))); err != nil || s.reservedPlaces() != 0 {
			t.Errorf("got %v, reserved %d", err, s.reservedPlaces())
		}
		if left := s.listed(p); len(left) > 0 {
			t.Errorf("still listed: %+v", left)
		}
	})
	// The process dies at each step of LaunchInstances; what comes after it knows
	// nothing and terminates what is listed, until nothing is.
	for _, dies := range []struct {
		at     string
		faults []func(*cloudsim.Config)
		// made is how many machines there are before the termination.
		made int
	}{
		{"before the call", []func(*cloudsim.Config){fault("LaunchInstances", cloudsim.CallLost, 0, 1, 2)}, 0},
		{"before the reply", []func(*cloudsim.Config){fault("LaunchInstances", cloudsim.ReplyLost, 0, 1, 2)}, 8},
		{"before the tags", []func(*cloudsim.Config){tagsFail()}, 8},
		{"before the intent goes", []func(*cloudsim.Config){fault("DeleteTags", cloudsim.CallLost, 0, 1, 2)}, 8},
	} {
		for _, later := range []time.Duration{time.Second, 10 * time.Minute} {
			t.Run(fmt.Sprintf("LaunchInstances dies %s, %s ago", dies.at, later), func(t *testing.T) {
				s := newSim(t, plenty(dies.faults...), account())
				g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
				s.groups = []*v1alpha1.NodeGroup{g}
				s.front.Grow(group, 3)
				s.clock.Step(time.Hour)
				if _, err := s.provider().Launch(context.Background(), request(g, 8, token)); err == nil {
					t.Fatal("the launch is through")
				}
				if n := s.live() - 3; n != dies.made {
					t.Fatalf("%d machines were made, want %d", n, dies.made)
				}
				s.clock.Step(later)
				p := s.provider()
				for round := 0; ; round++ {
					var ours []string
					others := 0
					for _, m := range s.listed(p) {
						if m.Launch == token {
							ours = append(ours, m.Name)
						} else if m.State < cloudprovider.Terminated && !m.Unattributed {
							others++
						}
					}
					if others != 3 {
						t.Fatalf("%d machines are listed as the group's own, want 3", others)
					}
					ours = slices.DeleteFunc(ours, func(n string) bool { return s.ended(n) })
					if len(ours) == 0 {
						break
					}
					if round > 5 {
						t.Fatalf("still listed: %v", ours)
					}
					if err := p.Terminate(context.Background(), g.Name, ours); err != nil {
						t.Fatal(err)
					}
				}
				if s.live() != 3 {
					t.Errorf("%d machines are alive, want the group's own 3", s.live())
				}
				if made := len(s.world.Instances(true)) - 3; later > 2*time.Minute && made != dies.made {
					t.Errorf("the termination has made %d machines to terminate them", made-dies.made)
				}
			})
		}
	}
}

// A call that a process makes long after its intent, and that is still at work when another process takes that back, leaves no machine
// that no launch owns: whatever comes late of it is listed under its launch, or is what the termination has ended.
func TestACallLongAfterItsIntentIsTerminated(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 4 * time.Minute, 6 * time.Minute, 20 * time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			s := newSim(t, plenty(), account())
			g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
			s.groups = []*v1alpha1.NodeGroup{g}
			first := s.provider()
			hit := func(kind cloudsim.CallFaultType, delay time.Duration) {
				s.world.HitNext(cloudsim.CallFault{
					Cloud: v1alpha1.ProviderAWS, Action: "LaunchInstances", Type: kind, Delay: metav1.Duration{Duration: delay},
				}, 3)
				if _, err := first.Launch(t.Context(), request(g, 2, token)); err == nil {
					t.Fatal("the launch is through")
				}
			}
			for began := s.clock.Now(); s.clock.Since(began) < after; s.clock.Step(20 * time.Second) {
				hit(cloudsim.CallLost, 0)
			}
			hit(cloudsim.CallLate, 90*time.Second)
			next := s.provider()
			for range 30 {
				var ours []string
				for _, m := range s.listed(next) {
					if m.Launch != token && !m.Unattributed {
						t.Fatalf("machine %s is listed without a launch", m.Name)
					}
					if m.State < cloudprovider.Terminated && !m.Unattributed {
						ours = append(ours, m.Name)
					}
				}
				if err := next.Terminate(t.Context(), g.Name, ours); err != nil {
					t.Fatal(err)
				}
				s.clock.Step(10 * time.Second)
			}
			if s.live() > 0 {
				t.Errorf("%d machines are alive", s.live())
			}
		})
	}
}

func (s *sim) live() (n int) {
	for _, in := range s.world.Instances(true) {
		if in.Phase != cloudsim.Terminated {
			n++
		}
	}
	return n
}

func (s *sim) ended(id string) bool {
	return slices.ContainsFunc(s.world.Instances(true),
		func(in cloudsim.Instance) bool { return in.ID == id && in.Phase == cloudsim.Terminated })
}

// A try whose reply was lost may have made machines, whatever the tries after it say.
func TestALostReplyBehindThrottling(t *testing.T) {
	s := newSim(t, plenty(fault("LaunchInstances", cloudsim.ReplyLost, 0), fault("LaunchInstances", cloudsim.CallRefused, 1, 2)), account())
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	p := s.provider()
	_, err := p.Launch(context.Background(), request(g, 8, token))
	if !api.HasCode(err, "RequestLimitExceeded") || cloudprovider.Refusal(err) != nil || s.live() != 8 {
		t.Fatalf("got %v, want that says nothing about the launch; %d machines are alive", err, s.live())
	}
	list := known(s.listed(p))
	if len(list) != 1 || !list[0].Hold || list[0].Launch != token {
		t.Fatalf("got %+v, want the hold under its token", list)
	}
	if err := p.Terminate(context.Background(), g.Name, names(list)); err != nil || s.live() > 0 {
		t.Errorf("got %v, %d machines are alive", err, s.live())
	}
}

// autoScaling are the calls to Auto Scaling.
var autoScaling = []string{
	"CreateOrUpdateTags", "DeleteTags", "DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "LaunchInstances",
	"TerminateInstanceInAutoScalingGroup",
}

// harmAutoScaling has its calls fail until end is called.
func (s *sim) harmAutoScaling() (end func()) {
	var ends []func()
	for _, action := range autoScaling {
		ends = append(ends, s.world.Harm(cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: action, Type: cloudsim.CallRefused,
			Error: &cloudsim.Error{Status: 500, Code: "InternalFailure", Message: "We encountered an internal error."}}))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// Machines that bear Muster's tags and no group's are ended without Auto Scaling, also beside some of a group, and are listed without it.
func TestMachinesBesideTheirGroupNeedNoAutoScaling(t *testing.T) {
	s := newSim(t, plenty(), account())
	beside, within := nodeGroup(v1alpha1.AWSFleet, v1alpha1.OnDemand), nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	within.Name = "gpu-own"
	s.groups = []*v1alpha1.NodeGroup{beside, within}
	p := s.provider()
	fleet := s.launched(p, beside, 16)
	own, err := p.Launch(t.Context(), request(within, 4, token+"0"))
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Step(2 * time.Minute)
	end := s.harmAutoScaling()
	for _, p := range []*Provider{p, s.provider()} {
		if list, err := p.list(t.Context()); err != nil || list.Failed[inventory.AutoScalingScope] == nil || len(list.Scopes) != 1 {
			t.Errorf("the scopes are %q, and failed are %v: %v", list.Scopes, list.Failed, err)
		}
		if diff := cmp.Diff(map[string]int{"launched": 20}, listedAs(s.listed(p))); diff != "" {
			t.Errorf("listed without Auto Scaling (-want +got):\n%s", diff)
		}
	}
	if err := p.Terminate(t.Context(), beside.Name, names(fleet)); err != nil || s.alive()[token] > 0 {
		t.Errorf("got %v, alive are %v, want that those of the fleet go", err, s.alive())
	}
	if err := p.Terminate(t.Context(), within.Name, names(own)); err == nil || s.alive()[token+"0"] != 4 {
		t.Errorf("got %v, alive are %v, want that those of the group wait for it", err, s.alive())
	}
	end()
	if err := p.Terminate(t.Context(), within.Name, names(own)); err != nil || s.live() > 0 {
		t.Errorf("got %v, alive are %v", err, s.alive())
	}
}

// A machine that its group is terminating is of no use to a launch any more, though a lifecycle hook may hold it, billed, for hours, or its
// group keeps it after that: a rollback does not wait for it.
func TestAMachineThatItsGroupIsTerminatingHasEnded(t *testing.T) {
	for name, retains := range map[string]bool{"held by a hook": false, "retained after it": true} {
		t.Run(name, func(t *testing.T) {
			s, g := ownedGroup(t, plenty(), func(c *simaws.Config) {
				c.Groups[0].TerminatingWait.Duration, c.Groups[0].Retains = time.Hour, retains
			})
			p := s.provider()
			machines := s.launched(p, g, 4)
			s.clock.Step(2 * time.Minute)
			if err := p.Terminate(t.Context(), g.Name, names(machines)[:2]); err != nil {
				t.Fatal(err)
			}
			for _, p := range []*Provider{p, s.provider()} {
				for _, m := range s.listed(p) {
					given := slices.Contains(names(machines)[:2], m.Name)
					if given != (m.State == cloudprovider.Terminated) || m.Kept || given != strings.Contains(m.Reason, "Terminating:Wait") ||
						m.Billed != given {
						t.Errorf("listed is %+v; was it given up: %v", m, given)
					}
				}
			}
			if s.alive()[token] != 4 {
				t.Errorf("alive are %v, want that the hook holds them", s.alive())
			}
			s.clock.Step(time.Hour)
			for _, m := range s.listed(s.provider()) {
				if want := retains && slices.Contains(names(machines)[:2], m.Name); m.Kept != want || m.Billed != want {
					t.Errorf("after the hook there is %+v, kept and billed: want %v", m, want)
				}
			}
			for range 2 {
				if err := p.Terminate(t.Context(), g.Name, names(machines)[:2]); err != nil {
					t.Fatal(err)
				}
				s.clock.Step(time.Hour)
			}
			wantListed(t, "in the end", p, s, map[string]int{"launched": 2})
			if s.alive()[token] != 2 {
				t.Errorf("alive are %v, want the others", s.alive())
			}
		})
	}
}
