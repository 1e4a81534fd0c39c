package gcp_test

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
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/placement"
	"github.com/muster-dev/muster/kwok/cloudsim"
	gcpsim "github.com/muster-dev/muster/kwok/cloudsim/gcp"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// block is the level of the tests.
const block = "cloud.google.com/gce-topology-block"

// racked has each pool in blocks of 6, 9 and 9 machines.
func racked(pools []cloudsim.Pool) []cloudsim.Pool { return blocksOf(pools, 6, 9, 9) }

// blocksOf has each pool in blocks a, b and so on, to which it deals one machine after the other.
func blocksOf(pools []cloudsim.Pool, machines ...int32) []cloudsim.Pool {
	for i := range pools {
		d := &v1alpha1.KwokDomains{NodeLabel: block, Placement: v1alpha1.PlacedScattered}
		for at, n := range machines {
			d.Of = append(d.Of, v1alpha1.KwokDomain{Name: string(rune('a' + at)), Machines: n})
		}
		pools[i].Script.Domains = d
	}
	return pools
}

// togetherOf requests machines in one block; in the named one, unless that is empty.
func togetherOf(g *v1alpha1.NodeGroup, count int, in string) cloudprovider.LaunchRequest {
	req := launchOf(g, count)
	req.Together = cloudprovider.Domain{Level: block, Value: in}
	return req
}

// blocks counts the machines that are alive by their block.
func (l *lab) blocks() map[string]int {
	out := map[string]int{}
	for _, in := range l.world.Instances(true) {
		if in.Phase != cloudsim.Terminated {
			out[in.Domain()]++
		}
	}
	return out
}

// listFor lists again and again, as a watch does.
func (l *lab) listFor(p *gcp.Provider, d time.Duration) {
	for end := l.clock.Now().Add(d); l.clock.Now().Before(end); l.clock.Step(time.Minute) {
		l.list(p)
	}
}

func TestAGangIsLaunchedInOneBlock(t *testing.T) {
	for _, method := range []string{"bulk", "spot", "spread"} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
			g := l.nodeGroup(method)
			for range 2 { // the second time after a restart
				if machines, err := launch(t, l, l.provider(), togetherOf(g, 8, "")); err != nil || len(machines) != 8 {
					t.Fatalf("got %d machines and %v, want 8", len(machines), err)
				}
			}
			if in, made := l.blocks(), l.front.Policies(); in["b"] != 8 || len(made) != 1 {
				t.Errorf("the machines are in %v, by the policies %v: want 8 in the first block that has room, by one policy", in, made)
			}
		})
	}
}

// The parts of a gang in two groups of a zone share a policy; what may be anywhere has none.
func TestOnePolicyForATokenAndZone(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
	p, g, other := l.provider(), l.nodeGroup("bulk"), l.nodeGroup("bulk")
	other.Name = "other.h100"
	anywhere := launchOf(g, 1)
	anywhere.Token += "0"
	if _, err := p.Launch(t.Context(), anywhere); err != nil || len(l.front.Policies()) > 0 {
		t.Fatalf("%v; a launch whose machines may be anywhere made the policies %v", err, l.front.Policies())
	}
	for _, g := range []*v1alpha1.NodeGroup{g, other} {
		if _, err := p.Launch(t.Context(), togetherOf(g, 2, "")); err != nil {
			t.Fatal(err)
		}
	}
	spread := togetherOf(l.nodeGroup("spread"), 2, "") // in another zone
	if _, err := p.Launch(t.Context(), spread); err != nil {
		t.Fatal(err)
	}
	if in, made := l.blocks(), l.front.Policies(); len(made) != 2 || in["a"] != 7 {
		t.Errorf("policies %v, machines in %v: want a policy for each zone, and all machines in a, in two pools", made, in)
	}
}

// A policy is a wish: where no block has room for all, the machines come and are judged by their labels.
func TestAPolicyIsBestEffort(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
	if _, err := l.provider().Launch(t.Context(), togetherOf(l.nodeGroup("bulk"), 12, "")); err != nil {
		t.Fatal(err)
	}
	if in := l.blocks(); len(in) < 2 {
		t.Errorf("12 machines are in %v, and no block has room for them", in)
	}
}

