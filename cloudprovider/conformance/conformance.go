// Package conformance is the test suite of all cloud adapters: the behaviour that the provisioner relies on, for every cloud and launch
// method.
package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Cloud is a cloud with one empty group, created for each test. If an optional field is nil, Without has its reason: what the suite does
// not test is a decision, not an omission.
type Cloud struct {
	// Group of at most MaxNodes machines, which must be 8.
	Group *v1alpha1.NodeGroup
	// Together is the domain that the machines of each launch must be in; empty for none.
	Together cloudprovider.Domain
	// Gathers describes how the cloud launches machines near each other; nil if it cannot.
	Gathers *Gathering
	// Connect returns a new adapter, as after a restart of Muster.
	Connect func() cloudprovider.Provider
	// Hold sets how many machines the cloud has for the group.
	Hold func(machines int)
	// Alive returns the names of the machines that the cloud bills, and of holds.
	Alive func() []string
	// End ends a machine without Muster.
	End func(name string)
	// Forget makes the cloud stop listing terminated machines; nil if it never lists them.
	Forget func()
	// Stop stops a running machine in the cloud. After the pause, if it is not zero, the machine is started again. nil if the cloud never
	// does so.
	Stop func(name string, pause time.Duration)
	// IgnoreTerminations makes the cloud accept the next terminations of so many machines without effect; nil if it always carries them out.
	IgnoreTerminations func(machines int)
	// LoseReply makes the next launch call take effect and lose its reply; nil if the cloud's
	// calls cannot.
	LoseReply func()
	// Delay makes the next launch call take effect so much later, although its caller no longer
	// waits; nil if the cloud's calls cannot.
	Delay func(time.Duration)
	// Slow makes the next launch call take so long, while its caller waits; nil if the cloud's calls cannot.
	Slow func(time.Duration)
	// RefuseTags makes the cloud refuse to tag the machines of the next launch for as long as its call lasts; nil if machines are created
	// with their launch.
	RefuseTags func()
	// Harm makes calls fail until end is called; nil if none can. Patience is how long an adapter of Connect waits for a response, by the
	// clock of the machine.
	Harm     func(Harm, Calls) (end func())
	Patience time.Duration
	// Elsewhere is another empty group of at most MaxNodes machines, in another zone than Group. Away makes that zone unreachable until
	// end is called. Both are nil if the cloud has no such zones.
	Elsewhere *v1alpha1.NodeGroup
	Away      func() (end func())
	// Pass advances the clock of the cloud and of its adapters.
	Pass func(time.Duration)
	// Without has the fields that are nil, by name, each with the reason why the cloud has no such fault or ability. Tests that need them
	// are skipped with that reason.
	Without map[string]string
}

// lacks returns the optional fields that are nil, by name. Fields that belong together count as one.
func (c *Cloud) lacks() map[string]bool {
	return map[string]bool{
		"Away": c.Away == nil || c.Elsewhere == nil, "Delay": c.Delay == nil, "Forget": c.Forget == nil, "Gathers": c.Gathers == nil,
		"Harm": c.Harm == nil || c.Patience == 0, "IgnoreTerminations": c.IgnoreTerminations == nil, "LoseReply": c.LoseReply == nil,
		"RefuseTags": c.RefuseTags == nil, "Slow": c.Slow == nil, "Stop": c.Stop == nil,
	}
}

