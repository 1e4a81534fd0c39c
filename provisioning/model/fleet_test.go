package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

const machineID = "cloud://gpu/n"

// ofGroup gives a node the group and the ID of a machine.
func ofGroup(n *corev1.Node) {
	n.Spec.ProviderID = machineID
	n.Labels = map[string]string{v1alpha1.NodeGroupLabel: "gpu"}
	n.Status.Capacity = corev1.ResourceList{gpu: resource.MustParse("8")}
}

func unready(since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			LastTransitionTime: metav1.NewTime(since)}}
	}
}

func machine(state cloudprovider.State) cloudprovider.Machine {
	return cloudprovider.Machine{Name: "n", Group: "gpu", ProviderID: machineID, Launch: "gang-1", State: state}
}

func replica(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
}

func TestANodeAndItsMachineFindEachOther(t *testing.T) {
	unregistered := func(m *Model) (names []string) {
		for _, c := range m.Fleet(noon).Unregistered {
			names = append(names, c.Name)
		}
		return names
	}
	for name, order := range map[string][]func(*Model, *version){
		"the machine comes first": {
			func(m *Model, _ *version) { m.SetMachine(machine(cloudprovider.Booting)) },
			func(m *Model, v *version) { m.Set(v.node(ofGroup)) },
		},
		"the node comes first": {
			func(m *Model, v *version) { m.Set(v.node(ofGroup)) },
			func(m *Model, _ *version) { m.SetMachine(machine(cloudprovider.Booting)) },
		},
		"the node gets its ID late": {
			func(m *Model, v *version) { m.Set(v.node()) },
			func(m *Model, _ *version) { m.SetMachine(machine(cloudprovider.Booting)) },
			func(m *Model, v *version) { m.Set(v.node(ofGroup)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, v := newModel()
			for _, step := range order {
				step(m, v)
			}
			if c := only(t, m).Machine; c == nil || c.State != cloudprovider.Booting || len(unregistered(m)) != 0 {
				t.Fatalf("machine of the node %+v, without a node %v", c, unregistered(m))
			}
			m.SetMachine(machine(cloudprovider.Running))
			if c := only(t, m).Machine; c == nil || c.State != cloudprovider.Running {
				t.Errorf("the machine has moved on, the node's is %+v", c)
			}
			m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			if diff := cmp.Diff([]string{"n"}, unregistered(m)); diff != "" {
				t.Errorf("without a node (-want +got):\n%s", diff)
			}
			m.MachineTerminated(machine(cloudprovider.Running))
			if got := unregistered(m); len(got) > 0 {
				t.Errorf("%v are without a node, and have been terminated", got)
			}
		})
	}
}

// TestAMachineJoinsByAnotherName, and its Node of before stays a while: the machine has the other one from then on, whichever is heard of
// last, and its end is that of both.
func TestAMachineJoinsByAnotherName(t *testing.T) {
	joined := func(name string, after time.Duration) func(*corev1.Node) {
		return func(n *corev1.Node) {
			ofGroup(n)
			n.Name, n.CreationTimestamp = name, metav1.NewTime(noon.Add(after))
		}
	}
	for _, goes := range []bool{true, false} {
		m, v := newModel()
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		m.SetMachine(machine(cloudprovider.Running))
		m.Set(v.node(joined("before", 0)))
		m.Set(v.node(joined("after", time.Minute)))
		m.Set(v.node(joined("before", 0), unready(noon)))
		if goes {
			m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "before"}})
		}
		if f := m.Fleet(noon); len(f.Unregistered) > 0 {
			t.Errorf("the node of before goes: %t; without a node are %v", goes, f.Unregistered)
		}
		m.SetMachine(machine(cloudprovider.Terminated))
		for n := range m.Snapshot(noon).Nodes.All() {
			if n.Ready || n.Machine != nil {
				t.Errorf("the node of before goes: %t; node %s is ready %t and has the machine %+v, which has ended", goes, n.Name, n.Ready, n.Machine)
			}
		}
	}
}

// TestANodeWhoseMachineEndedIsLostAtOnce, before the node's heartbeat is missed.
func TestANodeWhoseMachineEndedIsLostAtOnce(t *testing.T) {
	for _, end := range []cloudprovider.State{cloudprovider.Terminated, cloudprovider.Gone} {
		m, v := newModel()
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		m.SetMachine(machine(cloudprovider.Running))
		m.Set(v.node(ofGroup))
		if n := only(t, m); !n.Ready || n.Machine == nil {
			t.Fatalf("ready %t, machine %v", n.Ready, n.Machine)
		}
		m.SetMachine(machine(end))
		if n := only(t, m); n.Ready || n.Machine != nil {
			t.Errorf("its machine is in state %d: ready %t, machine %v", end, n.Ready, n.Machine)
		}
		m.Set(v.node(ofGroup))
		if n := only(t, m); n.Ready {
			t.Errorf("old news of the node made it ready again")
		}
	}
}

