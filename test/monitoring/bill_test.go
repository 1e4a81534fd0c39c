package monitoring

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/metrics"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/history"
)

const (
	// lasts is how long gangs are submitted.
	lasts = 12 * time.Hour
	// listEvery is how often the instances of the clouds are listed: the metrics see the end of an instance up to this much later than the
	// bill does.
	listEvery = 15 * time.Second
	gpu       = corev1.ResourceName("nvidia.com/gpu")
)

// TestTheBillIsThatOfTheClouds lives through half a day of random gangs on simulated
// clouds: some get nothing, some lose a machine while it boots, some book and never
// come, spot machines are reclaimed, prices change. Then each group costs by the metrics what the
// clouds bill for it, tenants have spent as much as all of that, and on the way what
// tenants pay an hour was always what the machines cost.
func TestTheBillIsThatOfTheClouds(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tell(t, seed, lost, reclaimed)
				for began := time.Now(); time.Since(began) < lasts || len(s.gangs) > 0; {
					<-time.After(listEvery)
					s.hear()
					s.reprice(time.Since(began))
					if time.Since(began) < lasts && s.random.IntN(40) == 0 {
						s.submit()
					}
					for _, g := range s.gangs {
						s.advance(g)
					}
					s.gangs = slices.DeleteFunc(s.gangs, func(g *gang) bool { return g.stage == over })
					if s.random.IntN(40) == 0 {
						s.tenantsPayAll()
					}
				}
				s.compare()
			})
		})
	}
}

// TestTheExportIsTheBillToTheCent runs the same gangs on clouds whose machines end only when Muster terminates them. Then the export
// of each group has the cost of the cloud's bill and of the ledger.
func TestTheExportIsTheBillToTheCent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tell(t, 1)
		for began := time.Now(); time.Since(began) < 2*lasts || len(s.gangs) > 0; {
			<-time.After(listEvery)
			s.hear()
			s.reprice(time.Since(began))
			if time.Since(began) < 2*lasts && s.random.IntN(40) == 0 {
				s.submit()
			}
			for _, g := range s.gangs {
				s.advance(g)
			}
			s.gangs = slices.DeleteFunc(s.gangs, func(g *gang) bool { return g.stage == over })
		}
		billed, shown, exported := s.billed(), s.shown("muster_machine_cost_usd_total", "group"), s.exported()
		for _, m := range offerings {
			t.Logf("%s: %.4f USD by the bill, %.4f by the ledger, %.4f exported", m.group, billed[m.pool], shown[m.group], exported[m.group])
			if billed[m.pool] == 0 || math.Abs(exported[m.group]-billed[m.pool]) > 0.005 || math.Abs(exported[m.group]-shown[m.group]) > 0.005 {
				t.Errorf("%s: the cloud bills %.4f USD, the ledger has %.4f, and %.4f are exported", m.group, billed[m.pool], shown[m.group],
					exported[m.group])
			}
		}
	})
}

// exported is the sum of the export for each group, with its days and payers apart.
func (s *story) exported() map[string]float64 {
	s.Helper()
	record := history.NewRecord(history.WeekOf(time.Now()))
	for line, e := range s.model.TakeLines(time.Now()) {
		record.Charge(history.Catalog{}.CostOf(line, e, ""))
	}
	past := &view.Past{Costs: record.Costs}
	columns, rows, err := past.FOCUS("cluster", "")
	if err != nil {
		s.Fatal(err)
	}
	out, days, purposes := map[string]float64{}, map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		usd, err := strconv.ParseFloat(row[slices.Index(columns, "EffectiveCost")], 64)
		if err != nil {
			s.Fatal(err)
		}
		out[row[slices.Index(columns, "ResourceId")]] += usd
		days[row[slices.Index(columns, "ChargePeriodStart")]], purposes[row[slices.Index(columns, "x_Purpose")]] = true, true
	}
	if len(days) < 2 || len(purposes) != len(cost.Purposes)-1 { // no launch fails, which would be wasted
		s.Errorf("the export is of the days %v and the purposes %v", days, purposes)
	}
	return out
}

// offering is a group with the pool that its machines come from.
type offering struct {
	group string
	pool  cloudsim.PoolKey
	price string
	holds int32
}

// Machines that end by themselves, which is heard of later than it is billed.
var (
	lost = v1alpha1.KwokFault{Type: v1alpha1.FaultBootDeath, Percent: new(int32(3)), After: &metav1.Duration{Duration: time.Minute}}
	// reclaimed are spot machines alone.
	reclaimed = v1alpha1.KwokFault{Type: v1alpha1.FaultReclaim, Percent: new(int32(20)), After: &metav1.Duration{Duration: 40 * time.Minute}}
)