// validate returns the errors in Without.
func (c *Cloud) validate() (wrong []string) {
	lacks := c.lacks()
	for _, field := range slices.Sorted(maps.Keys(lacks)) {
		switch why, stated := c.Without[field]; {
		case lacks[field] && why == "":
			wrong = append(wrong, fmt.Sprintf("Cloud.%s is nil: set it, or say in Cloud.Without[%[1]q] why the cloud has no such thing", field))
		case !lacks[field] && stated:
			wrong = append(wrong, fmt.Sprintf("Cloud.%s is set, and Cloud.Without[%[1]q] says that it is not: %s", field, why))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(c.Without)) {
		if _, known := lacks[field]; !known {
			wrong = append(wrong, fmt.Sprintf("Cloud.Without[%q]: no optional field has that name", field))
		}
	}
	return wrong
}

// need skips the test if the cloud has no such field.
func (s *suite) need(field string) {
	s.Helper()
	if s.lacks()[field] {
		s.Skip(s.Without[field])
	}
}

// Gathering describes how a cloud launches machines near each other. Its domains have room for 3, 5 and 5 machines, and it scatters
// machines that may be anywhere.
type Gathering struct {
	// Level is the node label of the domain.
	Level string
	// Strict clouds refuse a launch that no domain has room for. Others launch it all the same.
	Strict bool
	// Where counts the billed machines by domain.
	Where func() map[string]int
	// Made are the names of resources that keep machines near each other, such as placement groups.
	Made func() []string
}

// sweep limits how long such resources outlive their machines.
const sweep = 30 * time.Minute

// MaxNodes is the size of the group of every Cloud.
const MaxNodes = 8

// timeout limits waits, in time of the cloud. A step of that time passes between two checks. leisure is how long a loaded machine may take
// over all of them.
const (
	timeout = 5 * time.Minute
	step    = time.Second
	leisure = 5 * time.Second
	// holdsFor limits how long a hold may be left over.
	holdsFor = 20 * step
)

// Run tests an adapter.
func Run(t *testing.T, newCloud func(t *testing.T) *Cloud) {
	for _, tc := range slices.Concat(outages, []testCase{
		{"a launch gives as many machines as it asks for", whole},
		{"the same token is the same launch", repeated},
		{"also for another process", repeatedAfterRestart},
		{"another token is another launch", another},
		{"a launch that the cloud cannot serve leaves nothing", stockout},
		{"of two launches for the last machines one is whole", raced},
		{"a group never has more machines than it may", limited},
		{"what is terminated is what was named", terminated},
		{"a watch tells of machines until they are gone", watched},
		{"after a restart each machine is still known by its launch", attributed},
		{"a machine that ends is told", ended},
		{"a machine that is stopped is told, and again when it is started", stopped},
		{"a machine that stays stopped goes", buried},
		{"a termination that the cloud does not carry out is repeated", ignored},
		{"a launch whose reply was lost is made once", lostReply},
		{"a launch that takes longer than its caller waits is made once, or leaves nothing", late},
		{"while a launch takes long, others see no machine that is not its own", slow},
		{"a launch that is terminated while its call lasts is no fault of its group", overtaken},
		{"a machine whose launch is not known yet is held, and its launch goes on", unattributed},
		{"a launch whose machines went before lists showed them can be terminated", vanished},
		{"machines that must be together are", together},
		{"a machine that joins others is where they are", joined},
		{"a launch that no domain has room for is refused and leaves nothing", roomless},
		{"what keeps machines together goes after them, and not before", swept},
		{"a rehearsal launches, terminates and leaves nothing", rehearsed},
	}) {
		t.Run(tc.name, func(t *testing.T) { run(t, newCloud, tc.test) })
	}
}

// testCase is a case of the suite.
type testCase struct {
	name string
	test func(*suite)
}

func run(t *testing.T, newCloud func(*testing.T) *Cloud, test func(*suite)) {
	c := newCloud(t)
	if c.Group.Spec.MaxNodes != MaxNodes {
		t.Fatalf("spec.maxNodes of the group is %d: the suite needs %d", c.Group.Spec.MaxNodes, MaxNodes)
	}
	for _, wrong := range c.validate() {
		t.Error(wrong)
	}
	if t.Failed() {
		t.FailNow()
	}
	c.Hold(MaxNodes)
	s := &suite{T: t, Cloud: c, seen: map[string]cloudprovider.Machine{}}
	s.restart()
	test(s)
	s.stop()
}

// suite is a running test.
type suite struct {
	*testing.T
	*Cloud
	provider cloudprovider.Provider
	stop     func()

	mu sync.Mutex
	// seen is the last state of each machine from the watch; synced counts the calls of synced.
	seen   map[string]cloudprovider.Machine
	synced int
}

// restart starts a new adapter and a new watch.
func (s *suite) restart() {
	if s.stop != nil {
		s.stop()
	}
	s.provider = s.Connect()
	s.mu.Lock()
	s.seen, s.synced = map[string]cloudprovider.Machine{}, 0
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		err := s.provider.Watch(ctx, func(m cloudprovider.Machine) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.seen[m.Name] = m; m.Hold && m.State == cloudprovider.Gone {
				delete(s.seen, m.Name) // its machines are computed from it
			}
		}, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.synced++
		})
		if err != nil {
			s.Errorf("watch: %v", err)
		}
	})
	s.stop = func() { cancel(); done.Wait() }
	s.Cleanup(s.stop)
	s.await("the first full picture", func() bool { return s.synced == 1 })
}