// TestGangsAreSparedWhereManyMachinesSeemLostAtOnce: a gang that has lost a node is informed, and
// is only stopped where that is true of few machines, or is certain.
func TestGangsAreSparedWhereManyMachinesSeemLostAtOnce(t *testing.T) {
	id := func(i int) string { return fmt.Sprint("cloud://gpu/n", i) }
	name := func(i int) string { return fmt.Sprint("n", i) }
	for what, tc := range map[string]struct {
		lose func(m *Model, i int)
		many int
		want bool
	}{
		"nodes deleted":          {func(m *Model, i int) { m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}) }, 4, true},
		"three of them":          {func(m *Model, i int) { m.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}) }, 3, false},
		"machines not listed":    {func(m *Model, i int) { m.SetMachine(manyMachine(i, id(i), cloudprovider.Gone)) }, 4, true},
		"three of those":         {func(m *Model, i int) { m.SetMachine(manyMachine(i, id(i), cloudprovider.Gone)) }, 3, false},
		"machines that have not": {func(*Model, int) {}, 0, false},
	} {
		m, v := newModel()
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		r := v.request("gang", provreq.Provisioned, provreq.BookingExpired)
		r.Spec.Parameters = map[string]provreq.Parameter{v1alpha1.ParamOnMachineLoss: provreq.Parameter(v1alpha1.LossRevoke)}
		m.Set(r)
		for i := range 8 {
			m.SetMachine(manyMachine(i, id(i), cloudprovider.Running))
			m.Set(v.node(booked, func(n *corev1.Node) { n.Name, n.UID, n.Spec.ProviderID = name(i), types.UID(name(i)), id(i) },
				func(n *corev1.Node) { n.Labels[v1alpha1.NodeGroupLabel] = "gpu" }))
			m.Set(v.pod(fmt.Sprint("pod", i), name(i), 4, consumes))
		}
		m.Snapshot(noon)
		for i := range tc.many {
			tc.lose(m, i)
		}
		e, _ := m.Request("gang")
		view := m.View(m.Snapshot(noon), e.Request)
		if len(view.Lost) != tc.many || view.Spared["gpu"] != tc.want {
			t.Errorf("%s: %d are lost and gangs are spared: %t, want %d and %t", what, len(view.Lost), view.Spared["gpu"], tc.many, tc.want)
		}
		m.LossReported("gang", view.Lost, tc.want)
		m.Due(nil)
		due := m.Due([]types.UID{"gang"})
		if got := len(m.View(m.Snapshot(noon), e.Request).Held); (got > 0) != tc.want || (len(due) > 0) != tc.want {
			t.Errorf("%s: once told, %d losses are held and %d requests are looked at", what, got, len(due))
		}
	}
}