// later are the prices in USD an hour that all offerings have from then on.
var later = []cloudsim.Price{
	{From: metav1.Duration{Duration: 3 * time.Hour}, PerHour: resource.MustParse("30")},
	{From: metav1.Duration{Duration: 6 * time.Hour}, PerHour: resource.MustParse("60")},
	{From: metav1.Duration{Duration: 9 * time.Hour}, PerHour: resource.MustParse("20")},
}

func (m offering) prices() []cloudsim.Price {
	return append([]cloudsim.Price{{PerHour: resource.MustParse(m.price)}}, later...)
}

var offerings = []offering{
	{"aws-spot", cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: "p5.48xlarge", Zone: "us-east-1a", CapacityType: v1alpha1.Spot}, "17.04", 24},
	{"aws-on-demand", cloudsim.PoolKey{Cloud: v1alpha1.ProviderAWS, Type: "p5.48xlarge", Zone: "us-east-1b", CapacityType: v1alpha1.OnDemand}, "55.04", 16},
	{"gcp-on-demand", cloudsim.PoolKey{Cloud: v1alpha1.ProviderGCP, Type: "a3-highgpu-8g", Zone: "us-east4-a", CapacityType: v1alpha1.OnDemand}, "87.83", 8},
}

// story is a world of clouds, and the metrics of a Muster that sees them.
type story struct {
	*testing.T
	random   *rand.Rand
	world    *cloudsim.World
	model    *model.Model
	informer *controllertest.FakeInformer
	registry *prometheus.Registry
	versions int
	gangs    []*gang
	// live are the instances that were listed last.
	live map[string]cloudsim.Instance
}

func tell(t *testing.T, seed uint64, faults ...v1alpha1.KwokFault) *story {
	t.Helper()
	var config cloudsim.Config
	for i, m := range offerings {
		script := v1alpha1.KwokPool{Seed: int64(seed)*10 + int64(i), Holds: &m.holds}
		script.BootDelay.Duration, script.BootJitter.Duration = 90*time.Second, 2*time.Minute
		for _, f := range faults {
			if f.Type != v1alpha1.FaultReclaim || m.pool.CapacityType == v1alpha1.Spot {
				script.Faults = append(script.Faults, f)
			}
		}
		config.Pools = append(config.Pools, cloudsim.Pool{PoolKey: m.pool, Script: script, Prices: m.prices()})
	}
	world, err := cloudsim.New(config, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := provreq.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	informers := &informertest.FakeInformers{Scheme: scheme}
	s := &story{
		T: t, random: rand.New(rand.NewPCG(seed, 6)), world: world, model: model.New(clock.RealClock{}, transaction.KnownClasses),
		registry: prometheus.NewPedanticRegistry(), live: map[string]cloudsim.Instance{},
	}
	if s.informer, err = informers.FakeInformerFor(t.Context(), &provreq.ProvisioningRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range offerings {
		s.price(m, resource.MustParse(m.price))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	c := &metrics.Controller{
		Informers: informers, Served: transaction.KnownClasses, Model: s.model, Registry: s.registry, Clock: clock.RealClock{},
		Synced: func(context.Context) bool { return true },
	}
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return s
}

// price sets the price of a group.
func (s *story) price(m offering, perHour resource.Quantity) {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: m.group, ResourceVersion: s.version()}}
	g.Spec.Provider, g.Spec.CapacityType, g.Spec.PricePerHour = m.pool.Cloud, m.pool.CapacityType, &perHour
	g.Spec.Template.Labels = map[string]string{corev1.LabelInstanceTypeStable: m.pool.Type}
	s.model.Set(g)
}

// reprice applies the prices that have become valid since the last read.
func (s *story) reprice(lived time.Duration) {
	for _, p := range later {
		if since := lived - p.From.Duration; since >= 0 && since < listEvery {
			for _, m := range offerings {
				s.price(m, p.PerHour)
			}
		}
	}
}

func (s *story) version() string {
	s.versions++
	return fmt.Sprint(s.versions)
}

// gang is a request with its machines, all of one offering.
type gang struct {
	offering
	number  int
	stage   stage
	since   time.Time
	request *provreq.ProvisioningRequest
	attempt transaction.Attempt
	ids     []string
	// comes says that its pods do, and run so long.
	comes bool
	runs  time.Duration
}

type stage int

const (
	joining stage = iota
	booked
	used
	idle
	over
)

func (g *gang) uid() types.UID { return types.UID(fmt.Sprintf("gang-%d", g.number)) }
func (g *gang) token() string  { return state.Token(g.uid(), 1) }

// submit makes a request, and launches for it.
func (s *story) submit() {
	g := &gang{offering: offerings[s.random.IntN(len(offerings))], number: s.versions, since: time.Now(), comes: s.random.IntN(5) > 0,
		runs: time.Duration(10+s.random.IntN(180)) * time.Minute}
	count := 1 + s.random.IntN(6)
	g.attempt = transaction.Attempt{Number: 1, Phase: transaction.Launching, Started: time.Now(),
		Launches: []planner.GroupCount{{Group: g.group, Count: count}}}
	s.gangs = append(s.gangs, g)
	s.put(g)
	came, refusal := s.world.Launch(cloudsim.Order{Pool: g.pool, Count: count, ID: func(n int64) string { return fmt.Sprintf("i-%d", n) },
		Tags: map[string]string{"token": g.token(), "group": g.group}})
	for _, in := range came {
		g.ids = append(g.ids, in.ID)
		s.live[in.ID] = in
		s.model.SetMachine(machineOf(in))
	}
	lesson := v1alpha1.LaunchAttempt{Time: metav1.Now(), Token: g.token(), Requested: int32(count), Got: int32(len(came))}
	if refusal != nil {
		lesson.Class = refusal.Class
		s.undo(g, refusal.Class)
	}
	s.model.Learn(g.group, lesson)
}

// put updates the request.
func (s *story) put(g *gang, conditions ...string) {
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%d", g.number%3), Name: string(g.uid()), UID: g.uid(), ResourceVersion: s.version(),
		CreationTimestamp: metav1.NewTime(g.since),
	}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(g.attempt.Encode())}
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: c})
	}
	s.model.Set(r)
	if g.request == nil {
		s.informer.Add(r)
	} else {
		s.informer.Update(g.request, r)
	}
	g.request = r
}

