package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// purse is a model with a group at 36 USD an hour, which is a cent a second, and a
// budget of 1000 USD a day for namespaces of the team red. The day has 12 hours left.
type purse struct {
	*testing.T
	*Model
	*version
	clock  *testingclock.FakePassiveClock
	policy *v1alpha1.CapacityPolicy
	// cordoned nodes offer no room.
	cordoned bool
}

func newPurse(t *testing.T, status ...v1alpha1.BudgetStatus) *purse {
	t.Helper()
	p := &purse{T: t, version: new(version), clock: testingclock.NewFakePassiveClock(noon)}
	p.Model = New(p.clock, transaction.KnownClasses)
	for name, team := range map[string]string{"ns": "red", "more": "red", "other": "blue"} {
		p.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: p.next(), Labels: map[string]string{"team": team}}})
	}
	p.price("36")
	p.policy = &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", ResourceVersion: p.next()}}
	p.policy.Spec.Budgets = []v1alpha1.CapacityBudget{{
		Name: "red", USD: resource.MustParse("1000"), Period: v1alpha1.BudgetDay, Reserve: &metav1.Duration{Duration: time.Hour},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
	}}
	p.policy.Status.Budgets = status
	p.Set(p.policy)
	return p
}

// ofQueues has the budget hold for some LocalQueues of its namespaces alone.
func (p *purse) ofQueues(names ...string) {
	p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].Queues, c.Spec.Budgets[0].QueuedOnly = names, true })
}

// of is a request of a LocalQueue, or of none if that is empty.
func (p *purse) of(queue string, r *provreq.ProvisioningRequest) *provreq.ProvisioningRequest {
	if queue != "" {
		r.Labels = map[string]string{state.QueueLabel: queue}
	}
	return r
}

func (p *purse) price(usd string) {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: p.next()}}
	g.Spec.PricePerHour = new(resource.MustParse(usd))
	p.Set(g)
}

// change has the policy written by another client.
func (p *purse) change(f func(*v1alpha1.CapacityPolicy)) {
	p.policy = p.policy.DeepCopy()
	p.policy.ResourceVersion = p.next()
	f(p.policy)
	p.Set(p.policy)
}

// machine that was launched for a request, in use by those that have booked it since
// then. Each is namespace, name and, if there is one, LocalQueue of a request.
func (p *purse) machine(name, token string, since time.Time, bookings ...string) {
	p.SetMachine(cloudprovider.Machine{Name: name, Group: "gpu", ProviderID: name, Launch: token, State: cloudprovider.Running})
	n := p.node(func(n *corev1.Node) { n.Name, n.Spec.ProviderID = name, name })
	n.Labels, n.Annotations, n.Spec.Unschedulable = map[string]string{}, map[string]string{}, p.cordoned
	for _, b := range bookings {
		namespace, request, _ := strings.Cut(b, " ")
		request, queue, _ := strings.Cut(request, " ")
		label := state.BookingLabel(request)
		n.Labels[label] = namespace
		n.Annotations[label] = state.Booking{UID: types.UID(request), Queue: queue, Since: since}.Encode()
	}
	p.Set(n)
}

func (p *purse) after(d time.Duration) {
	p.Snapshot(p.clock.Now()) // as each reconciliation does
	p.clock.SetTime(p.clock.Now().Add(d))
}

// stands is what the budget says, in USD.
func (p *purse) stands() string {
	p.Helper()
	s := p.Snapshot(p.clock.Now())
	if len(s.Budgets) != 1 {
		p.Fatalf("there are the budgets %+v, want one", s.Budgets)
	}
	at := s.Budgets[0].Stands(s.Charges, p.clock.Now())
	return text.USD(at.Spent) + " spent, " + text.USD(at.Committed) + " committed"
}

func (p *purse) want(want string) {
	p.Helper()
	if got := p.stands(); got != want {
		p.Errorf("at %s: %s; want %s", p.clock.Now().Format(time.RFC3339), got, want)
	}
}