// TestVanishedNodes are those that go while their machines run, as the clouds' lists say, and that Muster does not terminate.
func TestVanishedNodes(t *testing.T) {
	clock := testingclock.NewFakeClock(noon)
	m, v := New(clock, transaction.KnownClasses), new(version)
	m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	id := func(i int) string { return fmt.Sprint("cloud://gpu/n", i) }
	node := func(i int) *corev1.Node {
		return v.node(func(n *corev1.Node) {
			n.Name, n.UID, n.Spec.ProviderID = fmt.Sprint("n", i), types.UID(fmt.Sprint("n", i)), id(i)
			n.Labels = map[string]string{v1alpha1.NodeGroupLabel: "gpu"}
		})
	}
	others := func(i int, state cloudprovider.State) cloudprovider.Machine {
		out := manyMachine(i, id(i), state)
		out.Launch = ""
		return out
	}
	for i := range 8 {
		m.SetMachine(others(i, cloudprovider.Running))
		m.Set(node(i))
	}
	expect := func(what string, want scaledown.Vanished, gone ...string) {
		t.Helper()
		f := m.Fleet(clock.Now())
		if diff := cmp.Diff(want, scaledown.VanishedOf(&f, gone), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("nothing", scaledown.Vanished{})
	expect("the caller hears of it first", scaledown.Vanished{Machines: map[string]bool{id(0): false}}, id(0))
	m.Delete(node(0))
	expect("one", scaledown.Vanished{Machines: map[string]bool{id(0): false}}, id(0))
	clock.Step(10 * time.Second)
	expect("one, for a while", scaledown.Vanished{}, id(0))
	for i := range 4 {
		m.Delete(node(i))
	}
	all := map[string]bool{id(0): true, id(1): true, id(2): true, id(3): true}
	clock.Step(time.Hour)
	expect("many", scaledown.Vanished{Machines: all, Many: true}, id(0))
	m.Set(node(0))
	m.Delete(node(4))
	m.Delete(node(5))
	delete(all, id(0))
	all[id(4)], all[id(5)] = true, true
	expect("one is back, and others follow", scaledown.Vanished{Machines: all, Many: true})
	for i := range 3 {
		m.SetMachine(others(i+1, cloudprovider.Terminated))
	}
	expect("their machines have ended, but for a few", scaledown.Vanished{Machines: map[string]bool{id(4): false, id(5): false}}, id(1), id(4))
	clock.Step(10 * time.Second)
	expect("for a while", scaledown.Vanished{}, id(1), id(4))
	m.Set(node(6))
	m.MachineTerminated(others(6, cloudprovider.Running))
	expect("one that is terminated", scaledown.Vanished{}, id(6))
}

func manyMachine(i int, id string, state cloudprovider.State) cloudprovider.Machine {
	return cloudprovider.Machine{Name: fmt.Sprint("n", i), Group: "gpu", ProviderID: id, Launch: "gone-1", State: state}
}

// TestAMachineThatIsTerminatedCountsUntilItsEndIsListed: its cloud has only accepted that it is to
// go, and may take its time.
func TestAMachineThatIsTerminatedCountsUntilItsEndIsListed(t *testing.T) {
	m, v := newModel()
	m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	m.SetMachine(machine(cloudprovider.Running))
	m.Set(v.node(ofGroup))
	count := func() int { return m.Snapshot(noon).FindGroup("gpu").Machines }
	m.MachineTerminated(machine(cloudprovider.Running))
	if n := only(t, m); count() != 1 || n.Ready || n.Machine != nil || n.Ended {
		t.Errorf("terminated: %d machines, node ready %t, with machine %v, ended %t", count(), n.Ready, n.Machine, n.Ended)
	}
	m.SetMachine(machine(cloudprovider.Running)) // lists are late
	if n := only(t, m); count() != 1 || n.Ready {
		t.Errorf("still listed: %d machines, node ready %t", count(), n.Ready)
	}
	m.SetMachine(machine(cloudprovider.Terminated))
	if n := only(t, m); count() != 0 || !n.Ended {
		t.Errorf("listed as ended: %d machines, node ended %t", count(), n.Ended)
	}
}

// TestAMachineThatNoWatchReportsIsForgotten once it has been terminated: it was gone before its
// cloud's watch looked, or the answer of its launch came after the news of its end.
func TestAMachineThatNoWatchReportsIsForgotten(t *testing.T) {
	booting, gone := machine(cloudprovider.Booting), machine(cloudprovider.Gone)
	for name, tc := range map[string]struct {
		story func(*Model)
		want  int
	}{
		"no watch has told of it":     {func(m *Model) { m.MachineLaunched(booting); m.MachineTerminated(booting) }, 0},
		"the launch was repeated":     {func(m *Model) { m.MachineLaunched(booting); m.MachineLaunched(booting); m.MachineTerminated(booting) }, 0},
		"it is not terminated":        {func(m *Model) { m.MachineLaunched(booting) }, 1},
		"a watch has told of it, too": {func(m *Model) { m.MachineLaunched(booting); m.SetMachine(booting); m.MachineTerminated(booting) }, 1},
		"and that before the launch":  {func(m *Model) { m.SetMachine(booting); m.MachineLaunched(booting); m.MachineTerminated(booting) }, 1},
		"its end was told of before that": {func(m *Model) {
			m.SetMachine(booting)
			m.SetMachine(gone)
			m.MachineLaunched(booting)
			m.MachineTerminated(booting)
		}, 0},
	} {
		clock := testingclock.NewFakePassiveClock(noon)
		m := New(clock, transaction.KnownClasses)
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		tc.story(m)
		count := func() int { return m.Snapshot(noon).FindGroup("gpu").Machines }
		m.Tidy()
		if got := count(); got != 1 {
			t.Errorf("%s: at once %d machines, want 1", name, got)
		}
		clock.SetTime(noon.Add(watchedWithin + time.Second))
		m.Tidy()
		if got := count(); got != tc.want {
			t.Errorf("%s: later %d machines, want %d", name, got, tc.want)
		}
	}
}

// TestANodeThatIsHeardOfAfterTheEndOfItsMachine has outlived it: watches of nodes and of machines do not wait for each other.
func TestANodeThatIsHeardOfAfterTheEndOfItsMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(*Model)
		want    bool
	}{
		"at once":                     {func(*Model) {}, true},
		"its machine came again":      {func(m *Model) { m.SetMachine(machine(cloudprovider.Running)) }, false},
		"its group was deleted first": {nil, false},
	} {
		m, v := newModel()
		if tc.between != nil {
			m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		}
		m.SetMachine(machine(cloudprovider.Booting))
		m.SetMachine(machine(cloudprovider.Gone))
		if tc.between != nil {
			tc.between(m)
		}
		m.Set(v.node(ofGroup))
		if n := only(t, m); n.Ended != tc.want {
			t.Errorf("%s: ended %t, want %t", name, n.Ended, tc.want)
		}
	}
}

