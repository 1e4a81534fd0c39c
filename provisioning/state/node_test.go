package state

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

func gpus(n int64) nodegroups.Resources { return nodegroups.Resources{"nvidia.com/gpu": n} }

type edit = func(*Node)

// node has 8 free devices.
func node(edits ...edit) *Node {
	n := &Node{Name: "a", Ready: true, Allocatable: gpus(8), Free: gpus(8)}
	for _, e := range edits {
		e(n)
	}
	return n
}

func unready(n *Node)  { n.Ready = false }
func noticed(n *Node)  { n.Notice = "taint" }
func inFlight(n *Node) { n.InFlight = true }

func cordon(c Cordon) edit { return func(n *Node) { n.Cordon = c } }

func free(devices int64) edit { return func(n *Node) { n.Free = gpus(devices) } }

func launched(token string) edit { return func(n *Node) { n.Launch = token } }

// booked: a request whose UID and key are the same waits for pods that take the devices.
func booked(request types.UID, devices int64) edit {
	return func(n *Node) {
		b := Booking{Key: string(request), UID: request, Booked: gpus(devices), Remaining: gpus(devices)}
		n.Bookings, n.Labelled = append(n.Bookings, b), append(n.Labelled, b)
	}
}

// labelled: the node still has the label of a request that no longer waits.
func labelled(b Booking) edit { return func(n *Node) { n.Labelled = append(n.Labelled, b) } }

// TestWhatANodeOffersToAGang: -1 stands for nothing at all. The gang is of request "me", whose attempt is "me-1".
func TestWhatANodeOffersToAGang(t *testing.T) {
	me := &Gang{UID: "me", Key: "me", Launch: "me-1"}
	mine, other := launched("me-1"), launched("you-1")
	for _, tc := range []struct {
		name string
		node *Node
		want int64
	}{
		{"a free node", node(), 8},
		{"a node with pods of others", node(free(3)), 3},
		{"a node that Muster holds", node(cordon(Held)), 8},
		{"an unready node", node(unready), -1},
		{"a node that ends soon", node(noticed), -1},
		{"a node that joins for another gang", node(cordon(Joining), other), -1},
		{"a node of another launch in flight", node(inFlight, other), -1},
		{"a node that is to go", node(cordon(ScalingDown)), -1},
		{"a node that an administrator cordoned", node(cordon(Foreign)), -1},

		{"its own machine joins", node(cordon(Joining), inFlight, mine), 8},
		{"a replacement of its own", node(cordon(Joining), inFlight, launched("me-1r2")), 8},
		{"a machine of its earlier attempt", node(cordon(Joining), launched("me-0")), -1},
		{"its own machine is not ready", node(cordon(Joining), mine, unready), -1},
		{"its own machine ends soon", node(cordon(Joining), mine, noticed), -1},
		{"its own machine is to go", node(cordon(ScalingDown), mine), -1},
		{"its own machine was cordoned by others", node(cordon(Foreign), mine), -1},

		{"it has booked the node", node(booked("me", 8)), 8},
		{"others wait for their pods", node(booked("you", 2)), -1},
		{"others wait beside it", node(booked("me", 2), booked("you", 2)), 6},
		{"pods of others run under a booking", node(free(6), labelled(Booking{Key: "you", UID: "you", Running: 1})), 6},
		{"it ran here before the repair", node(labelled(Booking{Key: "me", UID: "me"})), -1},
		{"a request of another namespace has its label", node(labelled(Booking{Key: "me", UID: "other"})), -1},
	} {
		got, ok := tc.node.AvailableTo(me)
		if want := max(0, tc.want); ok != (tc.want >= 0) || got["nvidia.com/gpu"] != want {
			t.Errorf("%s: it may book %v (%v), want %d", tc.name, got, ok, tc.want)
		}
	}
	withoutRequest := &Gang{}
	if _, ok := node(labelled(Booking{Key: "", UID: ""})).AvailableTo(withoutRequest); !ok {
		t.Error("a gang without a request may not book a node with a label that has no record")
	}
}