// A machine in place of a lost one is launched into the policy of those that it joins.
func TestReplacementsJoinThePolicy(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
	g := l.nodeGroup("bulk")
	first, err := l.provider().Launch(t.Context(), togetherOf(g, 8, ""))
	if err != nil {
		t.Fatal(err)
	}
	l.clock.Step(2 * time.Minute)
	if err := l.provider().Terminate(t.Context(), g.Name, names(first[:1])); err != nil {
		t.Fatal(err)
	}
	join := togetherOf(g, 1, "b")
	join.Token += "-r"
	stranger := join
	stranger.Token, stranger.Request = token+"-s", "team-b/other"
	for _, req := range []cloudprovider.LaunchRequest{join, stranger} {
		if _, err := l.provider().Launch(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if in, made := l.blocks(), l.front.Policies(); in["b"] != 8 || in["a"]+in["c"] != 1 || len(made) != 1 {
		t.Errorf("machines in %v, policies %v: want the replacement in b, by the policy that is there, and the stranger elsewhere", in, made)
	}
}

// Where Muster makes no policy the launch goes on as the template says.
func TestLaunchesWithoutAPolicyOfMusters(t *testing.T) {
	for name, change := range map[string]func(*gcpsim.Config){
		"the template names one":              func(c *gcpsim.Config) { c.Templates[0].PlacementPolicy = "own" },
		"the template names a reservation":    func(c *gcpsim.Config) { c.Templates[0].Reservation = "bought" },
		"the machine series takes none":       func(c *gcpsim.Config) { c.Templates[0].MachineType = "n1-standard-96" },
		"the machines are migrated":           func(c *gcpsim.Config) { c.Templates[0].OnHostMaintenance = "MIGRATE" },
		"A4X needs a policy of its own shape": func(c *gcpsim.Config) { c.Templates[0].MachineType = "a4x-highgpu-4g" },
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulated()
			pools := every(24)
			for _, other := range []string{"n1-standard-96", "a4x-highgpu-4g"} {
				sim.MachineTypes = append(sim.MachineTypes, gcpsim.MachineType{Name: other, VCPUs: 96, MemoryMB: 1024, GPUs: 4})
				p := pool(zoneA, v1alpha1.OnDemand, 24)
				p.Type = other
				pools = append(pools, p)
			}
			change(&sim)
			l := newLab(t, cloudsim.Config{Pools: pools}, sim)
			g := l.nodeGroup("bulk")
			g.Spec.GCP.MachineType = sim.Templates[0].MachineType
			if machines, err := l.provider().Launch(t.Context(), togetherOf(g, 2, "")); err != nil || len(machines) != 2 {
				t.Errorf("got %d machines and %v, want 2", len(machines), err)
			}
			if made := l.front.Policies(); len(made) > 0 {
				t.Errorf("made %v", made)
			}
		})
	}
}

// More machines than a policy takes cannot be together: that is known before any exists.
func TestTooManyForAPolicy(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: every(2000)}, simulated())
	g := l.nodeGroup("bulk")
	g.Spec.MaxNodes = 2000
	_, err := l.provider().Launch(t.Context(), togetherOf(g, 1501, ""))
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Quota || !strings.Contains(refusal.Message, "1500") {
		t.Errorf("got %v, want a refusal that names the limit", err)
	}
	if len(l.open()) > 0 || len(l.front.Policies()) > 0 {
		t.Errorf("%d machines and the policies %v are left", len(l.open()), l.front.Policies())
	}
	// The simulated cloud has the limit, too.
	if _, err := l.provider().Launch(t.Context(), togetherOf(g, 1500, "")); err != nil {
		t.Error(err)
	}
}

// Where Muster may not make a policy machines are launched without, and discovery says why.
func TestNoPermissionForAPolicy(t *testing.T) {
	const permission = "compute.resourcePolicies.create"
	sim := simulated()
	sim.Denied = []string{permission, "compute.resourcePolicies.list"}
	sim.Templates[0].Metadata = map[string]string{"muster-dev-cluster": cluster, "muster-dev-enabled": "", "muster-dev-max-nodes": "64",
		"muster-dev-topology": block}
	sim.Groups = sim.Groups[:1]
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, sim)
	p, g := l.provider(), l.nodeGroup("bulk")
	told := func() (out string) {
		found, err := p.Discover(t.Context())
		if err != nil || len(found.Groups) != 1 {
			t.Fatalf("%v; found %+v", err, found)
		}
		for _, w := range found.Groups[0].Warnings {
			if w.Reason == placement.NoPlacementPolicy {
				out += w.Message
			}
		}
		return out
	}
	if w := told(); w != "" {
		t.Errorf("warned before any launch: %s", w)
	}
	if machines, err := p.Launch(t.Context(), togetherOf(g, 2, "")); err != nil || len(machines) != 2 {
		t.Errorf("got %d machines and %v, want 2", len(machines), err)
	}
	if w := told(); !strings.Contains(w, permission) {
		t.Errorf("the warning is %q, want one that names %s", w, permission)
	}
	l.listFor(p, 10*time.Minute)
	if n := l.world.Calls(v1alpha1.ProviderGCP)["resourcePolicies.aggregatedList"]; n != 1 {
		t.Errorf("policies were listed %d times in ten minutes, though that is denied", n)
	}
}