// TestANodeOutlivesItsMachine: it has ended once its cloud says so, but not while the machine is
// only stopped, since it may be started again.
func TestANodeOutlivesItsMachine(t *testing.T) {
	stopped := machine(cloudprovider.Terminated)
	stopped.Kept = true
	for name, tc := range map[string]struct {
		told []cloudprovider.Machine
		want bool
	}{
		"it runs":                     {[]cloudprovider.Machine{machine(cloudprovider.Running)}, false},
		"it is listed as ended":       {[]cloudprovider.Machine{machine(cloudprovider.Terminated)}, true},
		"it is listed no more":        {[]cloudprovider.Machine{machine(cloudprovider.Running), machine(cloudprovider.Gone)}, true},
		"it is stopped":               {[]cloudprovider.Machine{stopped}, false},
		"no list has ever told of it": {nil, false},
	} {
		m, v := newModel()
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		m.Set(v.node(ofGroup))
		for _, c := range tc.told {
			m.SetMachine(c)
		}
		if got := only(t, m).Ended; got != tc.want {
			t.Errorf("%s: the node's machine has ended: %t, want %t", name, got, tc.want)
		}
	}
}

// TestAMachineThatALaunchUnderWayMayHaveMade: no other request may book its node, unless one has already, and it counts as one of those
// that the attempt has requested. A machine whose launch is known stays one of it, whatever an old list says.
func TestAMachineThatALaunchUnderWayMayHaveMade(t *testing.T) {
	unattributed := machine(cloudprovider.Running)
	unattributed.Launch, unattributed.Unattributed = "", true
	booked := func(n *corev1.Node) { n.Labels[state.BookingLabel("gang")] = "ns" }
	for name, tc := range map[string]struct {
		told     []cloudprovider.Machine
		node     []func(*corev1.Node)
		inFlight bool
	}{
		"it may be":               {[]cloudprovider.Machine{unattributed}, []func(*corev1.Node){ofGroup}, true},
		"a gang has booked it":    {[]cloudprovider.Machine{unattributed}, []func(*corev1.Node){ofGroup, booked}, false},
		"it is of another launch": {[]cloudprovider.Machine{machine(cloudprovider.Running), unattributed}, []func(*corev1.Node){ofGroup}, false},
		"it was not": {[]cloudprovider.Machine{unattributed, {Name: "n", Group: "gpu", ProviderID: machineID, State: cloudprovider.Running}},
			[]func(*corev1.Node){ofGroup}, false},
	} {
		m, v := newModel()
		m.Set(v.node(tc.node...))
		for _, c := range tc.told {
			m.SetMachine(c)
		}
		if got := only(t, m).InFlight; got != tc.inFlight {
			t.Errorf("%s: the node is in flight: %t, want %t", name, got, tc.inFlight)
		}
	}
}

// TestACordonOfOthersIsTheirs, also on a node that bears Muster's mark: one that was lifted and
// put again, and one that kured counts on.
func TestACordonOfOthersIsTheirs(t *testing.T) {
	held := func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Annotations = true, map[string]string{v1alpha1.CordonedAnnotation: v1alpha1.CordonBooked}
	}
	lifted := func(n *corev1.Node) { held(n); n.Spec.Unschedulable = false }
	rebooting := func(n *corev1.Node) { held(n); n.Annotations[v1alpha1.RebootAnnotation] = "2026-01-01" }
	for name, tc := range map[string]struct {
		versions []func(*corev1.Node)
		want     state.Cordon
	}{
		"Muster's own":          {[]func(*corev1.Node){held}, state.Held},
		"lifted and put again":  {[]func(*corev1.Node){held, lifted, held}, state.Foreign},
		"and written again":     {[]func(*corev1.Node){held, lifted, held, held}, state.Foreign},
		"lifted":                {[]func(*corev1.Node){held, lifted}, state.Open},
		"kured reboots it":      {[]func(*corev1.Node){held, rebooting}, state.Foreign},
		"kured has rebooted it": {[]func(*corev1.Node){held, rebooting, held}, state.Held},
	} {
		m, v := newModel()
		for _, change := range tc.versions {
			m.Set(v.node(change))
		}
		if got := only(t, m).Cordon; got != tc.want {
			t.Errorf("%s: cordon %d, want %d", name, got, tc.want)
		}
	}
	m, v := newModel()
	m.Set(v.node(lifted))
	m.Written(v.node(held))
	if got := only(t, m).Cordon; got != state.Held {
		t.Errorf("Muster's own, put where others had lifted one: cordon %d", got)
	}
}