// await advances the clock until so returns true.
func (s *suite) await(what string, so func() bool) {
	s.Helper()
	s.awaitFor(timeout, step, what, so)
}

func (s *suite) awaitFor(patience, step time.Duration, what string, so func() bool) {
	s.Helper()
	looks := time.NewTicker(time.Millisecond)
	defer looks.Stop()
	began := time.Now()
	for passed := time.Duration(0); ; passed += step {
		s.mu.Lock()
		yes := so()
		s.mu.Unlock()
		if yes {
			return
		}
		if passed > patience && time.Since(began) > leisure {
			s.Fatalf("not in %s: %s; the watch has told %v, alive are %v", patience, what, s.seen, s.Alive())
		}
		s.Pass(step)
		<-looks.C
	}
}

// launch calls until the cloud has made the machines or refused them, as the provisioner does. A launch in the cloud's queue is given its
// time.
func (s *suite) launch(token string, count int) ([]cloudprovider.Machine, error) {
	return launch(s.provider, s.Cloud, token, count)
}

func launch(p cloudprovider.Provider, c *Cloud, token string, count int) (machines []cloudprovider.Machine, err error) {
	for passed := time.Duration(0); passed <= timeout; passed += 10 * step {
		machines, err = p.Launch(context.Background(), c.request(token, count))
		if err == nil || cloudprovider.Refusal(err) != nil {
			return machines, err
		}
		c.Pass(10 * step)
	}
	return machines, err
}

func (c *Cloud) request(token string, count int) cloudprovider.LaunchRequest {
	return c.requestIn(c.Group, token, count)
}

func (c *Cloud) requestIn(g *v1alpha1.NodeGroup, token string, count int) cloudprovider.LaunchRequest {
	return cloudprovider.LaunchRequest{Group: g, Count: count, Token: token, Request: "ns/gang", Together: c.Together}
}

// mustLaunch returns the names of the machines, sorted.
func (s *suite) mustLaunch(token string, count int) []string {
	s.Helper()
	machines, err := s.launch(token, count)
	if err != nil {
		s.Fatalf("launch %d machines: %v", count, err)
	}
	ids := map[string]bool{}
	for _, m := range machines {
		if m.Group != s.Group.Name || m.Launch != token || m.ProviderID == "" || m.Hold || m.State >= cloudprovider.Terminated {
			s.Errorf("machine %+v is not one of group %s and launch %s", m, s.Group.Name, token)
		}
		ids[m.ProviderID] = true
	}
	if len(machines) != count || len(ids) != count {
		s.Errorf("%d machines with %d provider IDs, want %d", len(machines), len(ids), count)
	}
	return names(machines)
}

func names(machines []cloudprovider.Machine) []string {
	out := []string{}
	for _, m := range machines {
		out = append(out, m.Name)
	}
	slices.Sort(out)
	return out
}

// wantAlive compares what the cloud bills. A hold may stay until lists show the machines that it has made.
func (s *suite) wantAlive(what string, want []string) {
	s.Helper()
	var got []string
	for passed := time.Duration(0); passed <= holdsFor; passed += step {
		if got = append([]string{}, s.Alive()...); len(got) == len(want) {
			break
		}
		s.Pass(step)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("alive are %s (-want +got):\n%s", what, diff)
	}
}

// giveUp terminates, as the provisioner does, all machines of a launch from the watch and the call, until nothing is left.
func (s *suite) giveUp(token string, came []cloudprovider.Machine) {
	s.Helper()
	s.terminate(names(came)...)
	calm := time.Duration(0)
	s.await("nothing of the launch is left, nor turns up", func() bool {
		left := s.left(token)
		s.terminate(left...)
		if calm += step; len(left) > 0 {
			calm = 0
		}
		return calm > poll.Calm
	})
}

