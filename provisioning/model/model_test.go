package model

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// version makes the next resource version of a test's objects.
type version int

func (v *version) next() string {
	*v++
	return fmt.Sprint(int(*v))
}

func newModel() (*Model, *version) {
	return New(testingclock.NewFakePassiveClock(noon), transaction.KnownClasses), new(version)
}

func (v *version) node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: v.next()}}
	n.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse("8"), "pods": resource.MustParse("110")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

func (v *version) pod(name, node string, gpus int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: v.next(),
		CreationTimestamp: metav1.NewTime(noon)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func (v *version) request(name string, conditions ...string) *provreq.ProvisioningRequest {
	r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		ResourceVersion: v.next()}}
	r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return r
}

// consumes marks a pod of the gang.
func consumes(p *corev1.Pod) {
	p.Annotations = map[string]string{provreq.ProvisioningRequestPodAnnotationKey: "gang"}
}

func podPhase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}

// booked marks a node whose eight GPUs the gang has booked.
func booked(n *corev1.Node) {
	label := state.BookingLabel("gang")
	n.Labels = map[string]string{label: "ns"}
	n.Annotations = map[string]string{label: state.Booking{UID: "gang", Since: noon, Booked: nodegroups.Resources{gpu: 8}}.Encode()}
}

func only(t *testing.T, m *Model) state.Node {
	t.Helper()
	s := m.Snapshot(noon)
	if s.Nodes.Len() != 1 {
		t.Fatalf("snapshot has %d nodes, want 1", s.Nodes.Len())
	}
	return *s.Nodes.Find("n")
}

func TestPodsTakeRoom(t *testing.T) {
	m, v := newModel()
	m.Set(v.pod("early", "n", 1)) // heard of before its node
	m.Set(v.node())
	m.Set(v.pod("running", "n", 2))
	m.Set(v.pod("finished", "n", 4, podPhase(corev1.PodSucceeded)))
	m.Set(v.pod("nominated", "", 1, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }))
	m.Set(v.pod("daemon", "n", 1, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", UID: "ds", Controller: new(bool)}}
		*p.OwnerReferences[0].Controller = true
	}))
	n := only(t, m)
	if n.Free[gpu] != 8-1-2-1-1 || n.Pods != 3 || !n.Daemons["ds"] {
		t.Errorf("free %d, pods %d, daemons %v", n.Free[gpu], n.Pods, n.Daemons)
	}
	for _, uid := range []types.UID{"early", "running", "nominated", "daemon", "finished"} {
		m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	if n := only(t, m); n.Free[gpu] != 8 || n.Pods != 0 || n.IdleSince != noon {
		t.Errorf("after all left: free %d, pods %d, idle since %s", n.Free[gpu], n.Pods, n.IdleSince)
	}
}

// TestDaemonSetsThatTakeDevices take no room of machines that are launched, since their pods are kept off those that are held. One of
// their pods that has slipped onto such a machine is reported.
func TestDaemonSetsThatTakeDevices(t *testing.T) {
	m, v := newModel()
	asks := func(name corev1.ResourceName, amount string) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(name), UID: types.UID(name)}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{name: resource.MustParse(amount)}}}}
		return d
	}
	for _, d := range []*appsv1.DaemonSet{asks(gpu, "1"), asks("cpu", "1"), asks("none.example.com/x", "0")} {
		m.Set(d)
	}
	var counted []string
	for _, d := range m.Snapshot(noon).DaemonSets {
		counted = append(counted, d.Name)
	}
	if want := []string{"ns/cpu", "ns/none.example.com/x"}; !slices.Equal(counted, want) {
		t.Errorf("%v take room, want %v", counted, want)
	}
	m.Set(v.request("gang", provreq.Provisioned))
	m.Set(v.node(booked, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[v1alpha1.CordonedAnnotation] = v1alpha1.CordonBooked
	}))
	of := func(d *appsv1.DaemonSet) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", UID: d.UID, Controller: new(true)}}
		}
	}
	m.Set(v.pod("greedy", "n", 1, of(asks(gpu, "1"))))
	m.Set(v.pod("helper", "n", 0, of(asks("cpu", "1"))))
	if n := only(t, m); !slices.Equal(n.UnbookedPods, []string{"ns/greedy"}) {
		t.Errorf("the unbooked pods are %v", n.UnbookedPods)
	}
}