// A machine's news that leave its state as it is: its end is put off, and what was stopped has ended
// for good.
func TestNewsOfAMachineOfTheSameState(t *testing.T) {
	m, v := newModel()
	m.Set(v.node(ofGroup))
	ends := func(in time.Duration) cloudprovider.Machine {
		return cloudprovider.Machine{Name: "m", Group: "gpu", ProviderID: machineID, Launch: "uid-1",
			State: cloudprovider.Running, EndsAt: noon.Add(in)}
	}
	for _, in := range []time.Duration{time.Hour, 2 * time.Hour} {
		m.SetMachine(ends(in))
		n := only(t, m)
		if got := n.EndsAt(); !got.Equal(noon.Add(in)) {
			t.Errorf("the machine ends at %s, want %s", got, noon.Add(in))
		}
	}
	stopped := ends(time.Hour)
	stopped.State, stopped.Kept = cloudprovider.Terminated, true
	m.SetMachine(stopped)
	if got := m.Fleet(noon).Halted; len(got) != 1 || !got[0].HadNode {
		t.Errorf("stopped are %+v, want the machine, which has a node", got)
	}
	stopped.Kept = false
	m.SetMachine(stopped)
	if got := m.Fleet(noon).Halted; len(got) != 0 {
		t.Errorf("stopped are %+v, want none: it has ended", got)
	}
}

// TestNotices are read as the agents of the clouds write them.
func TestNotices(t *testing.T) {
	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	at := func(d time.Duration) string { return fmt.Sprint(noon.Add(d).Unix()) }
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"none":                          {func(*corev1.Node) {}, false},
		"GKE: maintenance in an hour":   {label("cloud.google.com/scheduled-maintenance-time", at(time.Hour)), true},
		"GKE: maintenance in a week":    {label("cloud.google.com/scheduled-maintenance-time", at(7*24*time.Hour)), false},
		"GKE: maintenance goes on":      {label("cloud.google.com/active-node-maintenance", "ONGOING"), true},
		"GKE: maintenance is over":      {label("cloud.google.com/active-node-maintenance", "NONE"), false},
		"GKE: about to be terminated":   {taint("cloud.google.com/impending-node-termination"), true},
		"AWS: spot is reclaimed":        {taint("aws-node-termination-handler/spot-itn"), true},
		"AWS: a rebalance is advised":   {taint("aws-node-termination-handler/rebalance-recommendation"), true},
		"AWS: maintenance is scheduled": {taint("aws-node-termination-handler/scheduled-maintenance"), true},
		"another taint":                 {taint("example.com/other"), false},
	} {
		m, v := newModel()
		m.Set(v.node(tc.change))
		n := only(t, m)
		if _, free := n.AvailableTo(&state.Gang{}); (n.Notice != "") != tc.want || free == tc.want {
			t.Errorf("%s: notice %q, may be booked %t", name, n.Notice, free)
		}
	}
}

func TestANodeIsUnreadySinceItsConditionSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   time.Time
	}{
		"ready":                {func(*corev1.Node) {}, time.Time{}},
		"unknown":              {unready(noon.Add(-time.Minute)), noon.Add(-time.Minute)},
		"without any, as born": {func(n *corev1.Node) { n.Status.Conditions, n.CreationTimestamp = nil, metav1.NewTime(noon) }, noon},
	} {
		m, v := newModel()
		m.Set(v.node(tc.change))
		if n := only(t, m); !n.UnreadySince.Equal(tc.want) || n.Ready != tc.want.IsZero() {
			t.Errorf("%s: ready %t, unready since %s", name, n.Ready, n.UnreadySince)
		}
	}
}

