package poll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// cloud is what lists show, and what the watch has reported.
type cloud struct {
	mu       sync.Mutex
	machines []cloudprovider.Machine
	err      error
	scopes   []string
	failed   map[string]error
	lists    int
	told     []string
	// taken are the terminations, which fail with refused and are not carried out by themselves.
	taken   []string
	refused error
	synced  bool
}

func (c *cloud) set(err error, machines ...cloudprovider.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.machines = err, machines
}

func (c *cloud) list(context.Context) (Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	return Listing{Machines: slices.Clone(c.machines), Scopes: c.scopes, Failed: c.failed}, c.err
}

func (c *cloud) take(_ context.Context, group string, names []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = append(c.taken, fmt.Sprint(group, names))
	return c.refused
}

// looks is how often the cloud has been listed.
func (c *cloud) looks() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// terminations are those since the last question.
func (c *cloud) terminations() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.taken
	c.taken = nil
	return out
}

// news are what was reported since the last question.
func (c *cloud) news() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.told
	c.told = nil
	slices.Sort(out)
	return out
}

func machine(name string, state cloudprovider.State) cloudprovider.Machine {
	return cloudprovider.Machine{Group: "gpu", Name: name, State: state, Launch: "uid-1"}
}

// watch runs a test beside a watch of the cloud.
func watch(t *testing.T, c *cloud, test func(*testing.T, *Poller)) {
	synctest.Test(t, func(t *testing.T) {
		p := New(c.list, c.take, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			err := p.Watch(ctx, func(m cloudprovider.Machine) {
				c.mu.Lock()
				defer c.mu.Unlock()
				told := fmt.Sprintf("%s %d %s", m.Name, m.State, m.Launch)
				if m.Unattributed {
					told += " unattributed"
				}
				c.told = append(c.told, told)
			}, func() { c.synced = true })
			if err != nil {
				t.Error(err)
			}
		})
		test(t, p)
		cancel()
		done.Wait()
	})
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAWatchReportsChanges(t *testing.T) {
	c := &cloud{}
	c.set(nil, machine("a", cloudprovider.Booting), machine("b", cloudprovider.Running))
	watch(t, c, func(t *testing.T, _ *Poller) {
		want(t, "the first picture", c.news(), []string{"a 0 uid-1", "b 1 uid-1"})
		want(t, "synced", c.synced, true)
		c.set(nil, machine("a", cloudprovider.Running), machine("b", cloudprovider.Running))
		pass(Busy)
		want(t, "what boots is looked at often", c.news(), []string{"a 1 uid-1"})
		c.set(nil, machine("b", cloudprovider.Booting))
		pass(Busy)
		want(t, "nothing is on its way any more", c.news(), []string(nil))
		pass(Calm - Busy)
		want(t, "a machine that is not listed is gone, and old news of another is none", c.news(), []string{"a 3 uid-1"})
		c.set(nil, machine("b", cloudprovider.Running))
		pass(Busy) // the list before had one that boots
		c.news()
		lists := c.looks()
		pass(10*Calm + time.Second)
		want(t, "lists in ten calm minutes", c.looks()-lists, 10)
	})
}

// What a call has returned is there, though lists do not show it yet; if they never
// do, it is gone.
func TestListsMayBeLate(t *testing.T) {
	c := &cloud{}
	watch(t, c, func(t *testing.T, p *Poller) {
		want(t, "nothing", c.news(), []string(nil))
		p.Note(machine("a", cloudprovider.Booting), machine("b", cloudprovider.Booting))
		pass(time.Second)
		want(t, "soon after the call", c.news(), []string{"a 0 uid-1", "b 0 uid-1"})
		c.set(nil, machine("a", cloudprovider.Running))
		pass(Busy)
		want(t, "a shows up", c.news(), []string{"a 1 uid-1"})
		pass(Grace)
		want(t, "b never does", c.news(), []string{"b 3 uid-1"})
	})
}

// What another process launches is looked for as often as what this one has launched, also where lists show it late.
func TestALaunchOfAnotherProcess(t *testing.T) {
	c := &cloud{}
	watch(t, c, func(t *testing.T, p *Poller) {
		pass(Calm / 2)
		lists := c.looks()
		p.Expect()
		pass(time.Second)
		want(t, "lists soon after", c.looks()-lists, 1)
		c.set(nil, machine("a", cloudprovider.Running))
		pass(Busy)
		want(t, "a list shows it", c.news(), []string{"a 1 uid-1"})
		pass(Grace)
		lists = c.looks()
		pass(Calm)
		want(t, "lists in a calm minute after that", c.looks()-lists, 1)
	})
}