func TestBookingsAreNotCountedTwice(t *testing.T) {
	m, v := newModel()
	m.Set(v.request("gang", provreq.Provisioned))
	m.Set(v.node(booked))
	remaining := func() int64 {
		t.Helper()
		n := only(t, m)
		if len(n.Bookings) != 1 {
			t.Fatalf("%d live bookings, want 1", len(n.Bookings))
		}
		return n.Bookings[0].Remaining[gpu]
	}
	if got := remaining(); got != 8 {
		t.Errorf("before any pod: %d GPUs remain booked, want 8", got)
	}
	m.Set(v.pod("one", "n", 4, consumes))
	if got := remaining(); got != 4 || only(t, m).Free[gpu] != 4 {
		t.Errorf("with a pod of 4: %d remain booked, %d free", got, only(t, m).Free[gpu])
	}
	m.Set(v.pod("one", "n", 4, consumes, podPhase(corev1.PodSucceeded)))
	if got := remaining(); got != 4 {
		t.Errorf("a pod that succeeded has used its part up, yet %d remain booked", got)
	}
	m.Set(v.pod("one", "n", 4, consumes, podPhase(corev1.PodFailed)))
	if got := remaining(); got != 8 {
		t.Errorf("a pod that failed comes again, yet only %d remain booked", got)
	}
	m.Set(v.request("gang", provreq.Provisioned, provreq.BookingExpired))
	if n := only(t, m); len(n.Bookings) != 0 || len(n.Labelled) != 1 {
		t.Errorf("after the booking: %d live, %d on the node", len(n.Bookings), len(n.Labelled))
	}
}

func TestPodsCountForTheRequestWhoseNodesTheyAreOn(t *testing.T) {
	m, v := newModel()
	r := v.request("gang", provreq.Provisioned)
	r.CreationTimestamp = metav1.NewTime(noon)
	m.Set(r)
	m.Set(v.node(booked, func(n *corev1.Node) {
		n.Annotations[state.BookingLabel("gang")] = state.Booking{UID: "gang", Since: noon, Booked: nodegroups.Resources{gpu: 8},
			Earlier: []types.UID{"made-again-by-an-earlier-job"}}.Encode()
	}))
	m.Set(v.pod("mine", "n", 4, consumes))
	m.Set(v.pod("made-again-by-an-earlier-job", "n", 4, consumes))
	m.Set(v.pod("pending", "", 4, consumes))
	m.Set(v.pod("of-an-earlier-request-of-that-name", "elsewhere", 4, consumes))
	m.Set(v.pod("of-an-earlier-request-on-the-same-node", "n", 4, consumes, func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	}))
	if got := len(only(t, m).Labelled[0].Came); got != 1 {
		t.Errorf("%d pods count, want 1", got)
	}
}

// TestPodsCountForTheirRequestWhereOurClockIsBehind: bookings are dated by it, pods and
// requests by others.
func TestPodsCountForTheirRequestWhereOurClockIsBehind(t *testing.T) {
	m, v := newModel()
	r := v.request("gang", provreq.Provisioned)
	r.CreationTimestamp = metav1.NewTime(noon.Add(5 * time.Minute))
	m.Set(r)
	m.Set(v.node(booked)) // since noon
	at := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(d)) }
	}
	m.Set(v.pod("of-an-earlier-request", "n", 4, consumes, podPhase(corev1.PodSucceeded), at(4*time.Minute)))
	if b := only(t, m).Bookings[0]; len(b.Came) != 0 || b.Remaining[gpu] != 8 {
		t.Errorf("%d pods count and %d GPUs remain booked, want none and 8", len(b.Came), b.Remaining[gpu])
	}
	m.Set(v.pod("of-this-one", "n", 4, consumes, at(5*time.Minute)))
	if b := only(t, m).Bookings[0]; len(b.Came) != 1 || b.Remaining[gpu] != 4 {
		t.Errorf("%d pods count and %d GPUs remain booked, want 1 and 4", len(b.Came), b.Remaining[gpu])
	}
}