// left returns the machines of a launch that have not ended according to the watch.
func (s *suite) left(token string) (names []string) {
	for name, m := range s.seen {
		if m.Launch == token && m.State < cloudprovider.Terminated {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *suite) terminate(names ...string) {
	s.Helper()
	if len(names) == 0 {
		return
	}
	if err := s.provider.Terminate(context.Background(), s.Group.Name, names); err != nil {
		s.Errorf("terminate %v: %v", names, err)
	}
}

func whole(s *suite) {
	s.wantAlive("all of them", s.mustLaunch("uid-1", 4))
}

func repeated(s *suite) {
	first := s.mustLaunch("uid-1", 4)
	if diff := cmp.Diff(first, s.mustLaunch("uid-1", 4)); diff != "" {
		s.Errorf("the machines of the second call (-first +second):\n%s", diff)
	}
	s.wantAlive("those of the first call", first)
}

func repeatedAfterRestart(s *suite) {
	first := s.mustLaunch("uid-1", 4)
	s.restart()
	if diff := cmp.Diff(first, s.mustLaunch("uid-1", 4)); diff != "" {
		s.Errorf("the machines of the second call (-first +second):\n%s", diff)
	}
	s.wantAlive("those of the first call", first)
}

func another(s *suite) {
	both := append(s.mustLaunch("uid-1", 2), s.mustLaunch("uid-2", 3)...)
	slices.Sort(both)
	s.wantAlive("those of both", both)
}

func stockout(s *suite) {
	s.Hold(3)
	came, err := s.launch("uid-1", 4)
	if err == nil {
		s.Fatalf("4 machines of 3 came: %v", came)
	}
	if refusal := cloudprovider.Refusal(err); refusal != nil && (refusal.Class != v1alpha1.Stockout || refusal.Code == "" ||
		refusal.Message == "") {
		s.Errorf("the refusal is %q of class %s, want a stockout with the cloud's own code and text", refusal, refusal.Class)
	}
	s.giveUp("uid-1", came)
	s.wantAlive("none", []string{})
	s.wantAlive("those of a launch that fits", s.mustLaunch("uid-2", 3))
}

func raced(s *suite) {
	s.Hold(6)
	tokens := []string{"uid-1", "other-1"}
	machines, errs := make([][]cloudprovider.Machine, 2), make([]error, 2)
	var calls sync.WaitGroup
	for i, token := range tokens {
		calls.Go(func() { machines[i], errs[i] = launch(s.provider, s.Cloud, token, 4) })
	}
	calls.Wait()
	winner := slices.Index(errs, nil)
	if winner < 0 || errs[1-winner] == nil {
		s.Fatalf("errors are %v, want one", errs)
	}
	s.giveUp(tokens[1-winner], machines[1-winner])
	s.wantAlive("those of the one", names(machines[winner]))
}

func limited(s *suite) {
	s.Hold(4 * MaxNodes)
	first := s.mustLaunch("uid-1", 5)
	came, err := s.launch("uid-2", 4)
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Quota {
		s.Errorf("error is %v, want a refusal of class Quota: the group may have %d machines", err, MaxNodes)
	}
	s.giveUp("uid-2", came)
	s.wantAlive("those of the first launch", first)
}

func terminated(s *suite) {
	all := s.mustLaunch("uid-1", 5)
	s.terminate(all[1], "never-was", all[3])
	s.terminate(all[1])
	rest := []string{all[0], all[2], all[4]}
	s.wantAlive("the others", rest)
	s.await("the watch tells so", func() bool {
		return s.gone(all[1]) && s.gone(all[3]) && !s.gone(all[0]) && !s.gone(all[2]) && !s.gone(all[4])
	})
	s.Pass(timeout)
	s.wantAlive("the others still: nothing is made in place of those", rest)
}

// gone reports whether the watch has reported the end of a machine that it has reported before.
func (s *suite) gone(name string) bool {
	m, known := s.seen[name]
	return known && m.State >= cloudprovider.Terminated
}

func watched(s *suite) {
	all := s.mustLaunch("uid-1", 3)
	s.await("all are told", func() bool {
		return slices.Equal(all, slices.Sorted(maps.Keys(s.seen)))
	})
	for _, name := range all {
		if m := s.seen[name]; m.Launch != "uid-1" || m.Group != s.Group.Name || m.ProviderID == "" {
			s.Errorf("the watch told %+v", m)
		}
	}
	s.terminate(all...)
	s.await("their ends are told", func() bool { return s.gone(all[0]) && s.gone(all[1]) && s.gone(all[2]) })
	if s.synced != 1 {
		s.Errorf("the first picture was full %d times, want once", s.synced)
	}
}

func attributed(s *suite) {
	first, second := s.mustLaunch("uid-1", 2), s.mustLaunch("uid-2", 3)
	s.restart()
	s.await("all are told", func() bool { return len(s.seen) == 5 })
	got := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.seen)) {
		got[s.seen[name].Launch] = append(got[s.seen[name].Launch], name)
	}
	if diff := cmp.Diff(map[string][]string{"uid-1": first, "uid-2": second}, got); diff != "" {
		s.Errorf("machines by their launch (-want +got):\n%s", diff)
	}
}