func TestWhatCountsForABudget(t *testing.T) {
	p := newPurse(t)
	p.want("0.00 spent, 0.00 committed")
	p.Set(launches(p.request("gang"), 2))
	p.want("0.00 spent, 72.00 committed") // both machines are asked for
	p.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "a", Launch: "gang-1", State: cloudprovider.Booting})
	p.after(10 * time.Second)
	p.want("0.10 spent, 72.00 committed") // one of them exists
	p.machine("b", "gang-1", noon, "ns gang")
	p.machine("a", "gang-1", noon, "ns gang")
	p.after(10 * time.Second)
	p.want("0.30 spent, 72.00 committed")
	p.machine("foreign", "", noon, "ns x")      // Muster has not launched it
	p.machine("theirs", "x-1", noon, "other x") // not a namespace of the budget
	p.machine("shared", "x-1", noon, "other x", "more y")
	p.machine("idle", "x-1", noon)
	p.after(10 * time.Second)
	p.want("0.55 spent, 90.00 committed")
	p.price("72")
	p.after(10 * time.Second)
	p.want("1.05 spent, 180.00 committed")
	p.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	p.after(10 * time.Second)
	p.want("1.55 spent, 180.00 committed") // its machines cost on
	p.Delete(p.request("gang"))
	p.machine("a", "gang-1", noon) // its gang has ended there
	p.MachineTerminated(cloudprovider.Machine{Name: "b", Group: "gpu"})
	p.after(10 * time.Second)
	p.want("1.85 spent, 108.00 committed") // it is billed until lists show its end
	p.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", ProviderID: "b", Launch: "gang-1", State: cloudprovider.Terminated})
	p.after(10 * time.Second)
	p.want("1.95 spent, 36.00 committed")
	p.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", ResourceVersion: p.next(), Labels: map[string]string{"team": "red"}}})
	p.want("1.95 spent, 144.00 committed") // that it spends counts from now on
}

// The spend of a queue's requests is distinguished from that of others in its namespace, from
// the launch of their machines until these are unused.
func TestWhatCountsForABudgetOfQueues(t *testing.T) {
	p := newPurse(t)
	p.ofQueues("train")
	p.Set(launches(p.of("train", p.request("gang")), 2))
	p.Set(launches(p.of("serve", p.request("x")), 2))
	p.Set(launches(p.of("", p.request("y")), 2))
	p.want("0.00 spent, 72.00 committed")
	for _, name := range []string{"gang", "x", "y"} {
		p.SetMachine(cloudprovider.Machine{Name: name, Group: "gpu", ProviderID: name, Launch: name + "-1", State: cloudprovider.Booting})
	}
	p.after(10 * time.Second)
	p.want("0.10 spent, 72.00 committed") // one of two exists
	p.machine("gang", "gang-1", noon, "ns gang train")
	p.machine("x", "x-1", noon, "ns x serve")
	p.machine("y", "y-1", noon, "ns y")
	p.machine("shared", "x-1", noon, "ns gang train", "ns x serve")
	p.machine("theirs", "z-1", noon, "other z train")
	p.after(10 * time.Second)
	p.want("0.25 spent, 90.00 committed")
	p.Delete(p.request("gang")) // the booking remembers its queue
	p.after(10 * time.Second)
	p.want("0.40 spent, 54.00 committed")
	p.Set(launches(p.of("train", p.request("y")), 1)) // a user has labelled it
	p.after(10 * time.Second)
	p.want("0.65 spent, 90.00 committed")
	p.ofQueues("train", "serve")
	p.want("0.65 spent, 144.00 committed")
	p.ofQueues()
	p.Delete(p.request("y"))
	p.want("0.65 spent, 144.00 committed") // also those of no queue
}

