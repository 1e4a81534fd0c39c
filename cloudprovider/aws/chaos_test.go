package aws

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/cloudprovider/aws/placement"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	chaosRuns = 200
	// refresh is how often the core looks while something is under way.
	refresh = 10 * time.Second
	// bound is P2 of all ways to launch, as the package comment states it.
	bound = 5 * time.Minute
	// joinTimeout of the groups: after it a launch is given up. Each third run has patient ones.
	joinTimeout, patientTimeout = 3 * time.Minute, 10 * time.Minute
)

// attempt is a launch as the core follows it.
type attempt struct {
	cloudprovider.LaunchRequest
	began, gaveUp time.Time
	succeeded     bool
}

// chaos is a run of the core's part against a cloud that misbehaves.
type chaos struct {
	*sim
	*rand.Rand
	p        *Provider
	attempts []*attempt
	// last termination, and its error.
	last string
	// hook is how long a lifecycle hook holds machines on their way out.
	hook time.Duration
	// joinTimeout of its groups.
	joinTimeout time.Duration
	// permitted is from when on the caller has all permissions that it needs: bounds count from then.
	permitted time.Time
}

// No machine of a launch that was given up lives past the bound that the package
// comment states, and no token makes more machines than it requests, however calls,
// machines and processes end.
func TestChaos(t *testing.T) {
	for seed := range uint64(chaosRuns) {
		if testing.Short() && seed >= 20 {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, seed)
			for range 3 + c.IntN(3) {
				c.launch()
			}
			c.settle()
			c.judge()
		})
	}
}

// changes are the calls that change something, chaosActions all but those about prices.
var (
	changes = []string{
		"CancelCapacityReservation", "CreateCapacityReservation", "CreateFleet", "CreateOrUpdateTags", "CreatePlacementGroup", "CreateTags",
		"DeletePlacementGroup", "DeleteTags", "LaunchInstances", "RunInstances", "TerminateInstanceInAutoScalingGroup", "TerminateInstances",
	}
	chaosActions = append([]string{
		"DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "DescribeCapacityReservations", "DescribeInstances",
		"DescribeLaunchTemplateVersions", "DescribePlacementGroups",
	}, changes...)
)

// deniedIn has the caller lack the permission for a call, for a while.
func deniedIn(from, pause time.Duration, action string) cloudsim.CallFault {
	code := "UnauthorizedOperation"
	if strings.Contains(action, "AutoScaling") || slices.Contains([]string{"CreateOrUpdateTags", "DeleteTags", "LaunchInstances"}, action) {
		code = "AccessDenied"
	}
	return cloudsim.CallFault{
		Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused, Action: action,
		From: metav1.Duration{Duration: from}, Until: metav1.Duration{Duration: from + pause},
		Error: &cloudsim.Error{Status: 403, Code: code, Message: "User: muster is not authorized to perform: " + action},
	}
}

// internalError is an error of AWS itself.
var internalError = &cloudsim.Error{Status: 500, Code: "InternalError", Message: "An internal error has occurred"}

// stale is a machine that an old list has, and that the cloud has forgotten: it refuses a batch for its sake.
const stale = "i-0123456789abcdef0"

func newChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 5))
	percent := func(most int) *int32 { return ptr.To(int32(r.IntN(most))) }
	world := plenty(lag(time.Duration(r.IntN(60)) * time.Second))
	world.TagLag.Duration = max(world.Lag.Duration, time.Duration(rand.New(rand.NewPCG(seed, 6)).IntN(60))*time.Second)
	world.Seed = int64(seed)
	racked(&world)
	for i := range world.Pools {
		script := &world.Pools[i].Script
		script.Seed = int64(seed)
		if r.IntN(2) == 0 {
			script.Holds = ptr.To(int32(r.IntN(16)))
		}
		dry := metav1.Duration{Duration: time.Duration(r.IntN(10)) * time.Minute}
		script.Faults = []v1alpha1.KwokFault{
			{Type: v1alpha1.FaultBootDeath, Percent: percent(30)},
			{Type: v1alpha1.FaultReclaim, Percent: percent(30), After: &metav1.Duration{Duration: time.Duration(r.IntN(300)) * time.Second}},
			{Type: v1alpha1.FaultDry, From: &dry, Until: &metav1.Duration{Duration: dry.Duration + 2*time.Minute}},
		}
	}
	world.Terminations = []cloudsim.TerminationFault{
		{Cloud: v1alpha1.ProviderAWS, Share: cloudsim.Share{Percent: 1 + r.IntN(9)}},
		{Cloud: v1alpha1.ProviderAWS, Share: cloudsim.Share{Percent: 1 + r.IntN(29)}, Delay: &metav1.Duration{Duration: time.Duration(r.IntN(60)) * time.Second}},
	}
	world.Stops = []cloudsim.Stop{{
		Cloud: v1alpha1.ProviderAWS, Share: cloudsim.Share{Percent: 1 + r.IntN(29)},
		After: metav1.Duration{Duration: time.Duration(r.IntN(300)) * time.Second},
		For:   metav1.Duration{Duration: time.Duration(r.IntN(300)) * time.Second},
	}}
	world.Calls = []cloudsim.CallFault{
		{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.ReplyLost, Percent: 1 + r.IntN(14)},
		{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallLost, Percent: 1 + r.IntN(14)},
		{Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused, Percent: 1 + r.IntN(14),
			Error: &cloudsim.Error{Status: 503, Code: "RequestLimitExceeded", Message: "Request limit exceeded."}},
	}
	for _, action := range changes {
		world.Calls = append(world.Calls, cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: action, Type: cloudsim.CallLate,
			Percent: 1 + r.IntN(29), Delay: metav1.Duration{Duration: time.Duration(1+r.IntN(60)) * time.Second}})
		if action == "DeletePlacementGroup" || action == "DeleteTags" {
			continue // lists make these calls, and a list is to come to its end
		}
		world.Calls = append(world.Calls, cloudsim.CallFault{Cloud: v1alpha1.ProviderAWS, Action: action, Type: cloudsim.CallSlow,
			Percent: 1 + r.IntN(29), Delay: metav1.Duration{Duration: time.Duration(1+r.IntN(90)) * time.Second}})
	}
	began, denied := time.Duration(r.IntN(600))*time.Second, time.Duration(r.IntN(300))*time.Second
	for range r.IntN(3) {
		world.Calls = slices.Insert(world.Calls, 0, deniedIn(began, denied, chaosActions[r.IntN(len(chaosActions))]))
	}
	if r.IntN(2) == 0 { // all of AWS, or all of Auto Scaling, fails for the same while
		actions := []string{""}
		if r.IntN(2) == 0 {
			actions = autoScaling
		}
		for _, action := range actions {
			world.Calls = slices.Insert(world.Calls, 0, cloudsim.CallFault{
				Cloud: v1alpha1.ProviderAWS, Type: cloudsim.CallRefused, Action: action, Error: internalError,
				From: metav1.Duration{Duration: began}, Until: metav1.Duration{Duration: began + denied},
			})
		}
	}
	hook := time.Duration(r.IntN(60)) * time.Second
	s := newSim(t, world, account(func(a *simaws.Config) {
		a.Groups[0].Max = 16 + r.IntN(32)
		a.HalfLaunched = []int{0, 2}
		a.Groups[0].TerminatingWait.Duration, a.Groups[0].Retains = hook, r.IntN(2) == 0
		a.ReservationDelay.Duration = time.Duration(r.IntN(30)) * time.Second
	}))
	timeout := joinTimeout
	if seed%3 == 2 {
		timeout = patientTimeout
	}
	for _, method := range []v1alpha1.AWSLaunchMethod{v1alpha1.AWSFleet, v1alpha1.AWSReservation, v1alpha1.AWSLaunchInstances} {
		g := nodeGroup(method, v1alpha1.OnDemand)
		g.Name = "gpu-" + string(method)
		g.Spec.JoinTimeout = &metav1.Duration{Duration: timeout}
		s.groups = append(s.groups, g)
	}
	return &chaos{sim: s, Rand: r, p: s.provider(), hook: hook, joinTimeout: timeout, permitted: s.clock.Now().Add(began + denied)}
}

// launch follows one launch until it is through or given up.
func (c *chaos) launch() {
	a := &attempt{
		LaunchRequest: request(c.groups[c.IntN(len(c.groups))], 1+c.IntN(12), fmt.Sprintf("uid-%d", len(c.attempts)+1)),
		began:         c.clock.Now(),
	}
	if c.IntN(2) == 0 {
		a.Together.Level = rack
	}
	c.attempts = append(c.attempts, a)
	// Some are deleted by their users, or forgotten by a crash, after a call or two.
	patience := c.joinTimeout
	if c.IntN(4) == 0 {
		patience = time.Duration(c.IntN(20)) * time.Second
	}
	for {
		var machines []cloudprovider.Machine
		var err error
		c.during(func() { machines, err = c.p.Launch(context.Background(), a.LaunchRequest) })
		if cloudprovider.Refusal(err) != nil {
			break
		}
		if err == nil {
			if len(machines) != a.Count {
				c.t.Errorf("launch %s of %d: %d machines and no error", a.Token, a.Count, len(machines))
			}
			if a.succeeded = c.IntN(2) == 0; a.succeeded {
				return
			}
			break // its nodes do not join
		}
		// What launches before it have left goes meanwhile.
		if c.terminate(); c.clock.Since(a.began) >= patience {
			break
		}
	}
	a.gaveUp = c.clock.Now()
	for range c.IntN(4) {
		c.terminate()
	}
}

