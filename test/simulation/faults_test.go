package simulation

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// found are faults that random scenarios have found, each reduced to a short scenario. The seeds are those that found them. Today these
// seeds generate other scenarios.
var found = []scenario{
	{
		name: "seed 172: pods of a gang change places between a node that is there and a new one",
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			w.create(newGroup("gpus", nil))
			g := workers("gang")
			g.podSets = []podSet{{spec: podSpec(4, 4), count: 1}, {spec: podSpec(2, 2), count: 2}}
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
		},
	},
	{
		name: "seed 121: a pod that failed is made again when its node is promised to others",
		setUp: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			first := workers("first")
			first.podSets[0].count, first.fails, first.retryAfter = 2, 1, 10*time.Second
			w.submit(w.began, first, transaction.ClassCheckCapacity, nil)
			second := workers("second")
			second.podSets[0].count, second.delay = 1, 20*time.Second
			w.submit(w.began.Add(15*time.Second), second, transaction.ClassCheckCapacity, nil)
		},
	},
	{
		name: "seed 45: two gangs share a node, and one puts more pods there than it has booked",
		setUp: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			first := workers("first")
			first.podSets = []podSet{{spec: podSpec(2, 2), count: 1}}
			first.delay = 30 * time.Second
			w.submit(w.began, first, transaction.ClassCheckCapacity, nil)
			second := workers("second")
			second.podSets = []podSet{{spec: podSpec(2, 2), count: 3}}
			w.submit(w.began.Add(2*time.Second), second, transaction.ClassCheckCapacity, nil)
		},
	},
	{
		name: "seed 1214: a request of the name of one that is gone does not send its pods to the old nodes",
		setUp: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			g := workers("gang")
			g.podSets[0].count = 1
			w.requestAt(w.began, g, transaction.ClassCheckCapacity, nil)
			w.withdraw(w.began.Add(5*time.Second), g)
			other := workers("other")
			other.podSets[0].count, other.delay = 1, 30*time.Second
			w.submit(w.began.Add(8*time.Second), other, transaction.ClassCheckCapacity, nil)
			w.plan(w.began.Add(12*time.Second), "somebody asks again", func() {
				w.submit(time.Now(), g, transaction.ClassCheckCapacity, nil)
			})
		},
	},
	{
		name: "seed 53: the idle machines of a group that was deleted are terminated",
		setUp: func(w *world) {
			w.create(newGroup("gpus", nil))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(15*time.Second), "an admin deletes the group", func() {
				_ = w.store.delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}})
			})
		},
	},
	{
		name: "seed 299: of a request that was withdrawn in flight no more is kept than the least of its group",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes, g.Spec.Kwok.DeviceDelay = 1, seconds(5) }))
			g := workers("gang")
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.withdraw(w.began.Add(4*time.Second), g)
		},
	},
	{
		name: "seed 257: a machine is terminated soon after the pod has gone that could not be moved",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { *g.Spec.IdleTimeout = seconds(5) }))
			g := workers("gang")
			g.podSets[0].count = 1
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.services = append(w.services, &service{
				name: "service", spec: podSpec(1, 0), from: w.began.Add(5 * time.Second), until: w.began.Add(25 * time.Second),
			})
		},
		shows: []string{"stranger on a node", "machine terminated"},
	},
	{
		name: "seed 156: who waits is told that the last group that could serve him was deleted",
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			unbookedPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: unbookedNamespace, Name: "stays"}, Spec: podSpec(4, 4)}
			w.create(unbookedPod)
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 2 }))
			w.submit(w.began.Add(10*time.Second), workers("gang"), transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(15*time.Second), "an admin deletes the group", func() {
				_ = w.store.delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}})
			})
		},
	},
	{
		name: "seed 1318: who waits is told that the only node that could serve him is gone",
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			first := workers("first")
			first.podSets[0].count = 1
			w.submit(w.began, first, transaction.ClassAtomicScaleUp, nil)
			second := workers("second")
			second.podSets[0].count = 1
			w.submit(w.began.Add(time.Second), second, transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(5*time.Second), "the node breaks down", func() {
				_ = w.store.delete(find[*corev1.Node](w.store, "", "node"))
			})
		},
	},
	{
		name: "seeds 1498 and 2687: an empty machine goes though another was to go, and is held up",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { *g.Spec.IdleTimeout, g.Spec.MinNodes = seconds(5), 1 }))
			first := workers("first")
			first.podSets[0].count = 1
			w.submit(w.began, first, transaction.ClassAtomicScaleUp, nil)
			w.services = append(w.services, &service{
				name: "service", spec: podSpec(1, 0), budget: true, from: w.began.Add(6 * time.Second), until: w.began.Add(10 * time.Minute),
			})
			second := workers("second")
			second.podSets[0].count, second.runFor = 1, 30*time.Second
			w.submit(w.began.Add(8*time.Second), second, transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"cordon scaling-down", "machine terminated"},
	},
	{
		name: "seeds 1717, 3231 and 3320: a machine goes that was launched for a gang which has found room without it",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.BootDelay = seconds(20) }))
			g := workers("gang")
			g.podSets[0].count, g.absent = 2, 1
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(30*time.Second), "the machine breaks down to which no pod has come", func() {
				nodes := all[*corev1.Node](w.store)
				w.lose(nodes[len(nodes)-1])
			})
		},
		shows: []string{"second attempt", "machine terminated"},
	},
	{
		name:   "seeds 1568 and 6066: a node that is gone is not written again and again until that is told",
		faults: faults{staleness: 10 * time.Second, slow: []string{"tell of Node"}},
		setUp: func(w *world) {
			w.create(newNode("node", gpuMachine))
			g := workers("gang")
			g.podSets[0].count, g.delay = 1, 20*time.Second
			w.submit(w.began, g, transaction.ClassCheckCapacity, nil)
			w.plan(w.began.Add(3*time.Second), "the node is deleted", func() { _ = w.store.delete(newNode("node", gpuMachine)) })
			w.withdraw(w.began.Add(4*time.Second), g)
		},
		shows: []string{"not found"},
	},
	{
		name:   "seeds 4984 and 9629: no machine is made for a request that is gone, whatever is told of it late",
		faults: faults{staleness: 10 * time.Second, slow: []string{"tell of ProvisioningRequest"}},
		setUp: func(w *world) {
			w.create(newGroup("gpus", nil))
			g := workers("gang")
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.withdraw(w.began.Add(12*time.Second), g)
		},
		shows: []string{"not found", "machine terminated"},
	},
	{
		name: "seed 2242: a machine may lose a node that was in use, and is not to be gone at the same moment",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { *g.Spec.IdleTimeout = seconds(5) }))
			g := workers("gang")
			g.podSets[0].count, g.runFor, g.giveUpAfter = 1, 2*time.Minute, 3*time.Minute
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(time.Minute), "a human deletes the node", func() { _ = w.store.delete(all[*corev1.Node](w.store)[0]) })
		},
		shows: []string{"machine terminated"},
	},
	{
		name: "devices that are not there for a while buy no machine again",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
				g.Spec.MaxNodes, g.Spec.Kwok.Faults = 8, devicesVanish(seconds(20))
			}))
			g := workers("gang")
			g.delay = 30 * time.Second
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.expectMachines(w.began.Add(20*time.Second), 3)
		},
	},
	{
		name: "machines whose devices stay away are replaced, and the gang runs",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
				g.Spec.MaxNodes, g.Spec.Kwok.Faults = 8, devicesVanish(metav1.Duration{Duration: time.Hour})
			}))
			g := workers("gang")
			g.delay = 3 * time.Minute
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.expectMachines(w.began.Add(2*time.Minute+20*time.Second), 5)
		},
	},
	{
		name: "a pod of others that has slipped onto a machine of a launch lives on when that is rolled back",
		setUp: func(w *world) {
			never, join := seconds(3600), seconds(30)
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
				g.Spec.JoinTimeout = &join
				g.Spec.Kwok.Faults = []v1alpha1.KwokFault{{Type: v1alpha1.FaultLateDevices, After: &never, Machines: []int64{1}}}
			}))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(10*time.Second), "a pod of others comes", func() { w.create(tolerant("slipped-in", 2*time.Minute)) })
		},
		shows: []string{"rollback because of Timeout", "rollback leaves a machine to pods of others", "second attempt", "machine terminated"},
	},
	{
		name: "a pod has come to an idle machine, and caches do not show it when that is terminated",
		setUp: func(w *world) {
			w.create(newGroup("gpus", nil))
			g := workers("gang")
			g.podSets[0].count = 1
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(50*time.Second), "a pod comes", func() { w.create(tolerant("unseen", 30*time.Second)) })
		},
		faults: faults{staleness: 10 * time.Second, slow: []string{"tell of Pod"}},
		shows:  []string{"cordon scaling-down", "machine terminated"},
	},
	{
		name: "seed 718: a gang for which a backoff keeps but the rest of its machines is served when that ends",
		setUp: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			soon := seconds(10)
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
				g.Spec.MaxNodes, g.Spec.Kwok.Faults = 2, []v1alpha1.KwokFault{{Type: v1alpha1.FaultDry, Until: &soon}}
			}))
			w.submit(w.began, workers("gang"), transaction.ClassAtomicScaleUp, nil)
		},
		shows: []string{"rollback because of Stockout", "second attempt", "Provisioned=True CapacityIsProvisioned"},
	},
	{
		name: "a few nodes that are deleted are lost, and their gangs stop soon",
		setUp: func(w *world) {
			w.fourGangs()
			w.vanish(w.began.Add(time.Minute), 3)
			w.expectRevoked(w.began.Add(65*time.Second), 0)
		},
		shows: []string{"CapacityRevoked=True MachineLost"},
	},
	{
		name: "many nodes that are deleted one by one stop no gang until a person decides",
		setUp: func(w *world) {
			w.fourGangs()
			w.vanish(w.began.Add(time.Minute), 8)
			w.expectRevoked(w.began.Add(8*time.Minute), 0)
			w.plan(w.began.Add(8*time.Minute), "a person decides", func() {
				g := find[*v1alpha1.NodeGroup](w.store, "", "gpus")
				if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionNodesPresent); c == nil || c.Status != metav1.ConditionFalse {
					w.failure = fmt.Errorf("the group says %+v", g.Status.Conditions)
				}
				change(w.store, g, func(g *v1alpha1.NodeGroup) { g.Annotations[v1alpha1.TerminateAtOnceAnnotation] = "8" })
			})
		},
		shows: []string{"CapacityRevoked=True MachineLost"},
	},
	{
		name: "etcd restored to before a gang was launched: its request asks for the machines that run, and gives none back in vain",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
				g.Spec.MaxNodes, g.Annotations = 12, map[string]string{v1alpha1.TerminateAtOnceAnnotation: "0"}
			}))
			g := workers("gang")
			g.podSets[0].count, g.runFor, g.giveUpAfter = 5, time.Hour, time.Hour
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.restore(w.began.Add(15*time.Minute), g)
			w.plan(w.began.Add(25*time.Minute), "a person decides", func() {
				g := find[*v1alpha1.NodeGroup](w.store, "", "gpus")
				c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionNodesPresent)
				if w.features["machine terminated"] || c == nil || c.Status != metav1.ConditionFalse {
					w.failure = fmt.Errorf("machines that run were terminated, or nobody was told: the group says %+v", g.Status.Conditions)
				}
				change(w.store, g, func(g *v1alpha1.NodeGroup) { g.Annotations[v1alpha1.TerminateAtOnceAnnotation] = "5" })
			})
		},
		shows: []string{"machine terminated", "second attempt"},
	},
	{
		name: "a gang that comes later leaves the room alone that a launcher counts on while its workers boot",
		setUp: func(w *world) {
			w.create(newGroup("cpus", func(g *v1alpha1.NodeGroup) { g.Spec.Template.Capacity, g.Spec.Template.Taints = cpuMachine, nil }))
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.Kwok.BootDelay = seconds(30) }))
			come := func(after int, podSets ...podSet) {
				w.submit(w.began.Add(time.Duration(after)*time.Second), &gang{namespace: "team", request: fmt.Sprint("gang-", after), podSets: podSets,
					held: true, runFor: 2 * time.Minute, giveUpAfter: 3 * time.Minute}, transaction.ClassAtomicScaleUp, nil)
			}
			half := podSet{spec: podSpec(4, 0), count: 1}
			come(0, half)
			come(1, podSet{spec: podSpec(3, 0), count: 1}, podSet{spec: podSpec(4, 4), count: 1})
			come(12, half)
			w.expectMachines(w.began.Add(time.Minute), 3)
		},
		shows:  []string{"attempt launches and shares machines"},
		avoids: []string{"attempt RollingBack"},
	},
}