// TestRequestsOfNoQueueEvadeNoBudget: they count for those of queues, too, unless an admin
// leaves them out.
func TestRequestsOfNoQueueEvadeNoBudget(t *testing.T) {
	p := newPurse(t)
	p.Set(launches(p.of("train", p.request("gang")), 2))
	p.Set(launches(p.of("serve", p.request("x")), 2))
	p.Set(launches(p.of("", p.request("y")), 1))
	p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].Queues = []string{"train"} })
	p.want("0.00 spent, 108.00 committed")
	p.ofQueues("train")
	p.want("0.00 spent, 72.00 committed")
}

// The label of a request names its queue, also for bookings that are not observed yet.
// TestAMachineIsPaidByTheQueueOfItsRequest, also if that changes, and if its node does not name the launch.
func TestAMachineIsPaidByTheQueueOfItsRequest(t *testing.T) {
	p := newPurse(t)
	p.Set(launches(p.of("first", p.request("gang")), 1))
	p.machine("a", "gang-1", noon)
	for _, queue := range []string{"first", "second"} {
		p.Set(launches(p.of(queue, p.request("gang")), 1))
		if c := p.Snapshot(noon).Charges; len(c) != 1 || c[0].Queue != queue {
			t.Errorf("charges are %+v, want one of queue %s", c, queue)
		}
	}
}

func TestARequestIsOfTheQueueOfItsLabel(t *testing.T) {
	p := newPurse(t)
	p.ofQueues("train")
	p.Set(p.of("train", p.request("gang")))
	if e, _ := p.Request("gang"); e.Gang.Queue != "train" {
		t.Errorf("the gang is of queue %q, want train", e.Gang.Queue)
	}
	p.machine("a", "gone-1", noon)
	p.Assume("gang", Assumption{Bookings: []planner.Placement{{Node: "a", Requests: nodegroups.Resources{gpu: 8}}}})
	p.want("0.00 spent, 36.00 committed")
}

// A gang that may run for half an hour keeps no more than that, from when its pods
// could come.
func TestAGangWithAnEndKeepsLess(t *testing.T) {
	p := newPurse(t)
	r := launches(p.request("gang"), 2)
	r.Spec.PodSets = []provreq.PodSet{{PodTemplateRef: provreq.Reference{Name: "workers"}, Count: 2}}
	p.Set(r)
	p.want("0.00 spent, 72.00 committed") // its template may come later
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers", ResourceVersion: p.next()}}
	template.Template.Spec.ActiveDeadlineSeconds = new(int64(1800))
	p.Set(template)
	p.want("0.00 spent, 36.00 committed")
	p.machine("a", "gang-1", noon, "ns gang")
	p.machine("b", "gang-1", noon, "ns gang")
	provisioned := p.request("gang", provreq.Provisioned)
	provisioned.Spec.PodSets = r.Spec.PodSets
	provisioned.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon)
	p.Set(provisioned)
	p.after(20 * time.Minute)
	p.want("24.00 spent, 12.00 committed")
	p.after(20 * time.Minute)
	p.want("48.00 spent, 0.00 committed")
}

func TestABudgetRestartsWithItsPeriod(t *testing.T) {
	p := newPurse(t)
	p.machine("a", "gang-1", noon, "ns gang")
	p.after(11*time.Hour + 30*time.Minute)
	p.want("414.00 spent, 18.00 committed") // until midnight
	p.after(time.Hour)
	p.want("18.00 spent, 36.00 committed")
	p.after(72 * time.Hour)
	p.want("18.00 spent, 36.00 committed")
	p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].Period = v1alpha1.BudgetMonth })
	p.want("18.00 spent, 36.00 committed")
	p.after(72 * time.Hour)
	p.want("2610.00 spent, 36.00 committed")
}