func TestGangsThatKeepANode(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        bool
	}{
		{"nobody", nil, false},
		{"a user of cluster-autoscaler", map[string]string{v1alpha1.ScaleDownDisabledAnnotation: "true"}, true},
		{"one of Karpenter", map[string]string{"karpenter.sh/do-not-disrupt": "true"}, true},
		{"not Muster itself, from a cluster-autoscaler", map[string]string{v1alpha1.ScaleDownDisabledAnnotation: "true", v1alpha1.KeptAnnotation: "true"}, false},
		{"nor who says no", map[string]string{v1alpha1.ScaleDownDisabledAnnotation: "false", "karpenter.sh/do-not-disrupt": "false"}, false},
	} {
		m, v := newModel()
		m.Set(v.node(func(n *corev1.Node) { n.Annotations = tc.annotations }))
		if got := only(t, m).Kept; got != tc.want {
			t.Errorf("%s: kept %t", tc.name, got)
		}
	}
}

func TestWhichPodsKeepAMachine(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	later := noon.Add(time.Hour)
	type counts struct {
		Pods, Terminating, Strays int
		Idle                      bool
	}
	withoutDevices := func(n *corev1.Node) { ofGroup(n); n.Status.Capacity = nil }
	for _, tc := range []struct {
		name string
		node func(*corev1.Node)
		pod  func(*corev1.Pod)
		want counts
	}{
		{"any pod", ofGroup, func(*corev1.Pod) {}, counts{Pods: 1}},
		{"one that is terminating", ofGroup, terminating, counts{Pods: 1, Terminating: 1}},
		{"not one that has finished", ofGroup, podPhase(corev1.PodFailed), counts{Idle: true}},
		{"nor a static one", ofGroup, static, counts{Idle: true}},
		{"a replica uses a machine without devices", withoutDevices, replica, counts{Pods: 1}},
		{"on one with devices it is a stray", ofGroup, replica, counts{Pods: 1, Strays: 1, Idle: true}},
		{"also while it terminates", ofGroup, func(p *corev1.Pod) { replica(p); terminating(p) }, counts{Pods: 1, Terminating: 1, Strays: 1, Idle: true}},
		{"but not one of a gang", ofGroup, func(p *corev1.Pod) { replica(p); consumes(p) }, counts{Pods: 1}},
		{"nor one that is on its way", ofGroup, func(p *corev1.Pod) {
			replica(p)
			p.Spec.NodeName, p.Status.NominatedNodeName = "", "n"
		}, counts{Pods: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock.SetTime(noon)
			m, v := New(clock, transaction.KnownClasses), new(version)
			m.SetMachine(machine(cloudprovider.Running))
			m.Set(v.node(tc.node))
			m.Set(v.pod("pod", "n", 0, tc.pod))
			n := only(t, m)
			got := counts{n.Pods, n.Terminating, len(n.Strays), !n.IdleSince.IsZero()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			clock.SetTime(later)
			m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}})
			if want := map[bool]time.Time{true: noon, false: later}[tc.want.Idle]; only(t, m).IdleSince != want {
				t.Errorf("without it the node is idle since %s, want %s", only(t, m).IdleSince, want)
			}
		})
	}
}

// TestUndecided: a request that waits for capacity is undecided from whatever may
// help it until it has been decided.
func TestUndecided(t *testing.T) {
	m, v := newModel()
	undecided := func() bool { return m.Fleet(noon).Undecided }
	m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}})
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nobody waits", func() {}, false},
		{"a request has come", func() { m.Set(v.request("gang")) }, true},
		{"it has been decided", func() { m.Due(nil) }, false},
		{"a machine has come", func() { m.Set(v.node(ofGroup)) }, true},
		{"it is being carried out", func() { m.Due(nil); m.Assume("gang", Assumption{}); m.Due(nil) }, true},
		{"what it has written is to be looked at", func() { m.Settle("gang") }, true},
		{"it launches", func() {
			m.Assume("gang", Assumption{Attempt: transaction.Attempt{Number: 1, Phase: transaction.Launching,
				Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}})
		}, false},
		{"it has its capacity", func() { m.Settle("gang"); m.Set(v.request("gang", provreq.Provisioned)) }, false},
	} {
		if step.do(); undecided() != step.want {
			t.Errorf("%s: undecided is %t", step.name, !step.want)
		}
	}
}