// A group that makes its own machines and has nothing that puts them near each other is warned of, once a gang needed that.
func TestAGroupThatScatters(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*gcpsim.Config)
		level  string
		warns  bool
	}{
		"nothing":                    {level: block, warns: true},
		"no gang needed it":          {},
		"a workload policy":          {level: block, change: func(c *gcpsim.Config) { c.Groups[0].WorkloadPolicy = "near" }},
		"a compact placement policy": {level: block, change: func(c *gcpsim.Config) { c.Templates[0].PlacementPolicy = "near" }},
		"a reservation": {level: block, change: func(c *gcpsim.Config) {
			c.Templates[0].Reservation, c.Reservations = "bought", []gcpsim.Reservation{{Name: "bought", Zone: zoneA, Count: 8}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulated()
			sim.Templates[0].Metadata = map[string]string{"muster-dev-cluster": cluster, "muster-dev-enabled": "", "muster-dev-max-nodes": "64",
				"muster-dev-topology": block, "muster-dev-launch-method": "CreateInstances"}
			sim.Groups = []gcpsim.Group{{Name: "owned", Zone: zoneA, Template: "plain"}}
			if tc.change != nil {
				tc.change(&sim)
			}
			l := newLab(t, cloudsim.Config{Pools: every(24)}, sim)
			p, req := l.provider(), launchOf(l.nodeGroup("owned"), 2)
			req.Together.Level = tc.level
			if _, err := launch(t, l, p, req); err != nil {
				t.Fatal(err)
			}
			found, err := p.Discover(t.Context())
			if err != nil || len(found.Groups) != 1 {
				t.Fatalf("%v; found %+v", err, found)
			}
			warned := slices.ContainsFunc(found.Groups[0].Warnings, func(w cloudprovider.Warning) bool {
				return w.Reason == placement.NoWorkloadPolicy && strings.Contains(w.Message, block)
			})
			if warned != tc.warns {
				t.Errorf("warned: %t, want %t; %+v", warned, tc.warns, found.Groups[0].Warnings)
			}
		})
	}
}

// policyCall is a call about policies that goes wrong.
func policyCall(action string, kind cloudsim.CallFaultType) cloudsim.CallFault {
	return cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Action: action, Type: kind, Delay: metav1.Duration{Duration: 10 * time.Second},
		Error: &cloudsim.Error{Code: "rateLimitExceeded"}}
}

// Whatever becomes of the call that makes the policy, a repeated launch makes one, and all machines once.
func TestMakingAPolicyGoesWrong(t *testing.T) {
	for name, kind := range map[string]cloudsim.CallFaultType{
		"reply lost": cloudsim.ReplyLost, "call lost": cloudsim.CallLost, "late": cloudsim.CallLate, "too many calls": cloudsim.CallRefused,
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulated()
			sim.OperationTime = metav1.Duration{Duration: 2 * time.Second}
			l := newLab(t, cloudsim.Config{Pools: racked(every(24)), Lag: metav1.Duration{Duration: 3 * time.Second}}, sim)
			l.world.HitNext(policyCall("resourcePolicies.insert", kind), 1)
			p, req := l.provider(), togetherOf(l.nodeGroup("bulk"), 8, "")
			machines, err := p.Launch(t.Context(), req)
			for range 10 {
				if err == nil {
					break
				}
				if cloudprovider.Refusal(err) != nil {
					t.Fatalf("the launch is refused: %v", err)
				}
				l.clock.Step(5 * time.Second)
				machines, err = p.Launch(t.Context(), req)
			}
			if in, made := l.blocks(), l.front.Policies(); err != nil || len(machines) != 8 || in["b"] != 8 || len(made) != 1 {
				t.Errorf("%v: %d machines, in %v, policies %v", err, len(machines), in, made)
			}
		})
	}
}

// A launch that goes on without a policy, and comes back when there can be one, makes no machine twice, and is no mistake of the
// group: the cloud refuses an ID that it knows from another call.
func TestAPolicyComesLater(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24)), Lag: metav1.Duration{Duration: 20 * time.Second}}, simulated())
	failed := policyCall("resourcePolicies.insert", cloudsim.OperationFailed)
	failed.Error.Code = "INTERNAL_ERROR"
	l.world.HitNext(failed, 1)
	l.world.HitNext(policyCall("instances.bulkInsert", cloudsim.ReplyLost), 1)
	p, req := l.provider(), togetherOf(l.nodeGroup("bulk"), 3, "")
	if _, err := p.Launch(t.Context(), req); err == nil || len(l.front.Policies()) > 0 {
		t.Fatalf("%v, policies %v: want an error of the call, and none", err, l.front.Policies())
	}
	_, err := p.Launch(t.Context(), req)
	if refusal := cloudprovider.Refusal(err); refusal != nil && refusal.Class != v1alpha1.Lost || len(l.open()) != 3 {
		t.Errorf("%v, and %d machines: want no refusal but that machines are not seen, and 3", err, len(l.open()))
	}
}

