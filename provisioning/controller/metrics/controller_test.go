package metrics

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// world is a model with the groups spot and steady, and an informer of requests.
type world struct {
	*testing.T
	model    *model.Model
	informer *controllertest.FakeInformer
	registry *prometheus.Registry
	versions int
	// queued has the jobs of requests, by name.
	queued map[string]Queued
}

// live runs the controller beside the test. After it, no series is left.
func live(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := provreq.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		informers := &informertest.FakeInformers{Scheme: scheme}
		w := &world{T: t, model: model.New(clock.RealClock{}, transaction.KnownClasses), registry: prometheus.NewPedanticRegistry(),
			queued: map[string]Queued{}}
		var err error
		if w.informer, err = informers.FakeInformerFor(t.Context(), &provreq.ProvisioningRequest{}); err != nil {
			t.Fatal(err)
		}
		w.group("spot", v1alpha1.Spot, "3.6")
		w.group("steady", v1alpha1.OnDemand, "36")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		c := &Controller{
			Informers: informers, Served: transaction.KnownClasses, Model: w.model, Registry: w.registry, Clock: clock.RealClock{},
			Synced: func(context.Context) bool { return true },
			Queued: func(_ context.Context, r *provreq.ProvisioningRequest) Queued { return w.queued[r.Name] },
		}
		go func() { ended <- c.Start(ctx) }()
		synctest.Wait()
		test(w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := w.shown(); len(left) > 0 {
			t.Errorf("after the end it shows %v", left)
		}
	})
}

func (w *world) group(name string, capacityType v1alpha1.CapacityType, price string) {
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: w.version()}}
	g.Spec.Provider, g.Spec.Zone = v1alpha1.ProviderKwok, "a"
	g.Spec.CapacityType, g.Spec.PricePerHour = capacityType, new(resource.MustParse(price))
	if name == "spot" {
		g.Spec.Template.Labels = map[string]string{corev1.LabelInstanceTypeStable: "large"}
	}
	g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi")}
	w.model.Set(g)
}

func (w *world) version() string {
	w.versions++
	return fmt.Sprint(w.versions)
}

// request returns a request of a gang with one machine of each group, with this phase of its attempt and these conditions.
func (w *world) request(name string, number int, phase transaction.AttemptPhase,
	conditions ...metav1.Condition) *provreq.ProvisioningRequest {
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: w.version(), CreationTimestamp: metav1.NewTime(time.Now()),
	}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	r.Status.Conditions = conditions
	if number > 0 {
		a := transaction.Attempt{Number: number, Phase: phase, Launches: []planner.GroupCount{{Group: "spot", Count: 1},
			{Group: "steady", Count: 1}}}
		if phase == transaction.RollingBack {
			a.Failure = &transaction.AttemptFailure{Group: "steady", Class: v1alpha1.Stockout}
		}
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
	}
	return r
}

func is(condition, reason string) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason}
}

// becomes delivers the next versions of a request.
func (w *world) becomes(old *provreq.ProvisioningRequest, versions ...*provreq.ProvisioningRequest) {
	for _, r := range versions {
		r.CreationTimestamp = old.CreationTimestamp
		w.model.Set(r)
		w.informer.Update(old, r)
		old = r
	}
}

// shown returns the series with a value other than 0, sorted.
func (w *world) shown(prefixes ...string) (out []string) {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		if len(prefixes) > 0 && !slices.Contains(prefixes, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
			if value != 0 {
				out = append(out, fmt.Sprintf("%s{%s} %g", f.GetName(), strings.Join(labels, ","), value))
			}
		}
	}
	return out
}

func (w *world) shows(names string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.shown(strings.Fields(names)...)); diff != "" {
		w.Errorf("%s (-want +got):\n%s", names, diff)
	}
}