func TestMachinesOfAnAttemptInFlightAreMarked(t *testing.T) {
	m, v := newModel()
	m.Set(v.node(func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1"} }))
	for _, tc := range []struct {
		phase   transaction.AttemptPhase
		failure *transaction.AttemptFailure
		want    bool
	}{
		{transaction.Launching, nil, true},
		{transaction.RollingBack, &transaction.AttemptFailure{Message: "dry"}, true},
		{transaction.Done, &transaction.AttemptFailure{Message: "dry"}, false},
		{transaction.Done, nil, true}, // about to be Provisioned
	} {
		r := v.request("gang")
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{
			transaction.AttemptDetail: provreq.Detail(transaction.Attempt{
				Number: 1, Phase: tc.phase, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}, Failure: tc.failure,
			}.Encode()),
		}
		m.Set(r)
		if got := only(t, m).InFlight; got != tc.want {
			t.Errorf("phase %s: in flight %t, want %t", tc.phase, got, tc.want)
		}
	}
}

func TestTheNewestVersionWins(t *testing.T) {
	m, v := newModel()
	old := v.node()
	written := v.node(booked)
	m.Set(v.request("gang"))
	m.Set(old)
	m.Written(written)
	m.Set(old) // the informer lags behind
	if n := only(t, m); len(n.Bookings) != 1 {
		t.Error("old news took the booking away")
	}
	m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	m.Written(written)
	if s := m.Snapshot(noon); s.Nodes.Len() != 0 {
		t.Error("an own write brought a deleted node back")
	}
	r := v.request("gang", provreq.Provisioned)
	m.Delete(r)
	m.Written(r)
	if len(m.Due(nil)) != 0 {
		t.Error("an own write brought a deleted request back")
	}
}

// What was not found when it was to be written stays away, whatever informers that
// lag behind still report it.
func TestWhatWasNotFoundStaysGone(t *testing.T) {
	m, v := newModel()
	first := func(n *corev1.Node) { n.UID = "first" }
	node, request := v.node(first), v.request("gang")
	m.Set(node)
	m.Set(request)
	m.Gone(node)
	m.Gone(request)
	m.Set(v.node(first))
	m.Set(v.request("gang"))
	if s := m.Snapshot(noon); s.Nodes.Len() != 0 || len(m.Due(nil)) != 0 {
		t.Error("late news brought back what is gone")
	}

	m.Set(v.node(func(n *corev1.Node) { n.UID = "second" }))
	again := v.request("gang")
	again.UID = "second"
	m.Set(again)
	m.Gone(node)
	m.Gone(request)
	if due := m.Due(nil); m.Snapshot(noon).Nodes.Len() != 1 || len(due) != 1 || due[0].UID != "second" {
		t.Error("what was made anew under the name is not there")
	}
}

func TestAssumptionsCountUntilTheyAreSeen(t *testing.T) {
	m, v := newModel()
	m.Set(v.request("gang"))
	m.Set(v.node())
	m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}})
	attempt := transaction.Attempt{Number: 1, Phase: transaction.Launching, Launches: []planner.GroupCount{{Group: "gpu", Count: 2}}}
	m.Assume("gang", Assumption{
		Bookings: []planner.Placement{{Node: "n", Requests: nodegroups.Resources{gpu: 8}}},
		Attempt:  attempt,
	})
	machines := func() int { return m.Snapshot(noon).Groups[0].Machines }
	if n := only(t, m); len(n.Bookings) != 1 || machines() != 2 {
		t.Errorf("assumed: %d bookings, %d machines; want 1 and 2", len(n.Bookings), machines())
	}
	m.Set(v.node(booked))
	m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", Launch: "gang-1"})
	if n := only(t, m); len(n.Bookings) != 1 || machines() != 2 {
		t.Errorf("half seen: %d bookings, %d machines; want 1 and 2", len(n.Bookings), machines())
	}
	r := v.request("gang")
	r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(attempt.Encode())}
	m.Set(r)
	m.Settle("gang")
	m.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", Launch: "gang-1"})
	if machines() != 2 {
		t.Errorf("seen: %d machines, want 2", machines())
	}
	m.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", Launch: "gang-1", State: cloudprovider.Terminated})
	m.SetMachine(cloudprovider.Machine{Name: "b", Group: "gpu", Launch: "gang-1", State: cloudprovider.Running})
	if machines() != 1 {
		t.Errorf("one has died: %d machines, want 1", machines())
	}
}

