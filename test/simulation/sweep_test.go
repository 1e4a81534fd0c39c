package simulation

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// scenario is a short sequence of events. It has no faults but those that it sets.
type scenario struct {
	name   string
	setUp  func(*world)
	faults faults
	// shows are features that it must show, and avoids those that it must not show.
	shows, avoids []string
}

// workers is a gang of three pods of a whole machine each, which run for ten
// seconds.
func workers(name string) *gang {
	return &gang{
		namespace: "team", request: name, podSets: []podSet{{spec: podSpec(4, 4), count: 3}},
		delay: time.Second, runFor: 10 * time.Second, giveUpAfter: time.Minute,
	}
}

var scenarios = []scenario{
	{
		name: "a gang is launched, runs, and its machines are terminated",
		setUp: func(w *world) {
			w.create(newGroup("spot", nil))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"Provisioned=True CapacityIsProvisioned", "BookingExpired=True CapacityBookingConsumed", "cordon scaling-down",
			"machine terminated"},
	},
	{
		name: "a gang over two groups and a node that is there",
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 2 }))
			w.create(newGroup("cpus", func(g *v1alpha1.NodeGroup) { g.Spec.Template.Capacity, g.Spec.Template.Taints = cpuMachine, nil }))
			g := workers("gang")
			g.podSets = append(g.podSets, podSet{spec: podSpec(6, 0), count: 1})
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"attempt in several groups", "BookingExpired=True CapacityBookingConsumed"},
	},
	{
		name: "the pool has two of three machines, and the next one all",
		setUp: func(w *world) {
			holds := int32(2)
			w.create(newGroup("spot", func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType, g.Spec.Kwok.Holds = v1alpha1.Spot, &holds }))
			w.create(newGroup("steady", nil))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"rollback because of Stockout", "second attempt", "BookingExpired=True CapacityBookingConsumed"},
	},
	{
		name: "a machine dies while it boots",
		setUp: func(w *world) {
			w.create(newGroup("spot", func(g *v1alpha1.NodeGroup) {
				g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultBootDeath, Machines: []int64{1}}}
			}))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"machine BootFailed", "machine replaced", "BookingExpired=True CapacityBookingConsumed"},
	},
	{
		name: "no pod comes and the booking expires",
		setUp: func(w *world) {
			w.create(newGroup("spot", nil))
			booking := metav1.Duration{Duration: 30 * time.Second}
			policy := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
			policy.Spec.BookingTimeout = &booking
			w.create(policy)
			g := workers("gang")
			g.absent = 3
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, map[string]string{transaction.ParamPolicy: "policy"})
		},
		shows: []string{"BookingExpired=True CapacityReservationTimeExpired", "machine terminated"},
	},
	{
		name: "two gangs want the nodes that are there, and the second waits for the first",
		setUp: func(w *world) {
			for i := range 4 {
				w.create(newNode(fmt.Sprintf("node-%d", i), gpuMachine))
			}
			w.submit(w.began, workers("first"), transaction.ClassCheckCapacity, nil)
			w.submit(w.began.Add(2*time.Second), workers("second"), transaction.ClassCheckCapacity, nil)
		},
		shows: []string{"Provisioned=True CapacityIsFound", "Provisioned=False CapacityIsNotFound",
			"BookingExpired=True CapacityBookingConsumed"},
	},
	{
		name: "a request is withdrawn while its machines boot",
		setUp: func(w *world) {
			w.create(newGroup("spot", nil))
			g := workers("gang")
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.withdraw(w.began.Add(time.Second), g)
		},
		shows: []string{"request deleted in flight", "machine terminated"},
	},
	{
		name: "a request is withdrawn while it waits for its pods",
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			w.create(newGroup("spot", nil))
			g := workers("gang")
			g.absent = 3
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.withdraw(w.began.Add(10*time.Second), g)
		},
		shows: []string{"Provisioned=True CapacityIsProvisioned", "machine terminated"},
	},
}

// play runs a scenario in order, with a crash at the given point, if any.
func (scenario scenario) play(t *testing.T, at *crashPoint) (r result) {
	synctest.Test(t, func(*testing.T) {
		s := newSimulator(0, scenario.faults)
		s.orderly, s.crashAt = true, at
		s.world.create(devicePlugin())
		scenario.setUp(s.world)
		s.run(time.Now().Add(calm))
		points := s.points
		if at == nil {
			s.rest()
		}
		r = s.end()
		r.points = points
	})
	return r
}