// restore restores the API server to the objects before the launch of the gang.
func (w *world) restore(at time.Time, g *gang) {
	w.plan(at, "etcd is restored", func() {
		for _, p := range all[*corev1.Pod](w.store) {
			_ = w.store.delete(p)
		}
		for _, n := range all[*corev1.Node](w.store) {
			_ = w.store.delete(n)
		}
		change(w.store, find[*provreq.ProvisioningRequest](w.store, g.namespace, g.request), func(r *provreq.ProvisioningRequest) {
			r.Status = provreq.ProvisioningRequestStatus{}
		})
	})
}

// vanish has so many nodes deleted, a second after each other, while their machines run.
func (w *world) vanish(at time.Time, many int) {
	for i := range many {
		w.plan(at.Add(time.Duration(i)*time.Second), fmt.Sprint("somebody deletes node ", i), func() {
			_ = w.store.delete(all[*corev1.Node](w.store)[0])
		})
	}
}

// expectRevoked fails where another number of gangs has been stopped at that time.
func (w *world) expectRevoked(at time.Time, want int) {
	w.plan(at, "the gangs are counted", func() {
		stopped := 0
		for _, r := range all[*provreq.ProvisioningRequest](w.store) {
			if isTrue(r, provreq.CapacityRevoked) {
				stopped++
			}
		}
		if stopped != want {
			w.failure = fmt.Errorf("%d gangs are stopped, want %d", stopped, want)
		}
	})
}