// TestABookingSaysWhenItsPodsAreExpected: a queue holds them until the request is Provisioned.
func TestABookingSaysWhenItsPodsAreExpected(t *testing.T) {
	m, v := newModel()
	m.Set(v.node(booked))
	for _, provisioned := range []time.Time{{}, noon.Add(time.Minute)} {
		r := v.request("gang")
		r.OwnerReferences = []metav1.OwnerReference{{Kind: "Workload", UID: "w", Controller: new(true)}}
		if !provisioned.IsZero() {
			r.Status.Conditions = []metav1.Condition{{Type: provreq.Provisioned, Status: metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(provisioned)}}
		}
		m.Set(r)
		n := only(t, m)
		if b := n.BookingOf("gang"); !b.Held || !b.Provisioned.Equal(provisioned) {
			t.Errorf("of a request that is Provisioned at %s, the pods are held %t, and it is Provisioned at %s", provisioned, b.Held, b.Provisioned)
		}
	}
}

func TestTwoRequestsOfOneNameDoNotShareANode(t *testing.T) {
	m, v := newModel()
	m.Set(v.node())
	m.Set(v.request("gang"))
	m.Assume("gang", Assumption{Bookings: []planner.Placement{{Node: "n", Requests: nodegroups.Resources{gpu: 4}}}})
	if n := only(t, m); len(n.Labelled) != 1 || n.Labelled[0].Key != "gang" || n.Labelled[0].Namespace != "ns" {
		t.Errorf("the label that is being written is not seen: %+v", n.Labelled)
	}
}

func TestABookingInterruptsTheIdleTime(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	m, v := New(clock, transaction.KnownClasses), new(version)
	m.Set(v.node())
	for _, p := range []struct {
		name         string
		idle, booked time.Duration
		want         time.Duration
	}{
		{"an attempt in vain", 4 * time.Minute, 100 * time.Millisecond, 100 * time.Millisecond},
		{"another one", 5 * time.Minute, 100 * time.Millisecond, 200 * time.Millisecond},
		{"a booking that expires", time.Minute, time.Hour, time.Hour + 200*time.Millisecond},
	} {
		_ = only(t, m)
		clock.SetTime(clock.Now().Add(p.idle))
		m.Set(v.request("gang", provreq.Provisioned))
		m.Set(v.node(booked))
		_ = only(t, m)
		clock.SetTime(clock.Now().Add(p.booked))
		m.Set(v.request("gang", provreq.Provisioned, provreq.BookingExpired))
		m.Set(v.node())
		if got, want := only(t, m).IdleSince, noon.Add(p.want); !got.Equal(want) {
			t.Errorf("%s: idle since %s, want %s", p.name, got, want)
		}
	}
}

func TestAMachineThatIsGoneStaysGone(t *testing.T) {
	m, _ := newModel()
	c := cloudprovider.Machine{Name: "a", Group: "gpu"}
	m.SetMachine(c)
	gone := c
	gone.State = cloudprovider.Gone
	m.SetMachine(gone)
	m.MachineTerminated(c)
	if f := m.Fleet(noon); len(f.Unregistered) != 0 {
		t.Errorf("%v came back", f.Unregistered)
	}
}