// unattributed tests a launch whose machines are tagged, or listed with their tags, late, across a restart.
func unattributed(s *suite) {
	if s.RefuseTags != nil {
		s.RefuseTags()
	}
	_, err := s.provider.Launch(context.Background(), s.request("uid-1", 4))
	if cloudprovider.Refusal(err) != nil {
		s.Fatalf("a launch whose machines cannot be tagged is refused: %v", err)
	}
	for range 2 {
		s.restart()
		for range 20 {
			s.mu.Lock()
			for _, m := range s.seen {
				if m.State < cloudprovider.Terminated && (m.Launch != "uid-1" && !m.Unattributed || m.Group != s.Group.Name) {
					s.Errorf("the watch reports a machine that is neither the launch's nor held: %+v", m)
				}
			}
			s.mu.Unlock()
			s.Pass(step)
		}
	}
	all := s.mustLaunch("uid-1", 4)
	s.wantAlive("those of the one launch", all)
	s.await("all are told under it", func() bool { return slices.Equal(all, s.left("uid-1")) && len(s.seen) == len(all) })
}

// vanished tests a launch whose machines terminate before they are tagged or listed, after which the cloud has no record of them.
func vanished(s *suite) {
	if s.RefuseTags != nil {
		s.RefuseTags()
	} else if s.LoseReply != nil {
		s.LoseReply()
	}
	if _, err := s.provider.Launch(context.Background(), s.request("uid-1", 4)); cloudprovider.Refusal(err) != nil {
		s.Fatalf("the launch is refused: %v", err)
	}
	for _, name := range s.Alive() {
		s.mu.Lock()
		hold := s.seen[name].Hold
		s.mu.Unlock()
		if !hold {
			s.End(name)
		}
	}
	if s.Forget != nil {
		s.Forget()
	}
	s.restart()
	for range 12 {
		s.Pass(time.Minute)
	}
	s.giveUp("uid-1", nil)
	s.wantAlive("none", []string{})
	s.wantAlive("those of another launch", s.mustLaunch("uid-2", 4))
}

func ended(s *suite) {
	all := s.mustLaunch("uid-1", 2)
	s.End(all[0])
	s.await("its end is told", func() bool { return s.gone(all[0]) && !s.gone(all[1]) })
}

func stopped(s *suite) {
	s.need("Stop")
	all := s.mustLaunch("uid-1", 2)
	running := func() bool { return s.seen[all[0]].State == cloudprovider.Running }
	s.await("they run", running)
	s.Stop(all[0], 3*time.Minute)
	s.await("it is told to have ended", func() bool { return s.gone(all[0]) && !s.gone(all[1]) })
	s.await("it is told to run again", running)
	s.wantAlive("both", all)
}

func buried(s *suite) {
	s.need("Stop")
	all := s.mustLaunch("uid-1", 2)
	s.await("they run", func() bool { return s.seen[all[0]].State == cloudprovider.Running })
	s.Stop(all[0], 0)
	s.await("it is told to have ended", func() bool { return s.gone(all[0]) })
	s.wantAlive("both", all)
	s.terminate(all[0])
	s.await("it is gone for good", func() bool { return slices.Equal(s.Alive(), all[1:]) })
}