// during makes a call. While the cloud takes its time over it, the watch and another process look.
func (c *chaos) during(call func()) {
	other := c.provider()
	c.slow.During(call, func() {
		for _, p := range []*Provider{c.p, other} {
			list, _ := p.list(context.Background()) // what fails is looked at later
			c.attributed(list.Machines)
		}
	}, refresh)
}

// attributed judges that each machine that has not ended is listed under a launch, or as one that may be of one under way.
func (c *chaos) attributed(list []cloudprovider.Machine) {
	for _, m := range list {
		if m.Launch == "" && !m.Unattributed && m.State < cloudprovider.Terminated {
			c.t.Errorf("machine %s is listed without a launch", m.Name)
		}
	}
}

// pause lets time go by, and now and then the process ends.
func (c *chaos) pause() {
	c.clock.Step(refresh)
	if c.IntN(5) == 0 {
		c.p = c.provider()
	}
}

// terminate does what the core does with what is listed under launches that are over.
// It says whether there was any.
func (c *chaos) terminate() (any bool) {
	defer c.pause()
	list, err := c.p.list(context.Background())
	if err != nil {
		c.last = err.Error()
		return true
	}
	c.attributed(list.Machines)
	byGroup := map[string][]string{}
	for _, m := range list.Machines {
		if (m.State < cloudprovider.Terminated || m.Kept) && !m.Unattributed && !c.goesOn(m.Launch) {
			byGroup[m.Group] = append(byGroup[m.Group], m.Name)
		}
	}
	for _, g := range c.groups {
		if len(byGroup[g.Name]) > 0 {
			if c.IntN(3) == 0 {
				byGroup[g.Name] = append(byGroup[g.Name], stale)
			}
			c.during(func() { err = c.p.Terminate(context.Background(), g.Name, byGroup[g.Name]) })
			c.last = fmt.Sprint(byGroup[g.Name], err) // what is left is listed again
		}
	}
	return len(byGroup)+len(list.Failed) > 0
}

// goesOn reports whether a launch is not over: it is whole, or tried again.
func (c *chaos) goesOn(token string) bool {
	return slices.ContainsFunc(c.attempts, func(a *attempt) bool { return a.Token == token && a.gaveUp.IsZero() })
}

// settle goes on until nothing is listed for longer than calls are late and lists lag.
func (c *chaos) settle() {
	for calm := 0; calm < 15; calm++ {
		if c.terminate() {
			calm = 0
		}
		if c.clock.Since(c.attempts[0].began) > 90*time.Minute {
			c.t.Fatalf("after 90 minutes there is still something to terminate, the last time %s", c.last)
		}
	}
}

func (c *chaos) judge() {
	needed := map[string]bool{}
	c.listFor(c.p, 2*placement.LookAgain)
	for _, in := range c.world.Instances(true) {
		needed[in.Together] = needed[in.Together] || in.Phase != cloudsim.Terminated
	}
	for _, name := range c.front.PlacementGroups() {
		if !needed[name] {
			c.t.Errorf("placement group %s is left, and nothing is in it", name)
		}
	}
	count, taken := map[string]int{}, map[string]int{}
	for _, in := range c.world.Instances(true) {
		count[in.Tags[inventory.LaunchTag]]++
		if in.Phase == cloudsim.Terminated && in.Reason == cloudsim.ReasonTerminated {
			taken[in.Tags[inventory.LaunchTag]]++
		}
	}
	for _, a := range c.attempts {
		if count[a.Token] > a.Count {
			c.t.Errorf("launch %s of %d machines by %s has made %d", a.Token, a.Count, a.Group.Name, count[a.Token])
		}
		if a.succeeded && taken[a.Token] > 0 {
			c.t.Errorf("%d machines of launch %s by %s, which is whole, were terminated", taken[a.Token], a.Token, a.Group.Name)
		}
	}
	for _, line := range c.world.Bill() {
		a := c.attemptOf(line)
		switch {
		case a.succeeded && line.Tags[inventory.LaunchTag] != "":
		case line.Open:
			c.t.Errorf("%s of launch %s by %s is still billed", line.ID, a.Token, a.Group.Name)
		default:
			from := line.From
			for _, at := range []time.Time{a.gaveUp, c.permitted} {
				if at.After(from) {
					from = at
				}
			}
			if late := line.Until.Sub(from); late > bound+c.hook {
				c.t.Errorf("%s of launch %s by %s was billed for %s after it was given up, the bound is %s", line.ID, a.Token,
					a.Group.Name, late, bound)
			}
		}
	}
}

// attemptOf is the launch that a line is for: one that never got its tags is of the
// last launch that had begun by then.
func (c *chaos) attemptOf(line cloudsim.Line) *attempt {
	var last *attempt
	for _, a := range c.attempts {
		if a.Token == line.Tags[inventory.LaunchTag] {
			return a
		}
		if !a.began.After(line.From) {
			last = a
		}
	}
	return last
}
