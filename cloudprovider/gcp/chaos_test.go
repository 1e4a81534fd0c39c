package gcp_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/cloudprovider/gcp/inventory"
	"github.com/muster-dev/muster/cloudprovider/gcp/permissions"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	chaosRuns = 200
	// round is the time between two looks, as of a watch that is busy.
	round = 5 * time.Second
	// mishaps happen until then.
	mishaps = 2 * time.Minute
	// bound is what the package states for every way of launching: from the time when
	// a launch is given up to the end of its last machine.
	bound = gcp.Bound
)

// gang is a launch as the core knows it.
type gang struct {
	cloudprovider.LaunchRequest
	// fate is decided once: whole, or given up at a time.
	whole   bool
	givenUp time.Time
	// fickle gangs are given up although all of their machines came.
	fickle bool
}

func (g *gang) inFlight() bool { return !g.whole && g.givenUp.IsZero() }

// TestChaos runs gangs through a cloud that misbehaves, with an adapter that is
// restarted at any time, and terminates as the core does: by name, what is listed
// and belongs to no launch that goes on. No machine of a launch that was given up
// stays, none is paid for past the bound, and no launch has more than it requested.
func TestChaos(t *testing.T) {
	runs := chaosRuns
	if testing.Short() {
		runs = 20
	}
	outcomes, ran := map[string]int{}, 0
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ran++
			chaosRun(t, uint64(seed), outcomes)
		})
	}
	if ran < runs {
		return // a few were chosen
	}
	for _, what := range []string{"whole", "given up", "fickle", "restarted", "call failed"} {
		if outcomes[what] < runs/10 {
			t.Errorf("%q came %d times in %d runs: the chaos tests too little", what, outcomes[what], runs)
		}
	}
	t.Log(outcomes)
}

// misbehaving is a world in which everything goes wrong at times.
func misbehaving(r *rand.Rand) cloudsim.Config {
	seconds := func(n int) *metav1.Duration {
		return &metav1.Duration{Duration: time.Duration(r.IntN(n)) * time.Second}
	}
	percent := func(n int) *int32 { return new(int32(r.IntN(n))) }
	faults := []v1alpha1.KwokFault{
		{Type: v1alpha1.FaultDry, From: seconds(60), Until: seconds(120)},
		{Type: v1alpha1.FaultBootDeath, Percent: percent(20), After: seconds(50)},
		{Type: v1alpha1.FaultReclaim, Percent: percent(20), After: seconds(90)},
	}
	config := cloudsim.Config{Seed: r.Int64(), Pools: racked(every(int32(3+r.IntN(8)), faults...)), Lag: *seconds(20), TagLag: *seconds(40)}
	config.Terminations = []cloudsim.TerminationFault{
		{Cloud: v1alpha1.ProviderGCP, Share: cloudsim.Share{Percent: 1 + r.IntN(9)}},
		{Cloud: v1alpha1.ProviderGCP, Share: cloudsim.Share{Percent: 1 + r.IntN(29)}, Delay: seconds(60)},
	}
	config.Stops = []cloudsim.Stop{{
		Cloud: v1alpha1.ProviderGCP, Share: cloudsim.Share{Percent: 1 + r.IntN(29)}, After: *seconds(300), For: *seconds(300),
	}}
	until := metav1.Duration{Duration: mishaps}
	for _, fault := range []cloudsim.CallFault{
		{Type: cloudsim.ReplyLost}, {Type: cloudsim.CallLost},
		{Type: cloudsim.CallLate, Delay: metav1.Duration{Duration: time.Second + seconds(30).Duration}},
		{Type: cloudsim.CallRefused, Error: &cloudsim.Error{Code: "rateLimitExceeded"}},
		{Type: cloudsim.OperationFailed, Error: &cloudsim.Error{Code: "INTERNAL_ERROR"}},
		{Type: cloudsim.CallRefused, Error: &cloudsim.Error{Status: 500, Code: "internalError"}},
	} {
		fault.Cloud, fault.Percent, fault.Until = v1alpha1.ProviderGCP, 1+r.IntN(8), until
		config.Calls = append(config.Calls, fault)
	}
	for _, action := range launches {
		config.Calls = append(config.Calls, cloudsim.CallFault{Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallSlow, Action: action,
			Percent: 1 + r.IntN(29), Until: until, Delay: metav1.Duration{Duration: time.Second + seconds(60).Duration}})
	}
	actions := slices.DeleteFunc(slices.Sorted(maps.Keys(permissions.ByMethod)), func(action string) bool {
		// Without a list of instances nothing is known, and nothing goes on.
		return strings.HasPrefix(action, "instances.") && strings.HasSuffix(strings.ToLower(action), "list") ||
			len(permissions.ByMethod[action]) == 0
	})
	for range r.IntN(3) {
		config.Calls = slices.Insert(config.Calls, 0, cloudsim.CallFault{
			Cloud: v1alpha1.ProviderGCP, Type: cloudsim.CallRefused, Action: actions[r.IntN(len(actions))],
			From: *seconds(int(mishaps / time.Second)), Until: until,
			Error: &cloudsim.Error{Code: "forbidden", Message: "Required 'a' permission for 'projects/lab'"},
		})
	}
	return config
}