func ignored(s *suite) {
	s.need("IgnoreTerminations")
	all := s.mustLaunch("uid-1", 3)
	s.IgnoreTerminations(2)
	s.terminate(all[0], all[1])
	s.wantAlive("all of them", all)
	s.await("the others are gone", func() bool { return slices.Equal(s.Alive(), all[2:]) })
}

func lostReply(s *suite) {
	s.need("LoseReply")
	s.LoseReply()
	if _, err := s.provider.Launch(context.Background(), s.request("uid-1", 4)); cloudprovider.Refusal(err) != nil {
		s.Errorf("a lost reply is told as the refusal %v", err)
	}
	s.restart()
	s.wantAlive("four", s.mustLaunch("uid-1", 4))
}

func late(s *suite) {
	s.need("Delay")
	call := func(token string) {
		s.Helper()
		s.Delay(30 * time.Second)
		if _, err := s.provider.Launch(context.Background(), s.request(token, 4)); cloudprovider.Refusal(err) != nil {
			s.Errorf("a late reply is told as the refusal %v", err)
		}
	}
	call("uid-1")
	s.restart()
	all := s.mustLaunch("uid-1", 4)
	s.Pass(time.Minute)
	s.restart()
	s.wantAlive("four", all)
	call("uid-2")
	steps := 0
	s.await("those of the first launch are left", func() bool {
		left := s.left("uid-2")
		if len(left) > 0 {
			_ = s.provider.Terminate(context.Background(), s.Group.Name, left) // what is too young now is terminated after the next list
		}
		steps++
		return steps > 150 && len(left) == 0
	})
	s.wantAlive("those of the first launch", all)
}

// gathering makes all launches request one domain.
func (s *suite) gathering() *Gathering {
	s.need("Gathers")
	s.Together.Level = s.Gathers.Level
	return s.Gathers
}

func together(s *suite) {
	g := s.gathering()
	s.mustLaunch("uid-1", 4)
	if in := g.Where(); len(in) != 1 {
		s.Errorf("4 machines are in the domains %v", in)
	}
}

func joined(s *suite) {
	g := s.gathering()
	all := s.mustLaunch("uid-1", 4)
	for s.Together.Value = range g.Where() {
	}
	s.await("all run", func() bool {
		return !slices.ContainsFunc(all, func(name string) bool { return s.seen[name].State != cloudprovider.Running })
	})
	s.terminate(all[0])
	s.await("one is gone", func() bool { return s.gone(all[0]) })
	s.restart()
	s.mustLaunch("uid-1-r", 1)
	if in := g.Where(); in[s.Together.Value] != 4 {
		s.Errorf("the machines are in the domains %v, want all in %s", in, s.Together.Value)
	}
}

func roomless(s *suite) {
	g := s.gathering()
	if !g.Strict {
		s.Skip("this cloud launches what no domain has room for: its nodes are judged by their labels")
	}
	came, err := s.launch("uid-1", 6)
	if refusal := cloudprovider.Refusal(err); refusal == nil || refusal.Class != v1alpha1.Stockout {
		s.Errorf("%v: want a stockout, since no domain has room for 6 machines", err)
	}
	s.giveUp("uid-1", came)
	s.wantAlive("none", []string{})
	s.awaitFor(sweep, time.Minute, "nothing is left of it", func() bool { return len(g.Made()) == 0 })
}

func swept(s *suite) {
	g := s.gathering()
	s.Together.Level = ""
	s.mustLaunch("uid-0", 1)
	if made := g.Made(); len(made) > 0 {
		s.Errorf("%v were made for a machine that may be anywhere", made)
	}
	s.Together.Level = g.Level
	all := s.mustLaunch("uid-1", 4)
	if made := g.Made(); len(made) != 1 {
		s.Errorf("%v keep 4 machines together, want one", made)
	}
	for range 2 { // the second time with another process
		looks := 0
		s.awaitFor(2*sweep, time.Minute, "it was looked at", func() bool { looks++; return looks > int(sweep/time.Minute) })
		if made := g.Made(); len(made) != 1 {
			s.Fatalf("%v are left while the machines are there", made)
		}
		s.restart()
	}
	s.terminate(all...)
	s.awaitFor(sweep, time.Minute, "nothing keeps machines together that are gone", func() bool { return len(g.Made()) == 0 })
}