// A cloud may stop a machine and start it again, as for maintenance of its host.
func TestAMachineThatIsStartedAgainIsThere(t *testing.T) {
	began := noon
	m, _ := newModel()
	machine := cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "kwok://a", Launch: "gone-1",
		State: cloudprovider.Running, Started: began}
	counted := func() int { return len(m.Fleet(noon).Unregistered) }
	m.SetMachine(machine)
	stopped := machine
	stopped.State, stopped.Kept = cloudprovider.Terminated, true
	if m.SetMachine(stopped); counted() != 0 {
		t.Errorf("%d machines count while it is stopped, want none", counted())
	}
	if m.SetMachine(machine); counted() != 0 {
		t.Error("old news start it again")
	}
	machine.Started, machine.State = began.Add(time.Hour), cloudprovider.Booting
	if m.SetMachine(machine); counted() != 1 {
		t.Errorf("%d machines count once it was started again, want 1", counted())
	}
}

// What had a node may run pods, so it matters whether a machine has never had one.
func TestMachinesThatMissTheirNode(t *testing.T) {
	began := noon
	for _, tc := range []struct {
		name    string
		started time.Time
		change  func(m *Model, v *version)
		want    bool
	}{
		{"one that has just been started", began, func(*Model, *version) {}, false},
		{"one that was older when it became known", began.Add(-time.Hour), func(*Model, *version) {}, true},
		{"one of unknown age", time.Time{}, func(*Model, *version) {}, true},
		{"one whose node was deleted", began, func(m *Model, v *version) {
			n := v.node(func(n *corev1.Node) { n.Spec.ProviderID = "kwok://a" })
			m.Set(n)
			m.Delete(n)
		}, true},
	} {
		m, v := newModel()
		m.SetMachine(cloudprovider.Machine{Name: "a", Group: "gpu", ProviderID: "kwok://a", Launch: "gone-1",
			State: cloudprovider.Running, Started: tc.started})
		tc.change(m, v)
		f := m.Fleet(noon)
		if got := len(f.Missing) == 1; len(f.Unregistered) != 1 || got != tc.want {
			t.Errorf("%s: missing its node is %t, want %t", tc.name, got, tc.want)
		}
	}
}

// Some clouds report a machine before they report its launch, and may forget it in a
// later list for a moment.
func TestALaunchThatIsReportedLaterIsKept(t *testing.T) {
	m, v := newModel()
	m.Set(v.request("gang"))
	c := cloudprovider.Machine{Group: "gpu", Name: "i-1", ProviderID: "id-1", Hold: true}
	m.SetMachine(c)
	c.Hold, c.State = false, cloudprovider.Running
	m.SetMachine(c)
	c.Hold = true
	c.State, c.Launch = cloudprovider.Booting, "gang-1"
	m.SetMachine(c)
	want := cloudprovider.Machine{Group: "gpu", Name: "i-1", ProviderID: "id-1", State: cloudprovider.Running, Launch: "gang-1"}
	for range 2 {
		if got := m.Fleet(noon).Unregistered; len(got) != 1 || got[0] != want {
			t.Errorf("machines without a node are %v, want %v", got, want)
		}
		m.SetMachine(cloudprovider.Machine{Group: "gpu", Name: "i-1", ProviderID: "id-1", State: cloudprovider.Running})
	}
}

func TestLearnedStatusIsACopy(t *testing.T) {
	m, v := newModel()
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionObtainable, Status: metav1.ConditionTrue}}
	m.Set(g)
	status := m.Learned("gpu")
	status.Conditions[0].Status = metav1.ConditionFalse
	if g.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Error("the informer's object was changed")
	}
}

func TestLearningIsSeenAtOnceAndOnce(t *testing.T) {
	m, v := newModel()
	g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
	m.Set(g)
	m.Learn("gpu", v1alpha1.LaunchAttempt{Time: metav1.NewTime(noon), Token: "gang-1", Class: v1alpha1.Stockout, Message: "dry"})
	group := m.Snapshot(noon).Groups[0]
	if until, why := group.BlockedUntil(1, ""); !until.Equal(noon.Add(30*time.Second)) || why != "dry" {
		t.Errorf("backoff until %s because %q", until, why)
	}
	written := g.DeepCopy()
	written.Status = m.Learned("gpu")
	written.ResourceVersion = v.next()
	m.Written(written)
	if status := m.Learned("gpu"); status.Failures != 1 || len(status.Attempts) != 1 {
		t.Errorf("counted %d failures in %d attempts, want 1 and 1", status.Failures, len(status.Attempts))
	}
}