// A process that comes after another goes on from what that has written, at most
// once for each moment.
func TestABudgetGoesOnFromItsStatus(t *testing.T) {
	record := func(change ...func(*v1alpha1.BudgetStatus)) v1alpha1.BudgetStatus {
		s := v1alpha1.BudgetStatus{
			Name: "red", Spent: "100.5", At: metav1.NewMicroTime(noon.Add(-100 * time.Second)),
			PeriodStart: metav1.NewTime(noon.Add(-12 * time.Hour)),
			PeriodEnd:   metav1.NewTime(noon.Add(12 * time.Hour)),
		}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	for _, tc := range []struct {
		name   string
		status v1alpha1.BudgetStatus
		world  func(*purse)
		want   string
	}{
		{"with nothing in use", record(), func(*purse) {}, "100.50 spent, 0.00 committed"},
		{"a machine in use has cost since it was written", record(), func(p *purse) { p.machine("a", "gang-1", noon.Add(-time.Hour), "ns gang") }, "101.50 spent, 36.00 committed"},
		{"or since it was booked", record(), func(p *purse) { p.machine("a", "gang-1", noon.Add(-10*time.Second), "ns gang") }, "100.60 spent, 36.00 committed"},
		{"or since it was asked for", record(), func(p *purse) {
			r := launches(p.request("gang"), 1)
			a := transaction.Attempt{Number: 1, Phase: transaction.Launching, Started: noon.Add(-20 * time.Second),
				Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}
			r.Status.ProvisioningClassDetails[transaction.AttemptDetail] = provreq.Detail(a.Encode())
			p.Set(r)
			p.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "a", Launch: "gang-1", State: cloudprovider.Booting})
		}, "100.70 spent, 36.00 committed"},
		{"what was written of yesterday is of no matter, what was in use since midnight is",
			record(func(s *v1alpha1.BudgetStatus) {
				s.PeriodStart, s.At = metav1.NewTime(noon.Add(-36*time.Hour)), metav1.NewMicroTime(noon.Add(-13*time.Hour))
			}),
			func(p *purse) { p.machine("a", "gang-1", noon.Add(-20*time.Hour), "ns gang") }, "432.00 spent, 36.00 committed"},
		{"a period that has become longer keeps what is known of it", record(func(s *v1alpha1.BudgetStatus) { s.PeriodEnd = metav1.NewTime(noon) }), func(*purse) {}, "100.50 spent, 0.00 committed"},
		{"by a clock that goes ahead it is counted from then on", record(func(s *v1alpha1.BudgetStatus) { s.At = metav1.NewMicroTime(noon.Add(time.Minute)) }),
			func(p *purse) { p.machine("a", "gang-1", noon.Add(-20*time.Hour), "ns gang") }, "100.50 spent, 36.00 committed"},
		{"of its queues, what they have had in use since, also where their requests are gone", record(), func(p *purse) {
			p.ofQueues("train")
			p.machine("a", "gang-1", noon.Add(-time.Hour), "ns gang train")
			p.machine("b", "x-1", noon.Add(-time.Hour), "ns x serve")
			p.machine("c", "y-1", noon.Add(-time.Hour), "ns y")
		}, "101.50 spent, 36.00 committed"},
		{"of bookings that do not say so, their requests tell the queue", record(), func(p *purse) {
			p.ofQueues("train")
			p.machine("a", "gang-1", noon.Add(-time.Hour), "ns gang")
			p.Set(p.of("train", p.request("gang", provreq.Provisioned)))
		}, "101.50 spent, 36.00 committed"},
		{"what somebody has made unreadable counts as nothing", record(func(s *v1alpha1.BudgetStatus) { s.Spent = "much" }), func(*purse) {}, "0.00 spent, 0.00 committed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPurse(t, tc.status)
			tc.world(p)
			p.want(tc.want)
		})
	}
}