func TestLaunchesAreCountedByTheirOutcome(t *testing.T) {
	live(t, func(w *world) {
		begun := w.request("gang", 1, transaction.Launching)
		w.informer.Add(begun)
		failed := w.request("gang", 1, transaction.RollingBack)
		w.becomes(begun, w.request("gang", 1, transaction.Launching), failed, w.request("gang", 1, transaction.Done))
		w.shows("muster_launches_total",
			"muster_launches_total{capacity_type=OnDemand,group=steady,outcome=Stockout} 1",
			"muster_launches_total{capacity_type=Spot,group=spot,outcome=Undone} 1")
		second := w.request("gang", 2, transaction.Launching)
		w.becomes(w.request("gang", 1, transaction.Done), second, w.request("gang", 2, transaction.Done))
		third := w.request("other", 1, transaction.Launching)
		w.becomes(w.request("other", 0, ""), third)
		w.informer.Delete(third)
		w.shows("muster_launches_total",
			"muster_launches_total{capacity_type=OnDemand,group=steady,outcome=Stockout} 1",
			"muster_launches_total{capacity_type=OnDemand,group=steady,outcome=Succeeded} 1",
			"muster_launches_total{capacity_type=OnDemand,group=steady,outcome=Undone} 1",
			"muster_launches_total{capacity_type=Spot,group=spot,outcome=Succeeded} 1",
			"muster_launches_total{capacity_type=Spot,group=spot,outcome=Undone} 2")
		w.shows("muster_attempts_total",
			"muster_attempts_total{machines=2,outcome=Stockout} 1",
			"muster_attempts_total{machines=2,outcome=Succeeded} 1",
			"muster_attempts_total{machines=2,outcome=Undone} 1")
	})
}

func TestRequestsAreTimedAndBookingsCounted(t *testing.T) {
	live(t, func(w *world) {
		accepted, provisioned := is(provreq.Accepted, "Accepted"), is(provreq.Provisioned, "CapacityIsProvisioned")
		consumed := is(provreq.BookingExpired, transaction.ReasonBookingConsumed)
		expired := is(provreq.BookingExpired, transaction.ReasonReservationExpired)
		first, second, old := w.request("first", 0, ""), w.request("second", 0, ""), w.request("old", 0, "", accepted, provisioned)
		w.informer.Add(old) // the previous leader has counted it
		<-time.After(90 * time.Second)
		w.becomes(first, w.request("first", 0, "", accepted), w.request("first", 0, "", accepted, provisioned),
			w.request("first", 0, "", accepted, provisioned, consumed))
		<-time.After(30 * time.Second)
		w.becomes(second, w.request("second", 0, "", accepted, provisioned), w.request("second", 0, "", accepted, provisioned, expired))
		w.becomes(old, w.request("old", 0, "", accepted, provisioned, expired, is(provreq.CapacityRevoked, "MachineLost")))
		w.becomes(w.request("new", 0, ""), w.request("new", 0, "", accepted))
		foreign := w.request("foreign", 0, "")
		foreign.Spec.ProvisioningClassName = "somebody.else"
		theirs := foreign.DeepCopy()
		theirs.Status.Conditions = []metav1.Condition{provisioned}
		w.informer.Update(foreign, theirs)
		w.shows("muster_bookings_total muster_request_provisioned_seconds muster_requests",
			"muster_bookings_total{event=Booked} 2",
			"muster_bookings_total{event=Consumed} 1",
			"muster_bookings_total{event=Expired} 2",
			"muster_bookings_total{event=Revoked} 1",
			"muster_request_provisioned_seconds{class=atomic-scale-up.muster.dev} 210",
			"muster_requests{class=atomic-scale-up.muster.dev,condition=Accepted} 1",
			"muster_requests{class=atomic-scale-up.muster.dev,condition=BookingExpired} 2",
			"muster_requests{class=atomic-scale-up.muster.dev,condition=CapacityRevoked} 1")
	})
}

// TestAnotherRequestOfTheSameName arrives as an update if the watch was broken meanwhile.
func TestAnotherRequestOfTheSameName(t *testing.T) {
	live(t, func(w *world) {
		begun := w.request("gang", 1, transaction.Launching)
		w.informer.Add(begun)
		another := w.request("gang", 1, transaction.Done, is(provreq.Provisioned, "CapacityIsProvisioned"))
		another.UID = "another"
		w.informer.Update(begun, another)
		w.shows("muster_attempts_total muster_bookings_total",
			"muster_attempts_total{machines=2,outcome=Undone} 1")
	})
}

