package transaction

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// budget of the story's namespace for its day, which ends 12 hours later.
func budget(usd int64, changes ...func(*spend.Budget)) func(*story) {
	return func(s *story) {
		b := spend.Budget{
			Policy: "p", Name: "team", MicroUSD: usd * 1e6, Period: v1alpha1.BudgetDay, Ends: noon.Add(12 * time.Hour), Reserve: 24 * time.Hour,
			Covers: func(t state.Tenant) bool { return t.Namespace == "ns" }, Spent: spend.Meter{At: noon},
		}
		for _, change := range changes {
			change(&b)
		}
		s.view.Budgets = append(s.view.Budgets, b)
	}
}

func spent(usd int64) func(*spend.Budget) {
	return func(b *spend.Budget) { b.Spent.MicroUSD = usd * 1e6 }
}

func reserve(d time.Duration) func(*spend.Budget) { return func(b *spend.Budget) { b.Reserve = d } }

func called(name string) func(*spend.Budget) { return func(b *spend.Budget) { b.Name = name } }

func coversNot(namespace string) func(*spend.Budget) {
	return func(b *spend.Budget) { b.Covers = func(t state.Tenant) bool { return t.Namespace != namespace } }
}

// ofQueues bounds the budget to some of the namespace's LocalQueues.
func ofQueues(names ...string) func(*spend.Budget) {
	return func(b *spend.Budget) {
		b.Queues, b.QueuedOnly = names, true
		b.Covers = func(t state.Tenant) bool { return t.Namespace == "ns" && slices.Contains(names, t.Queue) }
	}
}

// inQueue has the story's gang come from a LocalQueue.
func inQueue(name string) func(*story) { return func(s *story) { s.request.Gang.Queue = name } }

// from a LocalQueue comes the charge's gang.
func from(queue string) func(*spend.Charge) { return func(c *spend.Charge) { c.Queue = queue } }

// pays says that a request of a namespace pays so many USD an hour.
func pays(namespace string, usd int64, changes ...func(*spend.Charge)) func(*story) {
	return func(s *story) {
		c := spend.Charge{Request: "other", Tenant: state.Tenant{Namespace: namespace}, MicroUSDPerHour: usd * 1e6}
		for _, change := range changes {
			change(&c)
		}
		s.view.Charges = append(s.view.Charges, c)
	}
}

// hasRun says how long the charge's gang has run, of how long it may at most.
func hasRun(since, of time.Duration) func(*spend.Charge) {
	return func(c *spend.Charge) { c.Runs, c.Since = of, noon.Add(-since) }
}

// deadline bounds how long the story's pods run.
func deadline(d time.Duration) func(*story) {
	return func(s *story) {
		for i := range s.request.Gang.PodSets {
			s.request.Gang.PodSets[i].Template.Spec.ActiveDeadlineSeconds = new(int64(d.Seconds()))
		}
	}
}

// bought nodes are machines that Muster has launched for a gang that is over.
func bought(n *state.Node) {
	n.Machine = &cloudprovider.Machine{Name: n.Name, Group: "gpu", Launch: "earlier-1", State: cloudprovider.Running}
	n.Launch = "earlier-1"
}