// A status that the process itself has written changes nothing, one that another client
// has written does.
func TestTheWriterOfTheStatusOfABudget(t *testing.T) {
	p := newPurse(t)
	p.machine("a", "gang-1", noon, "ns gang")
	p.after(100 * time.Second)
	written := p.policy.DeepCopy()
	for _, r := range p.Reports(p.policy, p.clock.Now()) {
		written.Status.Budgets = append(written.Status.Budgets, r.Status)
	}
	written.ResourceVersion = p.next()
	p.Written(written)
	p.policy = written
	p.machine("a", "gang-1", noon) // it has ended, which the status does not say
	p.after(time.Second)
	p.Set(written.DeepCopy())
	p.want("1.00 spent, 0.00 committed")
	p.change(func(c *v1alpha1.CapacityPolicy) { c.Status.Budgets[0].Spent = "500" })
	p.want("500.00 spent, 0.00 committed")
	p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].USD = resource.MustParse("1") })
	p.want("500.00 spent, 0.00 committed")
}

// A waiting gang is woken when a gang of the budget ends, and when an admin raises the
// budget; not when its status is written.
func TestAGangThatWaitsForABudgetIsWoken(t *testing.T) {
	p := newPurse(t)
	p.Set(p.request("waits"))
	woken := func() bool { return len(p.Due(nil)) > 0 }
	p.cordoned = true
	p.machine("a", "gone-1", noon, "ns gang") // launched for others
	for range 2 {
		woken()
	}
	for _, tc := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"a status is written", func() {
			p.change(func(c *v1alpha1.CapacityPolicy) {
				c.Status.Budgets = []v1alpha1.BudgetStatus{{Name: "red", Spent: "1"}}
			})
		}, false},
		{"the budget is raised", func() {
			p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].USD = resource.MustParse("2000") })
		}, true},
		{"a machine is paid for no more", func() { p.machine("a", "gone-1", noon) }, true},
		{"a namespace joins", func() {
			p.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", ResourceVersion: p.next(),
				Labels: map[string]string{"team": "red"}}})
		}, true},
	} {
		if tc.change(); woken() != tc.want {
			t.Errorf("%s: woken %t", tc.name, !tc.want)
		}
	}
}