// TestWhatMachinesCost: two machines of 36 USD an hour, a cent a second; one is
// rolled back.
func TestWhatMachinesCost(t *testing.T) {
	live(t, func(w *world) {
		w.model.Set(w.request("gang", 1, transaction.Launching))
		machine := func(name, token string, state cloudprovider.State) {
			w.model.SetMachine(cloudprovider.Machine{Name: name, Group: "steady", ProviderID: name, Launch: token, State: state})
		}
		machine("a", "gang-1", cloudprovider.Booting)
		machine("b", "other-1", cloudprovider.Running)
		<-time.After(10 * time.Second)
		w.shows("muster_machines muster_machine_seconds_total muster_machine_cost_usd_total muster_group_chance_ratio",
			"muster_group_chance_ratio{group=spot} 0.95",
			"muster_group_chance_ratio{group=steady} 0.95",
			"muster_machine_cost_usd_total{group=steady,purpose=idle} 0.1",
			"muster_machine_seconds_total{group=steady,purpose=idle} 10",
			"muster_machines{group=steady,state=idle} 1",
			"muster_machines{group=steady,state=joining} 1")
		w.model.Set(w.request("gang", 1, transaction.RollingBack))
		<-time.After(time.Second)
		machine("a", "gang-1", cloudprovider.Gone)
		<-time.After(time.Second)
		w.shows("muster_machines muster_machine_seconds_total muster_machine_cost_usd_total",
			"muster_machine_cost_usd_total{group=steady,purpose=idle} 0.12",
			"muster_machine_cost_usd_total{group=steady,purpose=wasted} 0.11",
			"muster_machine_seconds_total{group=steady,purpose=idle} 12",
			"muster_machine_seconds_total{group=steady,purpose=wasted} 11",
			"muster_machines{group=steady,state=idle} 1")
	})
}

// TestTheTimeToCapacityIsSplit: a job waits a minute for quota, and its request another minute with a first attempt in vain. The cloud
// makes the machines within 30 s, they register after 100 s and are ready 20 s later.
func TestTheTimeToCapacityIsSplit(t *testing.T) {
	live(t, func(w *world) {
		began := time.Now()
		w.queued["gang"] = Queued{Queue: "team", Since: began}
		<-time.After(time.Minute)
		gang := w.request("gang", 0, "")
		w.informer.Add(gang)
		<-time.After(time.Minute)
		launched := func(phase transaction.AttemptPhase, conditions ...metav1.Condition) *provreq.ProvisioningRequest {
			r := w.request("gang", 0, "", conditions...)
			r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(transaction.Attempt{
				Number: 2, Phase: phase, Started: began.Add(2 * time.Minute), Launches: []planner.GroupCount{{Group: "steady", Count: 3}},
			}.Encode())}
			return r
		}
		launching := launched(transaction.Launching)
		w.becomes(gang, launching)
		for name, after := range map[string]time.Duration{"a": 50 * time.Second, "b": 100 * time.Second} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: w.version(),
				CreationTimestamp: metav1.NewTime(time.Now().Add(after))}}
			n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-2"}
			w.model.Set(n)
		}
		for _, name := range []string{"a", "b"} { // the cloud answers for one after the other
			<-time.After(15 * time.Second)
			w.model.SetMachine(cloudprovider.Machine{Name: name, Group: "steady", ProviderID: name, Launch: "gang-2"})
		}
		<-time.After(90 * time.Second)
		w.model.SetMachine(cloudprovider.Machine{Name: "b", Group: "steady", ProviderID: "b", Launch: "gang-2", State: cloudprovider.Running})
		w.becomes(launching, launched(transaction.Done, is(provreq.Provisioned, "CapacityIsProvisioned")))
		w.shows("muster_time_to_capacity_seconds",
			"muster_time_to_capacity_seconds{machines=2,stage=boot} 70",
			"muster_time_to_capacity_seconds{machines=2,stage=cloud} 30",
			"muster_time_to_capacity_seconds{machines=2,stage=join} 20",
			"muster_time_to_capacity_seconds{machines=2,stage=quota} 60",
			"muster_time_to_capacity_seconds{machines=2,stage=wait} 60")
	})
}

func TestACapacityThatWasThereHasNoBoot(t *testing.T) {
	live(t, func(w *world) {
		first, second := w.request("first", 0, ""), w.request("second", 1, transaction.RollingBack)
		<-time.After(time.Minute)
		w.becomes(first, w.request("first", 0, "", is(provreq.Provisioned, "CapacityIsFound")))
		afterFailure := w.request("second", 1, transaction.RollingBack, is(provreq.Provisioned, "CapacityIsFound"))
		w.becomes(second, afterFailure)
		w.shows("muster_time_to_capacity_seconds", "muster_time_to_capacity_seconds{machines=0,stage=wait} 120")
	})
}