// A policy goes when nothing needs it, whichever process made it, and not before; strangers' policies stay.
func TestPoliciesAreSwept(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24)), Lag: metav1.Duration{Duration: 20 * time.Second}}, simulated())
	g := l.nodeGroup("bulk")
	p, foreign := l.provider(), l.providerOf("dev")
	machines, err := p.Launch(t.Context(), togetherOf(g, 3, ""))
	if err != nil {
		t.Fatal(err)
	}
	made := fmt.Sprint(l.front.Policies())
	l.listFor(p, 20*time.Minute)
	l.listFor(foreign, 20*time.Minute)
	if left := fmt.Sprint(l.front.Policies()); left != made {
		t.Fatalf("the policies are %s, and %s is in use", left, made)
	}
	before := l.world.Calls(v1alpha1.ProviderGCP)
	l.listFor(p, 10*time.Minute)
	for action := range l.callsSince(before) {
		if strings.HasPrefix(action, "resourcePolicies.") {
			t.Errorf("%s was called while nothing was to be done", action)
		}
	}
	p = l.provider() // a restart
	if err := p.Terminate(t.Context(), g.Name, names(machines)); err != nil {
		t.Fatal(err)
	}
	l.listFor(foreign, 20*time.Minute)
	if len(l.front.Policies()) != 1 {
		t.Errorf("another cluster deleted %s", made)
	}
	l.listFor(p, 20*time.Minute)
	if left := l.front.Policies(); len(left) > 0 {
		t.Errorf("policies %v are left, and nothing is in them", left)
	}
}

// A process that ends between making a policy and its machines leaves a policy: the next one deletes it.
func TestAPolicyIsLeftByACrash(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
	g := l.nodeGroup("bulk")
	l.world.HitNext(policyCall("instances.bulkInsert", cloudsim.CallLost), 1)
	if _, err := l.provider().Launch(t.Context(), togetherOf(g, 3, "")); err == nil || len(l.front.Policies()) != 1 {
		t.Fatalf("%v, policies %v: want one that is left", err, l.front.Policies())
	}
	standby := l.providerThat(cluster, func() error { return errors.New("another process acts") })
	l.listFor(standby, 10*time.Minute)
	if len(l.front.Policies()) != 1 {
		t.Errorf("a process that must not act has deleted the policy")
	}
	next := l.provider()
	l.listFor(next, 4*time.Minute)
	if len(l.front.Policies()) != 1 {
		t.Errorf("the policy was deleted before its launch could come back")
	}
	if machines, err := next.Launch(t.Context(), togetherOf(g, 3, "")); err != nil || len(machines) != 3 {
		t.Fatalf("got %d machines and %v", len(machines), err)
	}
	l.listFor(next, 10*time.Minute)
	if len(l.front.Policies()) != 1 {
		t.Errorf("the policy was deleted under its machines")
	}
}

// A launch that comes back after its policy was swept makes it again, though the cloud still knows the call that made it first.
func TestALaunchComesBackAfterTheSweep(t *testing.T) {
	l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
	p, req := l.provider(), togetherOf(l.nodeGroup("bulk"), 3, "")
	l.world.HitNext(policyCall("instances.bulkInsert", cloudsim.CallLost), 1)
	if _, err := p.Launch(t.Context(), req); err == nil {
		t.Fatal("the call was not lost")
	}
	l.listFor(p, 20*time.Minute)
	if left := l.front.Policies(); len(left) > 0 {
		t.Fatalf("policies %v are left, and nothing is in them", left)
	}
	if machines, err := p.Launch(t.Context(), req); err != nil || len(machines) != 3 || len(l.front.Policies()) != 1 {
		t.Errorf("got %d machines and %v, policies %v", len(machines), err, l.front.Policies())
	}
}

// What the cloud refuses to delete, or does not delete though it said so, is tried again.
func TestSweepingGoesWrong(t *testing.T) {
	for _, kind := range []cloudsim.CallFaultType{cloudsim.ReplyLost, cloudsim.CallLost, cloudsim.CallRefused, cloudsim.OperationFailed} {
		t.Run(string(kind), func(t *testing.T) {
			l := newLab(t, cloudsim.Config{Pools: racked(every(24))}, simulated())
			p, g := l.provider(), l.nodeGroup("bulk")
			machines, err := p.Launch(t.Context(), togetherOf(g, 3, ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Terminate(context.Background(), g.Name, names(machines)); err != nil {
				t.Fatal(err)
			}
			l.world.HitNext(policyCall("resourcePolicies.delete", kind), 1)
			l.listFor(p, 20*time.Minute)
			if left := l.front.Policies(); len(left) > 0 {
				t.Errorf("policies %v are left", left)
			}
		})
	}
}