func TestKeysThatMeet(t *testing.T) {
	m, v := newModel()
	name := func(middle byte) string {
		b := make([]byte, 80)
		for i := range b {
			b[i] = 'x'
		}
		b[40] = middle
		return string(b)
	}
	first, second := v.request(name('a')), v.request(name('b'))
	first.CreationTimestamp, second.CreationTimestamp = metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Second))
	m.Set(first)
	m.Set(second)
	entries := m.Due(nil)
	if got := m.View(nil, entries[0].Request).KeyTaken; got != "" {
		t.Errorf("the first request waits for %s", got)
	}
	if got := m.View(nil, entries[1].Request).KeyTaken; got != "ns/"+first.Name {
		t.Errorf("the second request waits for %q", got)
	}

	// One that is over keeps the key as long as pods of its gang are there.
	over := first.DeepCopy()
	apimeta.SetStatusCondition(&over.Status.Conditions, metav1.Condition{Type: provreq.BookingExpired, Status: metav1.ConditionTrue,
		Reason: "Consumed"})
	over.ResourceVersion = v.next()
	m.Set(over)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod", ResourceVersion: "1",
		Annotations: map[string]string{provreq.ProvisioningRequestPodAnnotationKey: first.Name}}}
	for _, want := range []string{"", "ns/" + first.Name, ""} {
		if got := m.View(nil, entries[1].Request).KeyTaken; got != want {
			t.Errorf("the second request waits for %q, want %q", got, want)
		}
		if want == "" {
			m.Set(pod)
		} else {
			m.Delete(pod)
		}
		if due := m.Due(nil); !slices.ContainsFunc(due, func(e Entry) bool { return e.UID == second.UID }) {
			t.Errorf("due are %v: not the second request, which may have the key now, or may not", due)
		}
	}

	// In the same second, the one that is served already came first, whatever their
	// UIDs.
	for _, served := range []*provreq.ProvisioningRequest{first, second} {
		m, _ := newModel()
		other := first
		if served == first {
			other = second
		}
		a, b := served.DeepCopy(), other.DeepCopy()
		a.CreationTimestamp, b.CreationTimestamp = metav1.NewTime(noon), metav1.NewTime(noon)
		apimeta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: provreq.Provisioned, Status: metav1.ConditionTrue,
			Reason: "Provisioned"})
		m.Set(a)
		m.Set(b)
		for _, e := range m.Due(nil) {
			if e.Name == b.Name {
				if got := m.View(nil, e.Request).KeyTaken; got != "ns/"+a.Name {
					t.Errorf("the request that came later in the second waits for %q", got)
				}
			}
		}
	}
}

func TestParameters(t *testing.T) {
	for _, tc := range []struct {
		key, value       string
		invalid, lacking bool
	}{
		{transaction.ParamValidUntil, "60", false, false},
		{transaction.ParamValidUntil, "-1", true, false},
		{transaction.ParamValidUntil, "soon", true, false},
		{transaction.ParamNoRetry, "true", false, false},
		{transaction.ParamNoRetry, "yes", true, false},
		{transaction.ParamPolicy, "cheap", false, false},
		{transaction.ParamPolicy, "other", false, true},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			m, v := newModel()
			m.Set(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cheap", ResourceVersion: v.next()}})
			r := v.request("gang")
			r.Spec.Parameters = map[string]provreq.Parameter{tc.key: provreq.Parameter(tc.value)}
			m.Set(r)
			e := m.Due(nil)[0]
			if (e.Invalid != "") != tc.invalid || (e.Lacking != "") != tc.lacking {
				t.Errorf("invalid %q, lacking %q", e.Invalid, e.Lacking)
			}
		})
	}
}