func TestALaunchThatIsReportedLater(t *testing.T) {
	c := &cloud{}
	early := machine("a", cloudprovider.Booting)
	early.Launch = ""
	c.set(nil, early)
	watch(t, c, func(t *testing.T, _ *Poller) {
		want(t, "before it is tagged", c.news(), []string{"a 0 "})
		c.set(nil, machine("a", cloudprovider.Booting))
		pass(Busy)
		want(t, "after", c.news(), []string{"a 0 uid-1"})
	})
}

func TestAMachineWithoutItsLaunchYet(t *testing.T) {
	c := &cloud{}
	early := machine("a", cloudprovider.Running)
	early.Launch, early.Unattributed = "", true
	c.set(nil, early)
	watch(t, c, func(t *testing.T, _ *Poller) {
		want(t, "while it may be of one", c.news(), []string{"a 1  unattributed"})
		early.Unattributed = false
		c.set(nil, early)
		pass(Calm)
		want(t, "once it is of none", c.news(), []string{"a 1 "})
	})
}

// A cloud that cannot be listed reports nothing, and blocks no other.
func TestACloudOutOfReach(t *testing.T) {
	c := &cloud{}
	c.set(errors.New("the credentials have expired"))
	watch(t, c, func(t *testing.T, _ *Poller) {
		want(t, "nothing is known", c.news(), []string(nil))
		want(t, "synced all the same", c.synced, true)
		c.set(nil, machine("a", cloudprovider.Running))
		pass(Busy)
		want(t, "it is back", c.news(), []string{"a 1 uid-1"})
		c.set(errors.New("the credentials have expired"))
		pass(Calm)
		want(t, "what cannot be listed is not gone", c.news(), []string(nil))
	})
}

// A machine that is started again is seen again, though its state is a lower one.
func TestAMachineThatIsStartedAgain(t *testing.T) {
	c := &cloud{}
	start := func(state cloudprovider.State, at int64) cloudprovider.Machine {
		m := machine("a", state)
		m.Started, m.Kept = time.Unix(at, 0), state == cloudprovider.Terminated
		return m
	}
	c.set(nil, start(cloudprovider.Running, 1))
	watch(t, c, func(t *testing.T, _ *Poller) {
		want(t, "it runs", c.news(), []string{"a 1 uid-1"})
		c.set(nil, start(cloudprovider.Terminated, 1))
		pass(Calm)
		want(t, "it is stopped", c.news(), []string{"a 2 uid-1"})
		c.set(nil, start(cloudprovider.Running, 1))
		pass(Calm)
		want(t, "an outdated list says nothing", c.news(), []string(nil))
		c.set(nil, start(cloudprovider.Booting, 2))
		pass(Calm)
		want(t, "it is started again", c.news(), []string{"a 0 uid-1"})
		want(t, "it is terminated", c.terminations(), []string(nil))
		c.set(nil, start(cloudprovider.Terminated, 2))
		pass(Busy)
		want(t, "it is stopped again", c.news(), []string{"a 2 uid-1"})
		pass(time.Hour)
		want(t, "whether it goes is for others to decide", c.terminations(), []string(nil))
		gone := start(cloudprovider.Terminated, 2)
		gone.Kept = false
		c.set(nil, gone)
		pass(Calm)
		want(t, "it has ended for good", c.news(), []string{"a 2 uid-1"})
	})
}

// A termination is over once lists show it.
func TestATerminationIsRepeated(t *testing.T) {
	c := &cloud{}
	c.set(nil, machine("a", cloudprovider.Running), machine("b", cloudprovider.Running))
	watch(t, c, func(t *testing.T, p *Poller) {
		c.refused = errors.New("termination protection")
		if err := p.Terminate(t.Context(), "gpu", []string{"a", "b"}); err == nil {
			t.Error("the refusal is lost")
		}
		c.refused = nil
		pass(2 * Again)
		want(t, "one that was refused is left to the caller", c.terminations(), []string{"gpu[a b]"})
		if err := p.Terminate(t.Context(), "gpu", []string{"a", "b"}); err != nil {
			t.Error(err)
		}
		c.set(nil, machine("a", cloudprovider.Running), machine("b", cloudprovider.Terminated))
		pass(Again - time.Second)
		want(t, "it may take a while", c.terminations(), []string{"gpu[a b]"})
		pass(2 * Busy)
		want(t, "what is still listed is terminated again", c.terminations(), []string{"gpu[a]"})
		pass(Again)
		want(t, "and again", c.terminations(), []string{"gpu[a]"})
		c.set(nil)
		pass(2 * Again)
		want(t, "until it is gone", c.terminations(), []string(nil))
	})
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }

// TestAScopeThatFails: the machines of a zone that cannot be listed are as they were, and those of others are reported.
func TestAScopeThatFails(t *testing.T) {
	c := &cloud{scopes: []string{"a", "b"}}
	in := func(scope, name string) cloudprovider.Machine {
		m := machine(name, cloudprovider.Running)
		m.Scope = scope
		return m
	}
	c.set(nil, in("a", "a-0"), in("a", "a-1"), in("b", "b-0"), in("b", "b-1"))
	watch(t, c, func(t *testing.T, p *Poller) {
		began := time.Now()
		c.news()
		c.mu.Lock()
		c.scopes, c.failed = []string{"b"}, map[string]error{"a": errors.New("unreachable")}
		c.mu.Unlock()
		c.set(nil, in("b", "b-1"))
		pass(Calm)
		want(t, "while zone a is away", c.news(), []string{"b-0 3 uid-1"})
		if !p.Oldest("a").Equal(began) || p.Oldest("b").Equal(began) || !p.Oldest("a", "b").Equal(began) {
			t.Errorf("zone a was listed at %s, b at %s, and the older of them at %s", p.Oldest("a"), p.Oldest("b"), p.Oldest("a", "b"))
		}
		c.mu.Lock()
		c.scopes, c.failed = []string{"a", "b"}, nil
		c.mu.Unlock()
		c.set(nil, in("a", "a-1"), in("b", "b-1"))
		pass(Calm)
		want(t, "once it is back", c.news(), []string{"a-0 3 uid-1"})
	})
}

// TestAListThatIsNeverAnswered is given up, and the next one is made.
func TestAListThatIsNeverAnswered(t *testing.T) {
	c := &cloud{}
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Bool
		p := New(func(ctx context.Context) (Listing, error) {
			if !answers.Load() {
				<-ctx.Done()
				return Listing{}, ctx.Err()
			}
			return c.list(ctx)
		}, c.take, clock.RealClock{})
		c.set(nil, machine("a", cloudprovider.Running))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		var seen atomic.Int64
		done.Go(func() { _ = p.Watch(ctx, func(cloudprovider.Machine) { seen.Add(1) }, func() {}) })
		pass(timeout)
		synctest.Wait()
		answers.Store(true)
		pass(Busy)
		synctest.Wait()
		want(t, "machines seen", seen.Load(), int64(1))
		cancel()
		done.Wait()
	})
}

// A cloud may show a machine before its tags: the launch that a call has returned it for, or that a list has shown, is not forgotten.
func TestAMachineKeepsItsLaunch(t *testing.T) {
	c := &cloud{}
	watch(t, c, func(t *testing.T, p *Poller) {
		late := machine("late", cloudprovider.Booting)
		late.Launch, late.Unattributed = "", true
		p.Note(machine("late", cloudprovider.Booting))
		c.set(nil, late)
		pass(2 * Busy)
		want(t, "a machine that is shown without its tags", c.news(), []string{"late 0 uid-1"})
		pass(2 * Grace)
		want(t, "a while later", c.news(), []string(nil))
	})
}

// A machine that was terminated and has ended may be kept by its cloud later: the termination is repeated.
func TestAMachineThatIsKeptAfterItsEndIsTakenAgain(t *testing.T) {
	c := &cloud{}
	c.set(nil, machine("a", cloudprovider.Running))
	watch(t, c, func(t *testing.T, p *Poller) {
		if err := p.Terminate(t.Context(), "gpu", []string{"a"}); err != nil {
			t.Fatal(err)
		}
		ended := machine("a", cloudprovider.Terminated)
		c.set(nil, ended)
		pass(time.Hour)
		want(t, "terminations while it has ended", c.terminations(), []string{"gpu[a]"})
		lists := c.looks()
		pass(10 * Calm)
		want(t, "lists in ten minutes after its end", c.looks()-lists, 10)
		ended.Kept = true
		c.set(nil, ended)
		pass(Calm)
		want(t, "terminations once it is kept", c.terminations(), []string{"gpu[a]"})
		c.set(nil)
		pass(Grace + Calm)
		want(t, "terminations of what is gone", c.terminations(), []string(nil))
		want(t, "what is remembered of it", len(p.taken), 0)
	})
}

func TestEndWith(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	block := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "block"}}
	block.Spec.EndsAt = &metav1.Time{Time: late}
	machines := []cloudprovider.Machine{{Name: "a", Group: "block"}, {Name: "b", Group: "block", EndsAt: early}, {Name: "c", Group: "other"}}
	EndWith(machines, block, &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	var got []time.Time
	for _, m := range machines {
		got = append(got, m.EndsAt)
	}
	if diff := cmp.Diff([]time.Time{late, early, {}}, got); diff != "" {
		t.Errorf("machines end (-want +got):\n%s", diff)
	}
}