// launches and terminations are the calls that may be slow.
var launches = []string{
	"instances.bulkInsert", "instances.delete", "resourcePolicies.insert",
	"instanceGroupManagers.createInstances", "instanceGroupManagers.deleteInstances",
	"regionInstanceGroupManagers.createInstances", "regionInstanceGroupManagers.deleteInstances",
	"instanceGroupManagerResizeRequests.insert", "instanceGroupManagerResizeRequests.cancel",
	"regionInstanceGroupManagerResizeRequests.insert", "regionInstanceGroupManagerResizeRequests.cancel",
}

// stale is a machine that an old list has, and that the cloud has forgotten.
const stale = "muster-6f9619ff-8b86-d011-b42d-00c04fc964f9-1-forgotten-0"

func chaosRun(t *testing.T, seed uint64, outcomes map[string]int) {
	r := rand.New(rand.NewPCG(seed, 5))
	sim := simulated()
	sim.OperationTime = metav1.Duration{Duration: time.Duration(r.IntN(10)) * time.Second}
	if r.IntN(2) == 0 {
		sim.Groups[3].ActionOnFailure = "REPAIR"
	}
	for i := range sim.Templates {
		// Longer than the bound: machines that are terminated must not get that time.
		sim.Templates[i].GracefulShutdown.Duration = time.Duration(r.IntN(2)) * time.Hour
	}
	l := newLab(t, misbehaving(r), sim)
	var gangs []*gang
	for i := range 3 {
		g := &gang{LaunchRequest: launchOf(l.nodeGroup(methods[r.IntN(len(methods))]), 1+r.IntN(5)), fickle: r.IntN(4) == 0}
		g.Group.Name += fmt.Sprint(".", i)
		g.Token = fmt.Sprintf("6f9619ff-8b86-d011-b42d-00c04fc964f%d-1", i)
		if r.IntN(2) == 0 {
			g.Together.Level = block
		}
		gangs = append(gangs, g)
	}
	p := l.provider()
	deadline := began.Add(mishaps + time.Duration(r.IntN(60))*time.Second)
	end := began.Add(mishaps + time.Minute + 2*bound)
	for now := l.clock.Now(); now.Before(end); now = l.clock.Now() {
		l.front.SetUnreachable()
		if now.Before(began.Add(mishaps)) && r.IntN(4) == 0 {
			l.front.SetUnreachable([]string{zoneA, zoneB, region}[r.IntN(3)])
		}
		if r.IntN(8) == 0 {
			p = l.provider()
			outcomes["restarted"]++
		}
		for _, g := range gangs {
			if g.inFlight() {
				l.during(p, func() { g.call(l, p, deadline, outcomes) })
			}
		}
		terminateOrphans(r, l, p, gangs, outcomes)
		checkChaos(t, l, gangs)
		step := round
		if now.After(deadline.Add(time.Minute)) {
			step = time.Minute // nothing is on its way any more
		}
		l.clock.Step(step)
	}
	l.sweepAll(p)
	for _, g := range gangs {
		for _, line := range l.world.Bill() {
			if g.whole || !strings.Contains(line.ID, inventory.Shorten(g.Token)) {
				continue
			}
			if late := line.Until.Sub(g.givenUp); line.Open || late > bound {
				t.Errorf("%s was paid for %s after its launch by %s was given up (open: %t)", line.ID, late, g.Group.Spec.GCP.LaunchMethod, line.Open)
			}
		}
	}
}