func TestSizesAreFew(t *testing.T) {
	for machines, want := range map[int]string{0: "0", 1: "1", 2: "2", 3: "2", 4: "4", 7: "4", 8: "8", 1000: "512", 100_000: "65536"} {
		if got := size(machines); got != want {
			t.Errorf("%d machines count as %s, want %s", machines, got, want)
		}
	}
}

// TestSpendPerQueue: each machine costs 36 USD an hour. One boots for a gang, one is booked by two gangs, one by a gang whose request is
// gone, and one is not booked.
func TestSpendPerQueue(t *testing.T) {
	live(t, func(w *world) {
		machine := func(name, token string, bookings ...*provreq.ProvisioningRequest) *corev1.Node {
			w.model.SetMachine(cloudprovider.Machine{Name: name, Group: "steady", ProviderID: name, Launch: token, State: cloudprovider.Running})
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: w.version(), Labels: map[string]string{},
				Annotations: map[string]string{}}}
			n.Spec.ProviderID = name
			for _, r := range bookings {
				label := state.BookingLabel(state.BookingKey(r.Name))
				n.Labels[label] = r.Namespace
				n.Annotations[label] = state.Booking{UID: r.UID, Since: time.Now()}.Encode()
			}
			return n
		}
		w.queued["launching"], w.queued["left"], w.queued["gone"] = Queued{Queue: "a"}, Queued{Queue: "b"}, Queued{Queue: "c"}
		launching := w.request("launching", 1, transaction.Launching)
		left, right, gone := w.request("left", 0, ""), w.request("right", 0, ""), w.request("gone", 0, "")
		for _, r := range []*provreq.ProvisioningRequest{launching, left, right, gone} {
			w.model.Set(r)
			w.informer.Add(r)
		}
		machine("boots", "launching-1")
		w.model.Set(machine("shared", "", left, right))
		w.model.Set(machine("kept", "", gone))
		w.model.Set(machine("idle", ""))
		w.model.Delete(gone)
		w.informer.Delete(gone)
		delete(w.queued, "left") // the Workload is deleted first
		w.informer.Update(left, left)
		<-time.After(100 * time.Second)
		for range 2 { // the first scrape drops no queue that still pays
			w.shows("muster_spend_usd_per_hour",
				"muster_spend_usd_per_hour{namespace=,queue=} 36",
				"muster_spend_usd_per_hour{namespace=ns,queue=} 18",
				"muster_spend_usd_per_hour{namespace=ns,queue=a} 36",
				"muster_spend_usd_per_hour{namespace=ns,queue=b} 18",
				"muster_spend_usd_per_hour{namespace=ns,queue=c} 36")
		}
		w.model.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kept"}})
		<-time.After(100 * time.Second)
		w.shows("muster_spend_usd_total", // a cent a second for each machine; the queue keeps paying for the one that is left
			"muster_spend_usd_total{namespace=,queue=} 3",
			"muster_spend_usd_total{namespace=ns,queue=} 1",
			"muster_spend_usd_total{namespace=ns,queue=a} 2",
			"muster_spend_usd_total{namespace=ns,queue=b} 1",
			"muster_spend_usd_total{namespace=ns,queue=c} 1")
		w.shows("muster_spend_usd_per_hour",
			"muster_spend_usd_per_hour{namespace=,queue=} 72",
			"muster_spend_usd_per_hour{namespace=ns,queue=} 18",
			"muster_spend_usd_per_hour{namespace=ns,queue=a} 36",
			"muster_spend_usd_per_hour{namespace=ns,queue=b} 18")
	})
}