func TestFleetKnowsAttemptsInFlight(t *testing.T) {
	m, v := newModel()
	m.Set(v.request("waits"))
	launching := v.request("launches")
	launching.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(transaction.Attempt{
		Number: 2, Phase: transaction.Launching, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}.Encode())}
	m.Set(launching)
	f := m.Fleet(noon)
	if diff := cmp.Diff(map[types.UID]bool{"waits": true, "launches": true}, f.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"launches-2": true}, f.InFlight); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	// Machines that the attempt waits for are none that miss their node, unless they are far older than it: etcd was restored.
	launching = v.request("launches")
	launching.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(transaction.Attempt{
		Number: 2, Phase: transaction.Launching, Started: noon, Launches: []planner.GroupCount{{Group: "gpu", Count: 2}}}.Encode())}
	m.Set(launching)
	for name, started := range map[string]time.Time{"young": noon.Add(-time.Minute), "old": noon.Add(-time.Hour)} {
		m.SetMachine(cloudprovider.Machine{Name: name, Group: "gpu", ProviderID: "kwok://" + name, Launch: "launches-2",
			State: cloudprovider.Running, Started: started})
	}
	if f := m.Fleet(noon); len(f.Missing) != 1 || f.Missing[0].Name != "old" {
		t.Errorf("machines that miss their node are %v, want the old one", f.Missing)
	}
	m.Set(v.request("launches", provreq.Failed))
	if f := m.Fleet(noon); len(f.InFlight) != 0 {
		t.Errorf("%v are in flight, and their request is over", f.InFlight)
	}
}