// TestBudgetsLoseLittle makes random histories in which the process ends at random
// times and another goes on from what was written, a minute ago at most. No moment of
// a machine counts twice, and lost is only what machines have cost since that had
// gone when the next process began.
func TestBudgetsLoseLittle(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := newPurse(t)
		p.change(func(c *v1alpha1.CapacityPolicy) { c.Spec.Budgets[0].Period = v1alpha1.BudgetMonth })
		since := map[string]time.Time{} // machines in use
		var exact, lost time.Duration   // machine time
		unwritten := map[string]time.Duration{}
		for step := range 300 {
			name := fmt.Sprint("m", r.IntN(5))
			if _, used := since[name]; used {
				p.machine(name, "gang-1", noon)
				delete(since, name)
			} else {
				since[name] = p.clock.Now()
				p.machine(name, "gang-1", p.clock.Now(), "ns gang")
			}
			d := time.Duration(r.IntN(30)) * time.Second
			for name := range since {
				exact += d
				unwritten[name] += d
			}
			p.after(d)
			if step%4 == 0 {
				written := p.policy.DeepCopy()
				written.Status.Budgets = nil
				for _, report := range p.Reports(p.policy, p.clock.Now()) {
					written.Status.Budgets = append(written.Status.Budgets, report.Status)
				}
				written.ResourceVersion = p.next()
				p.Written(written)
				p.policy = written
				clear(unwritten)
			}
			if r.IntN(20) == 0 {
				next := newPurse(t)
				next.clock.SetTime(p.clock.Now())
				next.version, next.policy = p.version, p.policy
				next.Delete(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}})
				next.Set(p.policy)
				for name, since := range since {
					next.machine(name, "gang-1", since, "ns gang")
					if lived := p.clock.Now().Sub(since); lived < unwritten[name] {
						lost += unwritten[name] - lived // an earlier stay of it
					}
					delete(unwritten, name)
				}
				for _, d := range unwritten {
					lost += d
				}
				clear(unwritten)
				for name, since := range since {
					if at := p.policy.Status.Budgets; len(at) > 0 {
						unwritten[name] = p.clock.Now().Sub(laterOf(since, at[0].At.Time))
					}
				}
				p = next
				p.stands() // it looks at once
			}
		}
		s := p.Snapshot(p.clock.Now())
		got := s.Budgets[0].Stands(nil, p.clock.Now()).Spent
		most, least := exact.Milliseconds()*10, (exact-lost).Milliseconds()*10
		if got > most || got < least-1000 {
			t.Errorf("seed %d: %d were counted, want from %d to %d", seed, got, least, most)
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func TestWhatRequestsHaveSpentIsTakenOnce(t *testing.T) {
	p := newPurse(t)
	p.machine("a", "gang-1", noon, "ns gang")
	p.machine("idle", "gang-1", noon)
	p.OpenAccount()
	take := func() map[cost.Spent]bool {
		out := map[cost.Spent]bool{}
		for _, s := range p.TakeSpent(p.clock.Now()) {
			out[s] = true
		}
		return out
	}
	p.after(100 * time.Second)
	p.machine("a", "gang-1", noon)
	p.after(10 * time.Second)
	for _, want := range []map[cost.Spent]bool{
		{{Request: "gang", Tenant: state.Tenant{Namespace: "ns"}, MicroUSD: 1_000_000}: true, {MicroUSD: 1_200_000}: true},
		{{}: true},
	} {
		if diff := cmp.Diff(want, take()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestAMachineThatIsHeldOnItsWayOutIsPaid until its cloud lets it go: a lifecycle hook may take an hour. It costs its price, in vain if it
// has never served.
func TestAMachineThatIsHeldOnItsWayOutIsPaid(t *testing.T) {
	for _, tc := range []struct {
		name   string
		served bool
		spent  int64 // in millionths of a USD: 36 USD an hour for 10 s, and for an hour in which the machine is held
		vain   int64
		post   cost.Purpose
	}{
		{"one that was launched in vain", false, 36_100_000, 36_100_000, cost.PurposeWasted},
		{"one that a gang has used", true, 100_000, 0, cost.PurposeIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPurse(t)
			p.OpenAccount()
			p.Set(launches(p.request("gang"), 1))
			m := cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "a", Launch: "gang-1", State: cloudprovider.Booting}
			p.SetMachine(m)
			if tc.served {
				p.machine("a", "gang-1", noon, "ns gang")
				p.Delete(p.request("gang"))
			}
			p.after(10 * time.Second)
			if tc.served {
				p.Delete(p.node(func(n *corev1.Node) { n.Name = "a" }))
			}
			m.State, m.Billed = cloudprovider.Terminated, true
			p.SetMachine(m)
			p.after(time.Hour)
			if got := p.Amounts(p.clock.Now())[cost.Post{Group: "gpu", Purpose: tc.post}]; got.Machines != 1 || got.MicroUSD < 35_000_000 {
				t.Errorf("while it is held %+v are %s, want one machine for 36 USD", got, tc.post)
			}
			m.Billed = false
			p.SetMachine(m)
			p.after(time.Hour)
			b := p.Snapshot(p.clock.Now()).Budgets[0]
			if got := b.Spent.Until(p.clock.Now()).MicroUSD; got != tc.spent {
				t.Errorf("%d millionths of a USD are spent, want %d", got, tc.spent)
			}
			if got := b.Vain.Until(p.clock.Now()).MicroUSD; got != tc.vain {
				t.Errorf("%d millionths of a USD are spent in vain, want %d", got, tc.vain)
			}
			if got := p.Amounts(p.clock.Now())[cost.Post{Group: "gpu", Purpose: tc.post}]; got.Machines != 0 {
				t.Errorf("once it has gone %+v are %s", got, tc.post)
			}
		})
	}
}