// fourGangs of three machines each run for long in one group, and are to be stopped where machines are lost.
func (w *world) fourGangs() {
	w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) {
		// No person decides by herself.
		g.Spec.MaxNodes, g.Annotations = 12, map[string]string{v1alpha1.TerminateAtOnceAnnotation: "0"}
	}))
	for i := range 4 {
		g := workers(fmt.Sprint("gang-", i))
		g.podSets[0].count, g.runFor, g.giveUpAfter = 3, 20*time.Minute, 25*time.Minute
		w.submit(w.began, g, transaction.ClassAtomicScaleUp, map[string]string{v1alpha1.ParamOnMachineLoss: string(v1alpha1.LossRevoke)})
	}
}

// tolerant returns a pod that does not use Muster and runs on any node for a time, like an agent that is no DaemonSet.
func tolerant(name string, run time.Duration) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: unbookedNamespace, Name: name,
		Annotations: map[string]string{runForAnnotation: run.String()}}, Spec: podSpec(1, 0)}
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.Status.Phase = corev1.PodPending
	return p
}

// devicesVanish has the first two machines offer no device for a while, soon after they did.
func devicesVanish(pause metav1.Duration) []v1alpha1.KwokFault {
	after := seconds(2)
	return []v1alpha1.KwokFault{{Type: v1alpha1.FaultDevicesVanish, After: &after, For: &pause, Machines: []int64{0, 1}}}
}

// expectMachines fails where another number of machines is there at that time.
func (w *world) expectMachines(at time.Time, want int) {
	w.plan(at, "the machines are counted", func() {
		if got := len(all[*kwokv1alpha1.Machine](w.store)); got != want {
			w.failure = fmt.Errorf("%d machines are there, want %d", got, want)
		}
	})
}

// TestFoundFaults runs the scenarios that have failed once.
func TestFoundFaults(t *testing.T) {
	for _, scenario := range found {
		t.Run(scenario.name, func(t *testing.T) {
			scenario.check(t, scenario.play(t, nil))
		})
	}
}