// sweepAll lists until no policy is left that is not needed: late calls have made some that only a later look finds.
func (l *lab) sweepAll(p *gcp.Provider) {
	for range 15 {
		l.list(p)
		l.clock.Step(5 * time.Minute)
	}
	for name, machines := range l.front.Policies() {
		if machines == 0 {
			l.Errorf("placement policy %s is left, and nothing is in it", name)
		}
	}
}

// call launches once more, and decides the fate of the launch.
func (g *gang) call(l *lab, p *gcp.Provider, deadline time.Time, outcomes map[string]int) {
	machines, err := p.Launch(context.Background(), g.LaunchRequest)
	now := l.clock.Now()
	switch {
	case err == nil && len(machines) == g.Count && g.fickle:
		g.givenUp = now
		outcomes["fickle"]++
	case err == nil && len(machines) == g.Count:
		g.whole = true
		outcomes["whole"]++
	case cloudprovider.Refusal(err) != nil || now.After(deadline):
		g.givenUp = now
		outcomes["given up"]++
	default:
		outcomes["call failed"]++
	}
}

// during makes a call. While the cloud takes its time over it, the watch and another process look: what they see has a group, and
// is of a launch.
func (l *lab) during(p *gcp.Provider, call func()) {
	other := l.provider()
	l.slow.During(call, func() {
		for _, looks := range []*gcp.Provider{p, other} {
			for _, m := range l.list(looks) {
				if m.Launch == "" || m.Group == "" {
					l.Errorf("while a call lasts, machine %s is listed without a launch or a group", m.Name)
				}
			}
		}
	}, round)
}

// terminateOrphans terminates, by name, what no launch owns.
func terminateOrphans(r *rand.Rand, l *lab, p *gcp.Provider, gangs []*gang, outcomes map[string]int) {
	owned := map[string]bool{}
	for _, g := range gangs {
		owned[g.Token] = g.whole || g.inFlight()
	}
	var list []cloudprovider.Machine
	l.during(p, func() { list = l.list(p) })
	orphans := map[string][]string{}
	for _, m := range list {
		if m.Launch != "" && !owned[m.Launch] && (m.State < cloudprovider.Terminated || m.Kept) {
			orphans[m.Group] = append(orphans[m.Group], m.Name)
		}
	}
	for group, names := range orphans {
		if r.IntN(3) == 0 {
			names = append(names, stale)
		}
		var err error
		l.during(p, func() { err = p.Terminate(context.Background(), group, names) })
		if err != nil {
			outcomes["call failed"]++
		}
	}
}

// checkChaos checks what holds at any time.
func checkChaos(t *testing.T, l *lab, gangs []*gang) {
	t.Helper()
	instances := l.world.Instances(true)
	for _, g := range gangs {
		alive, taken := 0, 0
		for _, in := range instances {
			if !strings.Contains(in.ID, inventory.Shorten(g.Token)) {
				continue
			}
			if in.Phase != cloudsim.Terminated {
				alive++
			} else if in.Reason == cloudsim.ReasonTerminated {
				taken++
			}
		}
		if alive > g.Count {
			t.Errorf("launch %s has %d machines and asked for %d", g.Token, alive, g.Count)
		}
		if g.whole && taken > 0 {
			t.Errorf("%d machines of launch %s, which is whole, were terminated", taken, g.Token)
		}
	}
}