// The story's gang needs two machines at 10 USD per hour, which is 240 USD until the
// day ends.
func TestBudgets(t *testing.T) {
	cheap := func(s *story) {
		g := s.view.Groups[0]
		g.Name, g.MicroUSDPerHour, g.CapacityType = "cheap", 1e6, v1alpha1.OnDemand
		s.view.Groups[0].CapacityType = v1alpha1.Reserved // more wanted, though it costs more
		s.view.Groups = []planner.Group{g, s.view.Groups[0]}
	}
	theirs := func(n *state.Node) { bought(n); n.Machine.Launch, n.Launch = "", "" }
	ours := func(n *state.Node) { bought(n); young(n) }
	patient := func(s *story) { s.request.ValidFor = 100 * time.Hour }
	play(t, []expected{
		{name: "up to its budget a gang begins", story: newStory().with(budget(240)), want: Begin},
		{name: "over it the request says what is short, by how much and what would change it", story: newStory().with(budget(500, spent(201))).with(pays("ns", 5)), want: Report,
			message: "CapacityPolicy p has a budget for its namespaces of 500 USD in the day that ends at 2026-01-02T00:00:00Z " +
				"(spec.budgets[name=team].usd): " +
				"201 are spent, 60.00 committed for machines in use, and the gang needs 240 (20.00 per hour for 12h0m0s), 1.00 too much: "},
		{name: "it is judged again once the rest of the day costs no more than is left", story: newStory().with(patient).with(budget(40)), want: Report, check: wantAt(10 * time.Hour)},
		{name: "or, where nothing is left, the next day", story: newStory().with(patient).with(budget(0)), want: Report, check: wantAt(12 * time.Hour)},
		{name: "but not every moment", story: newStory().with(budget(240, spent(0))).with(pays("ns", 1, hasRun(0, time.Second))), want: Report, check: wantAt(time.Minute)},
		{name: "noRetry does not wait", story: newStory().with(budget(1)).with(noRetry), want: Fail, message: "too much"},
		{name: "what was spent counts", story: newStory().with(budget(249, spent(10))), want: Report, message: "10.00 are spent"},
		{name: "what others of its namespaces have counts", story: newStory().with(budget(240)).with(pays("ns", 1)), want: Report, message: "12.00 committed"},
		{name: "what others have does not", story: newStory().with(budget(240)).with(pays("theirs", 100)), want: Begin},
		{name: "nor do budgets of others", story: newStory().with(budget(0, coversNot("ns"))), want: Begin},
		{name: "a budget of a queue bounds its gangs, and names it", story: newStory().with(inQueue("red")).with(budget(239, ofQueues("red"))), want: Report,
			message: "CapacityPolicy p has a budget for LocalQueue red of its namespaces of 239 USD in the day"},
		{name: "queues may share one", story: newStory().with(inQueue("blue")).with(budget(240, ofQueues("red", "blue"))).with(pays("ns", 1, from("red"))), want: Report,
			message: "CapacityPolicy p has a budget for LocalQueues red, blue of its namespaces of 240 USD in the day"},
		{name: "what other queues of its namespace have does not count for it", story: newStory().with(inQueue("red")).with(budget(240, ofQueues("red"))).
			with(pays("ns", 100, from("blue"))).with(pays("ns", 100)), want: Begin},
		{name: "nor does it bound their gangs", story: newStory().with(inQueue("blue")).with(budget(0, ofQueues("red"))), want: Begin},
		{name: "nor those of no queue", story: newStory().with(budget(0, ofQueues("red"))), want: Begin},
		{name: "one of all requests counts those of queues", story: newStory().with(inQueue("red")).with(budget(240)).with(pays("ns", 1, from("blue"))), want: Report, message: "a budget for its namespaces"},
		{name: "each budget counts, and is named", story: newStory().with(budget(1000)).with(budget(100, called("small"))), want: Report, message: "spec.budgets[name=small]"},
		{name: "a gang is taken to run no longer than the reserve", story: newStory().with(budget(40, reserve(2*time.Hour))), want: Begin},
		{name: "nor than its pods may", story: newStory().with(deadline(3 * time.Hour)).with(budget(60)), want: Begin},
		{name: "which may be longer than the reserve", story: newStory().with(deadline(3 * time.Hour)).with(budget(59, reserve(time.Minute))), want: Report, message: "for 3h0m0s"},
		{name: "and never longer than the day lasts", story: newStory().with(deadline(300 * time.Hour)).with(budget(240)), want: Begin},
		{name: "one that is known to end soon keeps little from others", story: newStory().with(budget(241)).with(pays("ns", 1, hasRun(2*time.Hour, 3*time.Hour))), want: Begin},
		{name: "one that has outlived its time keeps nothing", story: newStory().with(budget(240)).with(pays("ns", 100, hasRun(5*time.Hour, 3*time.Hour))), want: Begin},
		{name: "where the wanted machines cost too much there may be cheaper ones", story: newStory().with(cheap).with(budget(24)), want: Begin, message: "2 machines of NodeGroup cheap"},
		{name: "within it the more wanted ones are taken", story: newStory().with(cheap).with(budget(240)), want: Begin, message: "2 machines of NodeGroup gpu"},
		{name: "machines that Muster has launched cost their next user, too", story: newStory().node("a", bought).node("b", bought).with(budget(239)), want: Report,
			message: "the gang needs 240"},
		{name: "as much as they are worth", story: newStory().node("a", bought).node("b", bought).with(budget(240)), want: Book},
		{name: "shared ones cost a share", story: newStory().node("a", bought, alsoPaidBy("other")).node("b", bought, alsoPaidBy("other")).with(budget(120)), want: Book},
		{name: "machines of others cost nothing", story: newStory().node("a", theirs).node("b").with(budget(0)), want: Book},
		{name: "what the gang has claimed is not asked for again", story: newStory().node("a", bought, claimed).node("b", bought, claimed).with(budget(0)).at(2 * time.Second), want: Provision},
		{name: "nor what it has launched", story: newStory().attempt(Launching).machines(cloudprovider.Running, cloudprovider.Running).
			node("a", ours).node("b", ours).with(budget(0)).with(podsHeld), want: Book},
		{name: "nor what it finds in place of a part of that", story: newStory().attempt(Launching).machines(cloudprovider.Running, cloudprovider.Running).
			node("a", ours).node("b", ours, taken).node("c", bought).with(budget(0)).with(podsHeld), want: Book},
		{name: "a replacement counts", story: newStory().provisioned().node("a", bought, booked).with(budget(1)).with(podsWaiting), want: Report, message: "the gang needs 120"},
	})
}