// check fails the test if the run has failed, or does not show what it must.
func (scenario scenario) check(t *testing.T, r result) {
	t.Helper()
	if len(r.problems) > 0 {
		t.Errorf("%s\nThe trace:\n%s", strings.Join(r.problems, "\n"), strings.Join(r.trace, "\n"))
		return
	}
	for _, f := range scenario.shows {
		if !r.features[f] {
			t.Errorf("the scenario does not show what it is about: %s", f)
		}
	}
	for _, f := range scenario.avoids {
		if r.features[f] {
			t.Errorf("the scenario has what it must not have: %s\nThe trace:\n%s", f, strings.Join(r.trace, "\n"))
		}
	}
}

// mostPoints bounds the calls of a scenario.
const mostPoints = 150

// TestCrashSweep crashes muster before and after every single write to the API server and call to the cloud of every scenario. Each of
// these runs must keep the promises and end like the run without a crash.
func TestCrashSweep(t *testing.T) {
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			whole := scenario.play(t, nil)
			scenario.check(t, whole)
			if len(whole.points) > mostPoints {
				t.Fatalf("%d calls in a scenario that is to be short, the last %s", len(whole.points), whole.points[len(whole.points)-1])
			}
			crashes := 0
			for i, key := range whole.points {
				for _, side := range []side{before, after} {
					at := &crashPoint{index: i, side: side}
					r := scenario.play(t, at)
					if at.hit != key {
						t.Fatalf("the crash %s call %d came at %q, not at %q", side, i, at.hit, key)
					}
					crashes++
					if diff := cmp.Diff(whole.digest, r.digest); diff != "" {
						r.problems = append(r.problems, "it ends in another way than without the crash (-want +got):\n"+diff)
					}
					if len(r.problems) > 0 {
						t.Errorf("crash %s call %d, %s:\n%s\ntrace:\n%s", side, i, key, strings.Join(r.problems, "\n"), strings.Join(r.trace, "\n"))
					}
				}
			}
			if crashes != 2*len(whole.points) || crashes == 0 {
				t.Errorf("%d crashes at %d points: each has two sides", crashes, len(whole.points))
			}
			t.Logf("%d crashes at %d points", crashes, len(whole.points))
		})
	}
}

// TestAMachineIsLostAfterACrashWhileNodesAreOpened: Muster crashes before or after each call, the first node opened for the gang's pods
// breaks down, and the cloud has no replacement. The gang's other nodes are opened for the pods that fit there, or scaled down.
func TestAMachineIsLostAfterACrashWhileNodesAreOpened(t *testing.T) {
	broke := 0
	scenario := scenario{setUp: func(w *world) {
		w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { *g.Spec.IdleTimeout = seconds(5) }))
		g := workers("gang")
		g.delay, g.giveUpAfter = 0, 15*time.Minute
		w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
		for i := range 600 {
			w.plan(w.began.Add(time.Duration(i)*100*time.Millisecond), fmt.Sprint("the world is looked at ", i), func() {
				if !g.started || len(g.made) == 0 || w.features["node lost"] {
					return
				}
				var opened []*corev1.Node
				for _, n := range all[*corev1.Node](w.store) {
					if len(state.BookingsOn(n.Labels, n.Annotations)) > 0 {
						opened = append(opened, n)
					}
				}
				if len(opened) != 1 {
					return
				}
				broke++
				w.lose(opened[0])
				change(w.store, find[*v1alpha1.NodeGroup](w.store, "", "gpus"), func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 2 })
			})
		}
	}}
	points := scenario.play(t, nil).points
	for i, key := range points[:min(len(points), 40)] {
		for _, side := range []side{before, after} {
			at := &crashPoint{index: i, side: side, down: 5 * time.Second}
			if r := scenario.play(t, at); len(r.problems) > 0 {
				t.Errorf("crash %s call %d, %s:\n%s\ntrace:\n%s", side, i, key, strings.Join(r.problems, "\n"), strings.Join(r.trace, "\n"))
			}
		}
	}
	if broke == 0 {
		t.Error("no node was lost while others were not opened")
	}
	t.Logf("%d points; a node was lost in %d scenarios", len(points), broke)
}