// TestHowBudgetsStand: a gang runs on a machine of 36 USD an hour for 100 s, and is committed for an hour.
func TestHowBudgetsStand(t *testing.T) {
	live(t, func(w *world) {
		p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", ResourceVersion: w.version()}}
		p.Spec.Budgets = []v1alpha1.CapacityBudget{{
			Name: "team", USD: resource.MustParse("100"), Period: v1alpha1.BudgetMonth, Reserve: &metav1.Duration{Duration: time.Hour},
		}}
		w.model.Set(p)
		w.model.Set(w.request("gang", 1, transaction.Launching))
		w.model.SetMachine(cloudprovider.Machine{Name: "a", Group: "steady", ProviderID: "a", Launch: "gang-1", State: cloudprovider.Booting})
		w.model.Snapshot(time.Now())
		<-time.After(100 * time.Second)
		w.shows("muster_budget_limit_usd muster_budget_spent_usd muster_budget_committed_usd",
			"muster_budget_committed_usd{budget=team,policy=policy} 39.6", // the spot machine is requested
			"muster_budget_limit_usd{budget=team,policy=policy} 100",
			"muster_budget_spent_usd{budget=team,policy=policy} 1")
	})
}

func TestWhatGroupsOffer(t *testing.T) {
	live(t, func(w *world) {
		w.model.Learn("spot", v1alpha1.LaunchAttempt{Time: metav1.Now(), Token: "gang-1", Requested: 3, Class: v1alpha1.Stockout})
		w.shows("muster_group_info muster_group_price_usd_per_hour muster_group_evidence_launches muster_group_evidence_timestamp_seconds",
			"muster_group_evidence_launches{group=spot,level=,machines=2,outcome=failed} 1",
			fmt.Sprintf("muster_group_evidence_timestamp_seconds{group=spot} %g", float64(time.Now().Unix())),
			"muster_group_info{capacity_type=OnDemand,group=steady,instance_type=steady,provider=kwok,zone=a} 1",
			"muster_group_info{capacity_type=Spot,group=spot,instance_type=large,provider=kwok,zone=a} 1",
			"muster_group_price_usd_per_hour{group=spot} 3.6",
			"muster_group_price_usd_per_hour{group=steady} 36")
	})
}

// TestDevicesOfGroups are counted by their DeviceClass: on nodes that publish them, and on machines to come.
func TestDevicesOfGroups(t *testing.T) {
	live(t, func(w *world) {
		const names = "muster_group_devices muster_group_machine_devices"
		w.shows(names)
		for _, class := range []string{"gpu", "nic"} {
			c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class, ResourceVersion: w.version()}}
			c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == '%s.example.com'", class)}}}
			w.model.Set(c)
		}
		g := w.model.Group("steady").DeepCopy()
		g.ResourceVersion = w.version()
		g.Spec.Template.Devices = []v1alpha1.DevicePool{{Driver: "nic.example.com", Devices: []v1alpha1.Device{{Name: "port", Count: 2}}}}
		w.model.Set(g)
		for _, name := range []string{"m", "n"} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: w.version(),
				Labels: map[string]string{v1alpha1.NodeGroupLabel: "steady"}}}
			w.model.Set(n)
			s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: w.version()}}
			s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &name,
				Pool:    resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "shared", AllowMultipleAllocations: new(true)}}}
			if name == "n" {
				s.Spec.Devices[2].Taints = []resourcev1.DeviceTaint{{Key: "example.com/xid", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
			}
			w.model.Set(s)
		}
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", ResourceVersion: w.version()}}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "gpu.example.com", Pool: "m", Device: "a"}}}}
		w.model.Set(claim)
		w.shows(names,
			"muster_group_devices{device_class=gpu,group=steady,state=allocated} 1",
			"muster_group_devices{device_class=gpu,group=steady,state=free} 6",
			"muster_group_devices{device_class=gpu,group=steady,state=tainted} 1",
			"muster_group_machine_devices{device_class=nic,group=steady} 2")
	})
}