// undo terminates the machines of a failed launch.
func (s *story) undo(g *gang, class v1alpha1.ErrorClass) {
	g.attempt.Phase, g.attempt.Failure = transaction.RollingBack, &transaction.AttemptFailure{Group: g.group, Class: class}
	s.put(g)
	s.terminate(g)
	g.attempt.Phase = transaction.Done
	s.put(g)
}

// terminate ends all machines of the gang, and it is over.
func (s *story) terminate(g *gang) {
	for _, in := range s.instances(g) {
		s.world.Terminate(in.ID)
		ended := machineOf(in)
		s.model.MachineTerminated(ended)
		ended.State = cloudprovider.Terminated
		s.model.SetMachine(ended)
		s.model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.ID}})
		delete(s.live, in.ID)
	}
	s.model.Delete(g.request)
	s.informer.Delete(g.request)
	g.stage = over
}

// instances of the gang that have not ended.
func (s *story) instances(g *gang) (out []cloudsim.Instance) {
	for _, id := range g.ids {
		if in, lives := s.live[id]; lives {
			out = append(out, in)
		}
	}
	return out
}

// hear reads all machines, and updates the model as before any decision.
func (s *story) hear() {
	for _, in := range s.world.Instances(true) {
		if _, lived := s.live[in.ID]; !lived {
			continue
		}
		s.live[in.ID] = in
		s.model.SetMachine(machineOf(in))
		if in.Phase == cloudsim.Terminated {
			delete(s.live, in.ID)
			s.model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.ID}})
			s.model.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("pod-" + in.ID)}})
		}
	}
	s.model.Snapshot(time.Now())
}

func machineOf(in cloudsim.Instance) cloudprovider.Machine {
	state := map[cloudsim.Phase]cloudprovider.State{
		cloudsim.Pending: cloudprovider.Booting, cloudsim.Running: cloudprovider.Running, cloudsim.Terminated: cloudprovider.Terminated,
	}[in.Phase]
	return cloudprovider.Machine{Name: in.ID, Group: in.Tags["group"], ProviderID: "sim://" + in.ID, Launch: in.Tags["token"], State: state}
}