// story lets the model see what happens to one machine, and compares for what it has
// lived.
func TestAccountsFollowEachMachine(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	m, v := New(clock, transaction.KnownClasses), new(version)
	m.OpenAccount()
	price := resource.MustParse("3.6")
	group := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()},
		Spec: v1alpha1.NodeGroupSpec{PricePerHour: &price}}
	m.Set(group)

	attempt := func(phase transaction.AttemptPhase, conditions ...string) *provreq.ProvisioningRequest {
		r := v.request("gang", conditions...)
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(transaction.Attempt{
			Number: 1, Phase: phase, Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}.Encode())}
		return r
	}
	young := func(n *corev1.Node) {
		ofGroup(n)
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1", v1alpha1.CordonedAnnotation: v1alpha1.CordonJoining}
	}
	forGang := func(n *corev1.Node) {
		ofGroup(n)
		label := state.BookingLabel("gang")
		n.Labels[label] = "ns"
		n.Annotations = map[string]string{v1alpha1.LaunchAnnotation: "gang-1",
			label: state.Booking{UID: "gang", Since: noon, Booked: nodegroups.Resources{gpu: 8}}.Encode()}
	}
	want := map[cost.Purpose]int64{}
	for i, step := range []struct {
		name string
		do   func()
		// then is what the machine is for until the next step, a second later, and
		// counts for.
		then, counts cost.Purpose
	}{
		{"launched", func() { m.Set(attempt(transaction.Launching)); m.SetMachine(machine(cloudprovider.Booting)) }, cost.PurposeJoining, cost.PurposeJoining},
		{"registered", func() { m.Set(v.node(young)); m.SetMachine(machine(cloudprovider.Running)) }, cost.PurposeJoining, cost.PurposeJoining},
		{"booked", func() {
			m.Set(v.node(forGang))
			m.Set(attempt(transaction.Done, provreq.Provisioned))
		}, cost.PurposeBooked, cost.PurposeBooked},
		{"used", func() { m.Set(v.pod("one", "n", 8, consumes)) }, cost.PurposeUsed, cost.PurposeUsed},
		{"the NodeGroup is deleted", func() { m.Delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}) }, cost.PurposeUsed, cost.PurposeUsed},
		{"idle", func() {
			m.Set(attempt(transaction.Done, provreq.Provisioned, provreq.BookingExpired))
			m.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}})
		}, cost.PurposeIdle, cost.PurposeIdle},
		{"terminated", func() { m.MachineTerminated(machine(cloudprovider.Running)) }, cost.PurposeIdle, cost.PurposeIdle},
		{"listed as ended", func() { m.SetMachine(machine(cloudprovider.Terminated)) }, -1, -1},
	} {
		clock.SetTime(noon.Add(time.Duration(i) * time.Second))
		step.do()
		machines := map[cost.Purpose]int{}
		spent := map[cost.Purpose]int64{}
		for post, amount := range m.Amounts(clock.Now()) {
			if amount.Machines > 0 {
				machines[post.Purpose] = amount.Machines
			}
			if amount.MicroUSD > 0 {
				spent[post.Purpose] = amount.MicroUSD
			}
		}
		settled := map[cost.Purpose]int64{}
		for p, usd := range want {
			if p != cost.PurposeJoining || step.then != cost.PurposeJoining {
				settled[p] = usd
			}
		}
		if diff := cmp.Diff(settled, spent, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: spent in millionths of a USD (-want +got):\n%s", step.name, diff)
		}
		there := map[cost.Purpose]int{}
		if step.then >= 0 {
			there[step.then] = 1
			want[step.counts] += 1000
		}
		if diff := cmp.Diff(there, machines); diff != "" {
			t.Errorf("%s: machines (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestARolledBackLaunchIsWasted: also of machines that have no node yet, and though
// nothing changes about the machines themselves.
func TestARolledBackLaunchIsWasted(t *testing.T) {
	for name, undone := range map[string]func(*Model, *version){
		"the attempt is rolled back": func(m *Model, _ *version) {
			m.Assume("gang", Assumption{Attempt: transaction.Attempt{Number: 1, Phase: transaction.RollingBack,
				Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}})
		},
		"the request is deleted": func(m *Model, v *version) { m.Delete(v.request("gang")) },
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(noon)
			m, v := New(clock, transaction.KnownClasses), new(version)
			m.OpenAccount()
			m.Set(v.request("gang"))
			m.Assume("gang", Assumption{Attempt: transaction.Attempt{Number: 1, Phase: transaction.Launching,
				Launches: []planner.GroupCount{{Group: "gpu", Count: 1}}}})
			m.SetMachine(machine(cloudprovider.Booting))
			m.Amounts(clock.Now())
			clock.SetTime(noon.Add(3 * time.Second))
			undone(m, v)
			m.Amounts(clock.Now())
			clock.SetTime(noon.Add(5 * time.Second))
			want := map[cost.Post]cost.Amount{{Group: "gpu", Purpose: cost.PurposeWasted}: {Machines: 1, Milliseconds: 5000}}
			if diff := cmp.Diff(want, m.Amounts(clock.Now())); diff != "" {
				t.Errorf("amounts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnAccountBeginsWhenItIsOpened: the previous leader has counted what was before.
func TestAnAccountBeginsWhenItIsOpened(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	m, v := New(clock, transaction.KnownClasses), new(version)
	m.SetMachine(machine(cloudprovider.Running))
	m.Set(v.node(ofGroup))
	if got := m.Amounts(noon); got != nil {
		t.Errorf("nobody keeps an account, and it says %v", got)
	}
	clock.SetTime(noon.Add(time.Hour))
	m.OpenAccount()
	clock.SetTime(noon.Add(time.Hour + time.Second))
	want := map[cost.Post]cost.Amount{{Group: "gpu", Purpose: cost.PurposeIdle}: {Machines: 1, Milliseconds: 1000}}
	if diff := cmp.Diff(want, m.Amounts(clock.Now())); diff != "" {
		t.Errorf("amounts (-want +got):\n%s", diff)
	}
	m.CloseAccount()
	if got := m.Amounts(clock.Now()); got != nil {
		t.Errorf("the account is closed, and it says %v", got)
	}
}

// BenchmarkRead reads a fleet once in which one node has changed, as scale-down
// does; BenchmarkAmounts reads the account, as each scrape of the metrics does.
func BenchmarkRead(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			m, v := fleetOf(nodes)
			for b.Loop() {
				m.Set(nodeOf(v, 0))
				scaledown.Plan(m.Fleet(noon))
			}
		})
	}
}

func BenchmarkAmounts(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			m, _ := fleetOf(nodes)
			m.OpenAccount()
			for b.Loop() {
				m.Amounts(noon.Add(time.Minute))
			}
		})
	}
}

// fleetOf is a model of so many nodes in 100 groups, half of which run a pod of a
// gang, with one request for each 16 of them.
func fleetOf(nodes int) (*Model, *version) {
	m, v := newModel()
	for i := range 100 {
		m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group-%02d", i), ResourceVersion: v.next()}})
	}
	for i := range nodes {
		n := nodeOf(v, i)
		m.SetMachine(cloudprovider.Machine{Name: n.Name, Group: n.Labels[v1alpha1.NodeGroupLabel], ProviderID: n.Spec.ProviderID,
			Launch: fmt.Sprintf("gang-%d-1", i/16), State: cloudprovider.Running})
		m.Set(n)
		if i%16 == 0 {
			m.Set(v.request(fmt.Sprintf("gang-%d", i/16), provreq.Provisioned, provreq.BookingExpired))
		}
		if i%2 == 0 {
			m.Set(v.pod(fmt.Sprintf("pod-%d", i), n.Name, 8))
		}
	}
	m.Snapshot(noon)
	return m, v
}

func nodeOf(v *version, i int) *corev1.Node {
	n := v.node(ofGroup)
	n.Name = fmt.Sprintf("node-%06d", i)
	n.Labels[v1alpha1.NodeGroupLabel] = fmt.Sprintf("group-%02d", i%100)
	n.Spec.ProviderID = "cloud://" + n.Name
	return n
}