func TestWhoseChargesStandBesideABudget(t *testing.T) {
	s := newStory().with(pays("ns", 1, from("red"))).with(pays("ns", 2, from("blue"))).with(pays("ns", 4)).with(pays("theirs", 8, from("red")))
	for _, tc := range []struct {
		name   string
		change func(*spend.Budget)
		want   int64
	}{
		{"those of all requests of its namespace", func(*spend.Budget) {}, 7},
		{"those of its queue", ofQueues("red"), 1},
		{"those of its queues", ofQueues("blue", "red"), 3},
		{"none of a queue that has nothing", ofQueues("green"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.view.Budgets = nil
			s.with(budget(100, reserve(time.Hour), spent(5), tc.change))
			got := s.view.Budgets[0].Stands(s.view.Charges, noon)
			if diff := cmp.Diff(spend.Standing{Spent: 5e6, Committed: tc.want * 1e6}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestAWarningNamesTheQueues(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*spend.Budget)
		want   string
	}{
		{"all requests", func(*spend.Budget) {}, "gangs of its namespaces wait"},
		{"one queue", ofQueues("red"), "gangs of LocalQueue red of its namespaces wait"},
		{"two", ofQueues("red", "blue"), "gangs of LocalQueues red, blue of its namespaces wait"},
	} {
		for _, usd := range []int64{80, 100} {
			s := newStory().with(budget(100, spent(usd), tc.change))
			if got := s.view.Budgets[0].Report(v1alpha1.BudgetStatus{}, noon).Warning; !strings.Contains(got, tc.want) {
				t.Errorf("%s, %d %%: %q does not say %q", tc.name, usd, got, tc.want)
			}
		}
	}
}

// alsoPaidBy a request that is over and whose pods run beside.
func alsoPaidBy(other types.UID) func(*state.Node) {
	return func(n *state.Node) {
		n.Labelled = append(n.Labelled, state.Booking{Key: string(other), Namespace: "ns", UID: other, Open: true, Running: 1})
	}
}

// What one gang of a cycle is promised the next one does not get, and what a victim pays
// is free for its preemptor.
func TestBudgetsOfTrials(t *testing.T) {
	s := newStory().with(inQueue("red")).with(budget(500, ofQueues("red"))).with(pays("ns", 5, from("red")))
	gang, policy := s.request.Gang, s.request.Policy
	gang.UID, s.view.Groups[0].Max = "", 100
	first := planner.Plan(s.view.Snapshot, gang, policy)
	if first.Outcome != planner.Launch {
		t.Fatalf("the first gang is told %s", first.Message())
	}
	after := s.view.Taking("first", gang.Tenant(), &first)
	if second := planner.Plan(after, gang, policy); second.Outcome != planner.Wait || second.Reasons[0].Code != planner.CodeBudget {
		t.Errorf("the second gang: %s %s; want it to wait for the budget", second.Outcome, second.Message())
	}
	other := gang
	other.Queue = "blue"
	if second := planner.Plan(after, other, policy); second.Outcome != planner.Launch {
		t.Errorf("a gang of another queue is told %s", second.Message())
	}
	if second := planner.Plan(after.Without("first"), gang, policy); second.Outcome != planner.Launch {
		t.Errorf("without the first one the second is told %s", second.Message())
	}
	if again := planner.Plan(s.view.Snapshot, gang, policy); cmp.Diff(first, again, cmpopts.IgnoreFields(planner.Verdict{}, "Gang")) != "" {
		t.Errorf("the trials have changed the snapshot: %+v", again)
	}
}

// TestBudgetsAreKept lives through random days of gangs, with all that is decided from
// snapshots. No budget is ever passed by more than what gangs cost that run for longer
// than was reserved for them; and by nothing where none does.
func TestBudgetsAreKept(t *testing.T) {
	waited, passed := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		limit := int64(50+r.IntN(2000)) * 1e6
		reserved := time.Duration(1+r.IntN(6)) * time.Hour
		loyal := r.IntN(2) == 0 // no gang runs for longer than is reserved for it
		type gang struct {
			spend.Charge
			ends time.Time
		}
		var gangs []gang
		meter, now := spend.Meter{At: noon}, noon
		ends := noon.Add(12 * time.Hour)
		over := int64(0) // what gangs have cost beyond what was reserved for them
		last := noon
		for now.Before(ends) {
			step := time.Duration(1+r.IntN(600)) * time.Second
			if now = now.Add(step); now.After(ends) {
				now = ends
			}
			// Those that end do so on time.
			for _, g := range gangs {
				if until := last.Add(reserved); g.Runs == 0 && now.After(until) {
					over += spend.PriceOf(now.Sub(laterOf(until, now.Add(-step))).Milliseconds(), g.MicroUSDPerHour) + 1
				}
			}
			meter = meter.Until(now)
			alive := gangs[:0]
			for _, g := range gangs {
				if now.Before(g.ends) {
					alive = append(alive, g)
				}
			}
			gangs = alive
			s := newStory().with(budget(limit/1e6, reserve(reserved)))
			s.view.Now, s.view.Budgets[0].Spent = now, meter
			s.view.Groups[0].MicroUSDPerHour = int64(r.IntN(30)) * 1e5
			var rate int64
			for _, g := range gangs {
				s.view.Charges = append(s.view.Charges, g.Charge)
				rate += g.MicroUSDPerHour
			}
			newcomer := gang{Charge: spend.Charge{Request: "new", Tenant: state.Tenant{Namespace: "ns"}, Since: now}}
			longest := 6 * reserved
			if r.IntN(2) == 0 {
				newcomer.Runs = time.Duration(1+r.IntN(20)) * time.Hour / 2
				s.with(deadline(newcomer.Runs))
				longest = newcomer.Runs
			} else if loyal {
				longest = reserved
			}
			// The step before which it is looked at again is of the time that it runs.
			newcomer.ends = now.Add(max(0, time.Duration(r.Int64N(int64(longest)))-10*time.Minute))
			if v := planner.Plan(s.view.Snapshot, s.request.Gang, s.request.Policy); v.Outcome == planner.Launch {
				newcomer.MicroUSDPerHour = v.MicroUSDPerHour
				gangs = append(gangs, newcomer)
				rate += v.MicroUSDPerHour
				if v.MicroUSDPerHour > 0 {
					last = now
				}
			} else if v.Outcome != planner.Wait || v.Reasons[0].Code != planner.CodeBudget || v.Until.After(ends) ||
				!v.Until.After(now) && now.Before(ends) {
				t.Fatalf("seed %d: %s until %s: %s", seed, v.Outcome, v.Until, v.Message())
			} else {
				waited++
			}
			meter = meter.Rated(rate, now)
		}
		if loyal {
			over = 0
		}
		if meter.MicroUSD > limit+over {
			t.Errorf("seed %d: %s USD were spent of %s, with %s that nobody could know of", seed, text.USD(meter.MicroUSD),
				text.USD(limit), text.USD(over))
		}
		if meter.MicroUSD > limit {
			passed++
		}
	}
	if waited < 1000 || passed < 10 {
		t.Errorf("gangs waited %d times and budgets were passed %d times: the cases say little", waited, passed)
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func TestDollarsAreRoundedUp(t *testing.T) {
	var got []string
	for _, micro := range []int64{0, 1, 10_000, 1_234_567, 99_990_001, 100e6, 100e6 + 1, 5000e6} {
		got = append(got, text.Dollars(micro))
	}
	if diff := cmp.Diff("0.00 0.01 0.01 1.24 100.00 100 101 5000", strings.Join(got, " ")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