func TestTheInstanceTypeIsWhatTheCloudCallsIt(t *testing.T) {
	labelled := map[string]string{corev1.LabelInstanceTypeStable: "label"}
	for name, tc := range map[string]struct {
		spec   v1alpha1.NodeGroupSpec
		labels map[string]string
		want   string
	}{
		"on AWS":                              {v1alpha1.NodeGroupSpec{AWS: &v1alpha1.AWSGroup{InstanceType: "p5.48xlarge"}}, labelled, "p5.48xlarge"},
		"on GCP":                              {v1alpha1.NodeGroupSpec{GCP: &v1alpha1.GCPGroup{MachineType: "a3-highgpu-8g"}}, labelled, "a3-highgpu-8g"},
		"by the label of its nodes":           {v1alpha1.NodeGroupSpec{}, labelled, "label"},
		"or else the group is one of its own": {v1alpha1.NodeGroupSpec{}, nil, "group"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := offeringOf(&nodegroups.Group{Name: "group", Labels: tc.labels}, &tc.spec).instanceType; got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAnUnusedBookingIsWaste: a machine of a cent a second is booked for 10 seconds
// and no pod comes.
func TestAnUnusedBookingIsWaste(t *testing.T) {
	live(t, func(w *world) {
		r := w.request("gang", 0, "", is(provreq.Provisioned, "CapacityIsFound"))
		w.model.Set(r)
		w.model.SetMachine(cloudprovider.Machine{Name: "n", Group: "steady", ProviderID: "n", State: cloudprovider.Running})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: w.version()}}
		n.Spec.ProviderID = "n"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		label := state.BookingLabel("gang")
		n.Labels = map[string]string{label: "ns"}
		n.Annotations = map[string]string{label: state.Booking{UID: "gang", Since: time.Now(),
			Booked: nodegroups.Resources{"cpu": 1000}}.Encode()}
		w.model.Set(n)
		<-time.After(10 * time.Second)
		w.shows("muster_machine_unused_seconds_total")
		w.becomes(r, w.request("gang", 0, "", is(provreq.Provisioned, "CapacityIsFound"),
			is(provreq.BookingExpired, transaction.ReasonReservationExpired)))
		w.shows("muster_machine_unused_seconds_total muster_machine_unused_cost_usd_total muster_machine_cost_usd_total",
			"muster_machine_cost_usd_total{group=steady,purpose=booked} 0.1",
			"muster_machine_unused_cost_usd_total{group=steady} 0.1",
			"muster_machine_unused_seconds_total{group=steady} 10")
	})
}

// TestSeriesStay even if they are 0. Those of a deleted group stay as long as its machines cost money.
func TestSeriesStay(t *testing.T) {
	live(t, func(w *world) {
		w.model.SetMachine(cloudprovider.Machine{Name: "b", Group: "steady", ProviderID: "b", Launch: "other-1", State: cloudprovider.Running})
		w.model.Amounts(time.Now())
		w.model.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "steady"}})
		<-time.After(10 * time.Second)
		w.shows("muster_machine_cost_usd_total", "muster_machine_cost_usd_total{group=steady,purpose=idle} 0.1")
		families, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		bookings := 0
		for _, f := range families {
			if f.GetName() == "muster_machines" && len(f.GetMetric()) != 1+len(cost.Purposes) {
				t.Errorf("%d series of machines, want one for each purpose of spot and that of steady", len(f.GetMetric()))
			}
			if f.GetName() == "muster_bookings_total" {
				bookings = len(f.GetMetric())
			}
			if !strings.HasPrefix(f.GetName(), "muster_") || f.GetHelp() == "" {
				t.Errorf("%s: %q", f.GetName(), f.GetHelp())
			}
		}
		if bookings != 4 {
			t.Errorf("%d series of bookings, want one for each event: increase() never sees the first of a new one", bookings)
		}
	})
}

// BenchmarkScrape reads all metrics of a fleet of idle and booked machines once.
func BenchmarkScrape(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			m := model.New(clock.RealClock{}, transaction.KnownClasses)
			for i := range 100 {
				m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group-%02d", i), ResourceVersion: "1"}})
			}
			for i := range nodes {
				name, group := fmt.Sprintf("node-%06d", i), fmt.Sprintf("group-%02d", i%100)
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1",
					Labels: map[string]string{v1alpha1.NodeGroupLabel: group}}}
				n.Spec.ProviderID = name
				if i%2 == 0 {
					label := state.BookingLabel(fmt.Sprintf("gang-%d", i/16))
					n.Labels[label] = fmt.Sprintf("team-%d", i/16%50)
					n.Annotations = map[string]string{label: state.Booking{UID: types.UID(fmt.Sprint(i / 16)), Since: time.Now()}.Encode()}
				}
				m.SetMachine(cloudprovider.Machine{Name: name, Group: group, ProviderID: name, State: cloudprovider.Running})
				m.Set(n)
			}
			m.OpenAccount()
			r := prometheus.NewRegistry()
			r.MustRegister(newState(m, newTenants(), nil, clock.RealClock{}))
			for b.Loop() {
				if _, err := r.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