// TestWhichNodesAreOpenToAll gangs.
func TestWhichNodesAreOpenToAll(t *testing.T) {
	for _, tc := range []struct {
		name string
		node *Node
		want bool
	}{
		{"open", node(), true},
		{"held", node(cordon(Held)), true},
		{"joining", node(cordon(Joining)), false},
		{"scaling down", node(cordon(ScalingDown)), false},
		{"foreign", node(cordon(Foreign)), false},
		{"unready", node(unready), false},
		{"with a notice", node(noticed), false},
		{"in flight", node(inFlight), false},
	} {
		if got := tc.node.OpenToAll(); got != tc.want {
			t.Errorf("%s: open to all: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWhenANodeOffersMore, gangs that wait are planned again: each way in which a node becomes useful to one has to count, and a change
// that helps none must not cost a plan.
func TestWhenANodeOffersMore(t *testing.T) {
	endsAt := func(at time.Time) edit { return func(n *Node) { n.Machine = &cloudprovider.Machine{EndsAt: at} } }
	runs := func(n *Node) { n.Running = []*fit.Running{{}} }
	label := func(n *Node) { n.Labels = map[string]string{"rack": "1"} }
	taint := func(n *Node) { n.Taints = []corev1.Taint{{Key: "rack"}} }
	over := labelled(Booking{Key: "you", UID: "you"})
	for _, tc := range []struct {
		name          string
		before, after *Node
		want          bool
	}{
		{"a new node", nil, node(), true},
		{"a new node that is not ready", nil, node(unready), false},
		{"no change", node(), node(), false},
		{"it has become ready", node(unready), node(), true},
		{"a pod has ended", node(free(2)), node(free(3)), true},
		{"a pod has come", node(free(3)), node(free(2)), false},
		{"its pods have ended where a booking waits", node(free(2), booked("you", 2)), node(free(4), booked("you", 2)), true},
		{"booked pods have come", node(free(4), booked("you", 2)), node(free(2), booked("you", 0)), false},
		{"it was booked", node(), node(booked("you", 2)), false},
		{"it was booked in the moment that it became ready", node(unready), node(booked("you", 2)), true},
		{"a new node that is booked whole", nil, node(booked("you", 8)), false},
		{"its booking is over", node(booked("you", 2)), node(over), true},
		{"a label is gone", node(over), node(), true},
		{"a label has come", node(), node(over), false},
		{"it ends later", node(endsAt(noon)), node(endsAt(noon.Add(time.Hour))), true},
		{"a pod without requests has ended, whose port is free now", node(runs), node(), true},
		{"a pod without requests has come", node(), node(runs), false},
		{"its labels have changed", node(), node(label), true},
		{"its taints have changed", node(), node(taint), true},
	} {
		if got := tc.after.OffersMoreThan(tc.before); got != tc.want {
			t.Errorf("%s: it offers more: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWhenANodePromisesLess, requests that wait for it are planned again.
func TestWhenANodePromisesLess(t *testing.T) {
	smaller := func(n *Node) { n.Allocatable = gpus(7) }
	for _, tc := range []struct {
		name          string
		before, after *Node
		want          bool
	}{
		{"there is none", nil, nil, false},
		{"it has come", nil, node(), false},
		{"it is gone", node(), nil, true},
		{"no change", node(), node(), false},
		{"a device has failed", node(), node(smaller), true},
		{"a device is back", node(smaller), node(), false},
	} {
		if got := tc.after.PromisesLessThan(tc.before); got != tc.want {
			t.Errorf("%s: it promises less: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWhichMachinesMayGo: what Muster terminates, and what it waits for.
func TestWhichMachinesMayGo(t *testing.T) {
	pods := func(all, strays, terminating int) edit {
		return func(n *Node) { n.Pods, n.Strays, n.Terminating = all, make([]Stray, strays), terminating }
	}
	silent := func(d time.Duration) edit { return func(n *Node) { n.UnreadySince = noon.Add(-d) } }
	kept := func(n *Node) { n.Kept = true }
	for _, tc := range []struct {
		name                 string
		node                 *Node
		lost, vacant, leaves bool
	}{
		{"empty", node(), false, true, false},
		{"empty, of a launch that failed", node(cordon(Joining)), false, true, true},
		{"with a pod, of such a launch", node(cordon(Joining), pods(1, 0, 0)), false, false, false},
		{"with a stray, of such a launch", node(cordon(Joining), pods(1, 1, 0)), false, true, false},
		{"booked as it joined, and not cordoned anew", node(cordon(Joining), booked("gang", 1)), false, true, false},
		{"scaling down, empty", node(cordon(ScalingDown)), false, true, true},
		{"booked meanwhile", node(cordon(ScalingDown), booked("gang", 1)), false, true, false},
		{"scaling down, with a stray", node(cordon(ScalingDown), pods(1, 1, 0)), false, true, true},
		{"scaling down, with a pod that came", node(cordon(ScalingDown), pods(2, 1, 0)), false, false, false},
		{"scaling down, kept by an administrator", node(cordon(ScalingDown), kept), false, true, false},
		{"a pod is ending", node(cordon(ScalingDown), pods(1, 0, 1)), false, false, false},
		{"unready for less than 10 minutes", node(silent(LostAfter-1), pods(1, 0, 1)), false, false, false},
		{"unready for 10 minutes", node(cordon(ScalingDown), silent(LostAfter), pods(1, 0, 1)), true, true, true},
		{"unready, with a pod that tolerates it", node(silent(LostAfter), pods(2, 0, 1)), true, false, false},
	} {
		lost, vacant, leaves := tc.node.Lost(noon), tc.node.Vacant(noon), tc.node.Leaves(noon)
		if lost != tc.lost || vacant != tc.vacant || leaves != tc.leaves {
			t.Errorf("%s: lost %v, vacant %v, leaves %v; want %v, %v, %v", tc.name, lost, vacant, leaves, tc.lost, tc.vacant, tc.leaves)
		}
	}
}

// TestWhichBookingsAreOver: their labels are removed. KeptUntil protects room for pods that are recreated.
func TestWhichBookingsAreOver(t *testing.T) {
	n := node(booked("waits", 2), labelled(Booking{Key: "runs", UID: "runs", Running: 1}),
		labelled(Booking{Key: "restarts", UID: "restarts", KeptUntil: noon}), labelled(Booking{Key: "over", UID: "over"}),
		labelled(Booking{Key: "stray"}), labelled(Booking{Key: "used", Running: 1}))
	if got := n.Over(); !slices.Equal(got, []string{"over", "stray"}) {
		t.Errorf("over are %v, want those of over and stray", got)
	}
}

// TestAloneOn: a gang that is alone on its nodes may be moved without regard to others.
func TestAloneOn(t *testing.T) {
	pods := func(n int) edit { return func(node *Node) { node.Pods = n } }
	runs := func(request types.UID, n int) edit {
		return func(node *Node) { node.Bookings = append(node.Bookings, Booking{UID: request, Running: n}) }
	}
	for _, tc := range []struct {
		name string
		node *Node
		want bool
	}{
		{"an empty node", node(), true},
		{"only its own pods", node(pods(2), runs("me", 2)), true},
		{"a pod of another gang", node(pods(3), runs("me", 2)), false},
		{"a booking of another gang", node(pods(2), runs("me", 2), runs("you", 0)), false},
		{"its own booking for pods that have not come", node(runs("me", 0)), true},
		{"its nominated pods are not on the node yet", node(runs("me", 2)), true},
		{"another gang restarts its pods", node(labelled(Booking{UID: "you", KeptUntil: noon})), false},
		{"it restarts its own", node(labelled(Booking{UID: "me", KeptUntil: noon})), true},
		{"a label of a gang that left", node(labelled(Booking{UID: "you"})), true},
	} {
		if got := tc.node.AloneOn(&Gang{UID: "me"}); got != tc.want {
			t.Errorf("%s: alone: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestWhatPaysForANode: the gang that launched it and every gang with a booking on it.
func TestWhatPaysForANode(t *testing.T) {
	me, stranger := &Gang{UID: "me", Launch: "me-1"}, &Gang{}
	for _, tc := range []struct {
		name string
		node *Node
		gang *Gang
		want bool
	}{
		{"it launched it", node(launched("me-1r1")), me, true},
		{"an earlier attempt did", node(launched("me-0")), me, false},
		{"it has booked it", node(booked("me", 1)), me, true},
		{"it ran there", node(labelled(Booking{UID: "me"})), me, true},
		{"another gang has booked it", node(booked("you", 1)), me, false},
		{"a gang without a request, and a label without one", node(labelled(Booking{})), stranger, false},
		{"a gang without a launch, and a node without one", node(), stranger, false},
	} {
		if got := tc.node.IsPaidBy(tc.gang); got != tc.want {
			t.Errorf("%s: it pays: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestLacks: pods of others that occupy booked room do not count, since they may end.
func TestLacks(t *testing.T) {
	worker := &corev1.PodTemplateSpec{}
	worker.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}}}
	me := &Gang{UID: "me", PodSets: []PodSet{NewPodSet("team", "workers", 3, worker, fit.Objects{})}}
	withPods := func(n *Node) {
		for i := range n.Bookings {
			n.Bookings[i].Booked["pods"] = 2
		}
	}
	for _, tc := range []struct {
		name  string
		nodes []*Node
		want  bool
	}{
		{"all is booked", []*Node{node(booked("me", 8), withPods), node(booked("me", 4), withPods)}, false},
		{"booked by itself and others", []*Node{node(booked("me", 8), withPods), node(booked("you", 4), withPods)}, true},
		{"all is booked and occupied", []*Node{node(booked("me", 8), withPods, free(0)), node(booked("me", 4), withPods)}, false},
		{"a node is gone", []*Node{node(booked("me", 8), withPods)}, true},
	} {
		if got := Lacks(me, fit.Objects{}, slices.Values(tc.nodes)); got != tc.want {
			t.Errorf("%s: it lacks room: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestWhatIsKnownOfAMachine(t *testing.T) {
	machine := func(m cloudprovider.Machine) edit { return func(n *Node) { n.Machine = &m } }
	unattributed := machine(cloudprovider.Machine{Unattributed: true})
	if node().IsUnattributed() || !node(unattributed).IsUnattributed() || node(unattributed, launched("me-1")).IsUnattributed() {
		t.Error("only a machine that its cloud reports, and that no launch has, is unattributed")
	}
	if !node().EndsAt().IsZero() || !node(machine(cloudprovider.Machine{EndsAt: noon})).EndsAt().Equal(noon) {
		t.Error("a node ends when its cloud says so, and never without a machine")
	}
	if node().InUse() || !node(booked("me", 1)).InUse() || !node(func(n *Node) { n.Pods = 1 }).InUse() {
		t.Error("a node is in use while it has pods or bookings")
	}
}

// TestDaemonSets: which nodes get their pods decides how much room a new machine has.
func TestDaemonSets(t *testing.T) {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent", UID: "1"}}
	spec := &d.Spec.Template.Spec
	spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	spec.NodeSelector = map[string]string{"gpu": "true"}
	spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}}}}}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}}}, // its controller does not regard it
	}
	onPods := NewDaemonSet(d)
	spec.HostNetwork = true
	onHost := NewDaemonSet(d)
	const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	taint := func(key string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Effect: effect}}
	}
	for _, tc := range []struct {
		name         string
		labels       map[string]string
		taints       []corev1.Taint
		pods, onHost bool
	}{
		{"a node without its label", nil, nil, false, false},
		{"a node of its label", map[string]string{"gpu": "true"}, nil, true, true},
		{"in a zone that it avoids", map[string]string{"gpu": "true", "zone": "b"}, nil, false, false},
		{"a taint that it does not tolerate", map[string]string{"gpu": "true"}, taint("team", noSchedule), false, false},
		{"unready", map[string]string{"gpu": "true"}, taint(corev1.TaintNodeNotReady, noExecute), true, true},
		{"low on memory", map[string]string{"gpu": "true"}, taint(corev1.TaintNodeMemoryPressure, noSchedule), true, true},
		{"without network", map[string]string{"gpu": "true"}, taint(corev1.TaintNodeNetworkUnavailable, noSchedule), false, true},
		{"cordoned", map[string]string{"gpu": "true"}, taint(corev1.TaintNodeUnschedulable, noSchedule), true, true},
	} {
		pods, host := onPods.RunsOn("a", tc.labels, tc.taints), onHost.RunsOn("a", tc.labels, tc.taints)
		if pods != tc.pods || host != tc.onHost {
			t.Errorf("%s: it runs there: %v, in the host's network %v; want %v, %v", tc.name, pods, host, tc.pods, tc.onHost)
		}
	}
	if diff := cmp.Diff(nodegroups.Resources{"cpu": 1000, "pods": 1}, onPods.Requests); diff != "" || onPods.Name != "kube-system/agent" {
		t.Errorf("pods of %s request (-want +got)\n%s", onPods.Name, diff)
	}
	if onPods.TakesDevices() {
		t.Error("it takes no devices")
	}
	spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("0")
	if d := NewDaemonSet(d); d.TakesDevices() {
		t.Error("a request of 0 devices takes some")
	}
	spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	if d := NewDaemonSet(d); !d.TakesDevices() {
		t.Error("a request of a device takes none")
	}
}

// TestUnbooked room is what every gang may still count on.
func TestUnbooked(t *testing.T) {
	n := node(booked("me", 2), booked("you", 3))
	if got := n.Unbooked()["nvidia.com/gpu"]; got != 3 || n.Free["nvidia.com/gpu"] != 8 {
		t.Errorf("%d devices are unbooked, of %v that are free", got, n.Free)
	}
}