// advance does what is due of a gang.
func (s *story) advance(g *gang) {
	there, waited := s.instances(g), time.Since(g.since)
	switch g.stage {
	case joining:
		if len(there) < len(g.ids) {
			s.undo(g, v1alpha1.Lost)
			return
		}
		for _, in := range there {
			if in.Phase == cloudsim.Running {
				s.setNode(g, in.ID, true)
			}
		}
		if slices.ContainsFunc(there, func(in cloudsim.Instance) bool { return in.Phase != cloudsim.Running }) {
			return
		}
		g.attempt.Phase = transaction.Done
		s.become(g, booked)
		s.put(g, provreq.Accepted, provreq.Provisioned)
	case booked:
		if g.comes {
			for _, in := range there {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.request.Namespace, Name: in.ID, UID: types.UID("pod-" + in.ID),
					ResourceVersion: s.version()}}
				p.Spec.NodeName, p.Status.Phase = in.ID, corev1.PodRunning
				s.model.Set(p)
			}
			s.become(g, used)
		} else if waited >= 10*time.Minute {
			s.become(g, idle)
			s.put(g, provreq.Accepted, provreq.Provisioned, provreq.BookingExpired)
		}
	case used:
		if waited >= g.runs {
			for _, in := range there {
				s.model.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("pod-" + in.ID)}})
			}
			s.become(g, idle)
		}
	case idle:
		if waited >= 10*time.Minute {
			s.terminate(g)
		}
	}
}

// become takes a gang to a stage, and its nodes with it.
func (s *story) become(g *gang, next stage) {
	g.stage, g.since = next, time.Now()
	for _, in := range s.instances(g) {
		s.setNode(g, in.ID, false)
	}
}

func (s *story) setNode(g *gang, id string, young bool) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, ResourceVersion: s.version(), CreationTimestamp: metav1.Now(),
		Labels:      map[string]string{v1alpha1.NodeGroupLabel: g.group},
		Annotations: map[string]string{v1alpha1.LaunchAnnotation: g.token()},
	}}
	n.Spec.ProviderID = "sim://" + id
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if young {
		n.Spec.Unschedulable = true
		n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonJoining
	}
	if g.stage == booked || g.stage == used {
		label := state.BookingLabel(string(g.uid()))
		n.Labels[label] = g.request.Namespace
		n.Annotations[label] = state.Booking{UID: g.uid(), Since: g.since, Booked: nodegroups.Resources{gpu: 8}}.Encode()
	}
	s.model.Set(n)
}

// shown is the sum of a metric for each value of a label.
func (s *story) shown(metric, label string) map[string]float64 {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == label {
					out[l.GetValue()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func (s *story) tenantsPayAll() {
	s.Helper()
	var want, got float64
	prices, machines := s.shown("muster_group_price_usd_per_hour", "group"), s.shown("muster_machines", "group")
	for group, n := range machines {
		want += n * prices[group]
	}
	for _, usd := range s.shown("muster_spend_usd_per_hour", "namespace") {
		got += usd
	}
	if math.Abs(got-want) > 1e-6 {
		s.Errorf("tenants pay %g USD an hour together, the machines cost %g", got, want)
	}
}

// billed is what the clouds bill for each pool, in USD.
func (s *story) billed() map[cloudsim.PoolKey]float64 {
	out := map[cloudsim.PoolKey]float64{}
	for _, l := range s.world.Bill() {
		out[l.Pool] += float64(l.MicroUSD) / 1e6
	}
	return out
}

// compare compares the bills of all groups.
func (s *story) compare() {
	billed := s.billed()
	shown := s.shown("muster_machine_cost_usd_total", "group")
	for _, m := range offerings {
		off := (shown[m.group] - billed[m.pool]) / billed[m.pool]
		s.Logf("%s: %.2f USD by the metrics, %.2f by the bill: %+.3f %%", m.group, shown[m.group], billed[m.pool], 100*off)
		if billed[m.pool] == 0 || math.Abs(off) > 0.01 {
			s.Errorf("%s costs %.2f USD by the metrics and %.2f by the bill of the cloud, want them within 1 %%", m.group,
				shown[m.group], billed[m.pool])
		}
	}
	var all, paid float64
	for _, usd := range billed {
		all += usd
	}
	for _, usd := range s.shown("muster_spend_usd_total", "namespace") {
		paid += usd
	}
	if math.Abs(paid-all) > all/100 {
		s.Errorf("tenants and nobody have spent %.2f USD together by the metrics, the clouds bill %.2f, want them within 1 %%", paid, all)
	}
	s.Logf("spent %.2f USD by tenants, %.2f by the bills: %+.3f %%", paid, all, 100*(paid-all)/all)
	purposes := s.shown("muster_machine_cost_usd_total", "purpose")
	unused := s.shown("muster_machine_unused_cost_usd_total", "group")
	for _, p := range cost.Purposes {
		if purposes[p.String()] == 0 {
			s.Errorf("nothing was paid for %s machines: the story leaves out what it is to show", p)
		}
	}
	for _, m := range offerings {
		if unused[m.group] == 0 {
			s.Errorf("%s: nothing was paid for bookings that nobody came for", m.group)
		}
	}
}
