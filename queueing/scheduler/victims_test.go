package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestVictimsLeaveOnlyForMachinesThatAreThere has the planner itself answer: the
// victim runs on a machine of its request, and a workload of higher priority wants
// the quota.
func TestVictimsLeaveOnlyForMachinesThatAreThere(t *testing.T) {
	node := func(name string, gpus int64, bookings ...state.Booking) state.Node {
		n := state.Node{
			Name: name, Ready: true, Labels: map[string]string{"pool": "spot"}, Labelled: bookings,
			Allocatable: nodegroups.Resources{"gpu": gpus, corev1.ResourcePods: 110},
			Free:        nodegroups.Resources{"gpu": gpus, corev1.ResourcePods: 110},
		}
		for _, b := range bookings {
			n.Pods += b.Running
			for _, pod := range b.Came {
				n.Free.Sub(pod, 1)
			}
		}
		return n
	}
	running := state.Booking{
		UID: "victim-capacity-1", Key: "victim-capacity-1", Namespace: "default", Running: 1,
		Came: []nodegroups.Resources{{"gpu": 8, corev1.ResourcePods: 1}},
	}
	pool, last := poolOf(8, 4), poolOf(4, 1)
	for name, c := range map[string]struct {
		nodes  []state.Node
		groups []nodegroups.Group
		// pods of urgent share its 8 GPUs; 0 is one.
		pods int
		// checks of the queue; empty is capacity.
		checks string
		blind  bool
		asks   bool
		evicts bool
		reason string
		tells  string
	}{
		"the victim's machine suits":             {nodes: []state.Node{node("a", 8, running)}, evicts: true, reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads},
		"so does a free one":                     {nodes: []state.Node{node("a", 8)}, evicts: true, reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads},
		"a launch comes before they leave":       {groups: []nodegroups.Group{pool}, asks: true, reason: workload.ReasonWaitingForCapacity, tells: "the machines of 1 pods on flavors [spot], which are requested before its quota is free; once they are ready and booked, default/victim (8 gpu in flavor spot) are preempted for it"},
		"it would take their machine and more":   {nodes: []state.Node{node("a", 12, running, stranger(8))}, groups: []nodegroups.Group{last}, pods: 2, reason: workload.ReasonWaitingForCapacity, tells: "a workload of ClusterQueue team (8 gpu in flavor spot), to be preempted for it, keep running"},
		"nor before a person has answered":       {groups: []nodegroups.Group{pool}, checks: "capacity,approval", reason: workload.ReasonWaitingForCapacity, tells: "from preempting a workload of ClusterQueue team, but it also needs a launch (1 of NodeGroup pool), and workloads are preempted only for existing machines"},
		"the victim's machine before a launch":   {nodes: []state.Node{node("a", 8, running)}, groups: []nodegroups.Group{pool}, evicts: true, reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads},
		"nothing would come of it":               {nodes: []state.Node{node("a", 4)}, reason: workload.ReasonWaitingForCapacity, tells: "no machines"},
		"others' pods on the machine stay":       {nodes: []state.Node{node("a", 12, running, stranger(8))}, reason: workload.ReasonWaitingForCapacity, tells: "no machines"},
		"without advice it is as in plain Kueue": {blind: true, evicts: true, reason: kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads},
	} {
		t.Run(name, func(t *testing.T) {
			w := contested(t)
			w.Plan = planner.Plan
			w.State.SetCapacity(planner.NewSnapshot(w.Now, nodeset.Of(c.nodes...), c.groups, nil))
			if c.blind {
				w.State.SetCapacity(nil)
			}
			if c.checks != "" {
				approval := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "approval"}}
				approval.Spec.ControllerName = "example.com/approval"
				approval.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
				w.Set(approval)
				w.Set(queues.ClusterQueue(t, "team", map[string]string{"check": c.checks, "within": "LowerPriority"}, "spot gpu=8"))
			}
			pods := max(1, c.pods)
			w.Set(w.Workload(t, "urgent", map[string]string{"gpu": fmt.Sprint(8 / pods), "count": fmt.Sprint(pods), "priority": "1"}))
			w.Cycles(t)
			if got := len(w.State.Requests[w.Find(t, "urgent").UID]) > 0; got != c.asks {
				t.Errorf("it asks ahead: %v, want %v", got, c.asks)
			}
			if got := workload.IsEvicted(w.Find(t, "victim")); got != c.evicts {
				t.Errorf("the victim leaves: %v, want %v", got, c.evicts)
			}
			told := w.Find(t, "urgent").Status.Conditions[0]
			if told.Reason != c.reason || !strings.Contains(told.Message, c.tells) {
				t.Errorf("it waits because of %s: %s; want %s: %s", told.Reason, told.Message, c.reason, c.tells)
			}
		})
	}
}

// stranger returns a booking, on a machine, of a gang without a Workload.
func stranger(gpus int64) state.Booking {
	return state.Booking{UID: "stranger", Key: "stranger", Namespace: "default", Running: 1,
		Came: []nodegroups.Resources{{"gpu": gpus, corev1.ResourcePods: 1}}}
}

// poolOf is a group of up to so many machines with so many GPUs each.
func poolOf(gpus int64, most int) nodegroups.Group {
	machine := nodegroups.Resources{"gpu": gpus, corev1.ResourcePods: 110}
	return nodegroups.Group{Name: "pool", CapacityType: v1alpha1.OnDemand, Max: most, Labels: map[string]string{"pool": "spot"},
		Promised: machine, Allocatable: machine}
}

// TestItsOwnLaunchIsNotInTheWay: while the last machine of a group is being launched for a workload, the planner would find none for it.
// Its request is what counts until it ends, and also while there is no capacity snapshot.
func TestItsOwnLaunchIsNotInTheWay(t *testing.T) {
	for name, later := range map[string]func(*queues.World){
		"the group is full": func(w *queues.World) {
			full := poolOf(8, 1)
			full.Machines = 1
			w.State.SetCapacity(planner.NewSnapshot(w.Now, nodeset.New(), []nodegroups.Group{full}, nil))
		},
		"no advice": func(w *queues.World) { w.State.SetCapacity(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := contested(t)
			w.Plan = planner.Plan
			w.State.SetCapacity(planner.NewSnapshot(w.Now, nodeset.New(), []nodegroups.Group{poolOf(8, 1)}, nil))
			w.Set(w.Workload(t, "urgent", map[string]string{"gpu": "8", "priority": "1"}))
			w.Cycles(t)
			later(w)
			w.Condition(t, "urgent", map[string]string{"Accepted": "True"}, "")
			w.Cycles(t)
			if workload.IsEvicted(w.Find(t, "victim")) {
				t.Fatal("the victim leaves before the machine is there")
			}
			w.Condition(t, "urgent", map[string]string{"Provisioned": "True"}, "")
			w.Cycles(t)
			w.Change(t, "stopped", "victim")
			w.Cycles(t)
			if urgent := w.Find(t, "urgent"); !workload.IsAdmitted(urgent) {
				t.Errorf("it is not admitted: %v", urgent.Status.Conditions)
			}
		})
	}
}
