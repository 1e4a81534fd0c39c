package simulation

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// byClaimOf returns a gang whose pods have a claim of that kind.
func byClaimOf(name, kind string, pods int) *gang {
	g := workers(name)
	g.podSets = []podSet{{spec: claims(podSpec(1, 1), kind), count: pods}}
	return g
}

// publishing returns a NodeGroup whose machines publish the devices of an inventory.
func publishing(inventory string) *v1alpha1.NodeGroup {
	return newGroup("gpus", func(g *v1alpha1.NodeGroup) {
		g.Spec.Template.Capacity, g.Spec.Template.Devices = cpuMachine, deviceInventories[inventory]
	})
}

// nodePublishing returns a node of no group that publishes the devices of an inventory.
func nodePublishing(name, inventory string) *corev1.Node {
	n := newNode(name, cpuMachine)
	n.Annotations = map[string]string{kwokv1alpha1.ClaimableAnnotation: kwokv1alpha1.Claimable{
		Pools: deviceInventories[inventory]}.Annotation()}
	return n
}

// expectBound fails where another number of the gang's pods is bound, or has ended, at that time.
func (w *world) expectBound(at time.Time, g *gang, want int) {
	w.plan(at, "the pods of "+g.String()+" are counted", func() {
		got := 0
		for _, p := range all[*corev1.Pod](w.store) {
			if p.Namespace == g.namespace && p.Annotations[provreq.ProvisioningRequestPodAnnotationKey] == g.request && p.Spec.NodeName != "" {
				got++
			}
		}
		if got != want {
			w.failure = fmt.Errorf("%d pods of %s are bound, want %d", got, g, want)
		}
	})
}

// claimScenarios are short stories of gangs that claim devices.
var claimScenarios = []scenario{
	{
		name: "a gang of partitions starts from no machine",
		setUp: func(w *world) {
			w.create(publishing("two GPUs in partitions"))
			g := byClaimOf("gang", "a large partition", 6) // four on each machine
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.expectMachines(w.began.Add(10*time.Second), 2)
			w.expectBound(w.began.Add(30*time.Second), g, 6)
		},
		shows:  []string{"Provisioned=True CapacityIsProvisioned", "BookingExpired=True CapacityBookingConsumed"},
		avoids: []string{"attempt RollingBack"},
	},
	{
		name: "a gang of pairs on one root starts from no machine",
		setUp: func(w *world) {
			w.create(publishing("four GPUs on two roots"))
			g := byClaimOf("gang", "two GPUs on one root", 5) // two on each machine
			w.submit(w.began, g, transaction.ClassAtomicScaleUp, nil)
			w.expectMachines(w.began.Add(10*time.Second), 3)
			w.expectBound(w.began.Add(30*time.Second), g, 5)
		},
		shows:  []string{"Provisioned=True CapacityIsProvisioned", "BookingExpired=True CapacityBookingConsumed"},
		avoids: []string{"attempt RollingBack"},
	},
	{
		name: "a gang whose booked devices another pod takes is booked elsewhere",
		setUp: func(w *world) {
			w.create(nodePublishing("node-0", "two GPUs beside two others"))
			g := byClaimOf("gang", "two GPUs of model B", 1)
			g.delay = 5 * time.Minute
			w.submit(w.began.Add(10*time.Second), g, transaction.ClassCheckCapacity, map[string]string{transaction.ParamValidUntil: "1200"})
			w.plan(w.began.Add(20*time.Second), "a stranger takes the devices", func() {
				p := tolerant("stranger", time.Hour)
				p.Spec = claims(p.Spec, "two GPUs of model B")
				w.create(p)
			})
			w.plan(w.began.Add(time.Minute), "another node joins", func() {
				w.create(nodePublishing("node-1", "two GPUs beside two others"))
			})
			w.expectBound(w.began.Add(5*time.Minute+15*time.Second), g, 1)
			w.plan(w.began.Add(8*time.Minute), "the stranger goes", func() {
				change(w.store, tolerant("stranger", 0), markDeleted)
			})
		},
		shows: []string{"BookingExpired=True CapacityBookingConsumed"},
	},
	{
		name: "a group changes from a device plugin to claims while its machines run",
		setUp: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 12 }))
			long := func(g *gang) *gang {
				g.runFor, g.giveUpAfter = 2*time.Minute, 5*time.Minute
				return g
			}
			byName := func(name string) *gang {
				g := long(workers(name))
				g.podSets[0].count = 2
				g.podSets[0].spec.Containers[0].Resources.Limits = g.podSets[0].spec.Containers[0].Resources.Requests
				return g
			}
			before, while, after, claimed := byName("before"), byName("while"), byName("after"), long(byClaimOf("claimed", "four GPUs", 2))
			w.submit(w.began, before, transaction.ClassAtomicScaleUp, nil)
			w.submit(w.began.Add(29*time.Second), while, transaction.ClassAtomicScaleUp, nil) // its machines boot as the group changes
			w.plan(w.began.Add(30*time.Second), "an admin changes the group", func() {
				change(w.store, publishing("four GPUs on two roots"), func(g *v1alpha1.NodeGroup) {
					g.Spec.Template.Capacity, g.Spec.Template.Devices = cpuMachine, deviceInventories["four GPUs on two roots"]
					g.Generation++
				})
			})
			w.submit(w.began.Add(40*time.Second), after, transaction.ClassAtomicScaleUp, nil)
			w.submit(w.began.Add(45*time.Second), claimed, transaction.ClassAtomicScaleUp, nil)
			for _, g := range []*gang{before, while, after, claimed} {
				w.expectBound(w.began.Add(115*time.Second), g, 2)
			}
		},
		shows:  []string{"claim allocated", "BookingExpired=True CapacityBookingConsumed"},
		avoids: []string{"CapacityRevoked=True MachineLost", "Failed=True CapacityIsNotFound", "attempt RollingBack"},
	},
}

// TestScenariosByClaim plays the short stories of gangs that claim devices.
func TestScenariosByClaim(t *testing.T) {
	for _, scenario := range claimScenarios {
		t.Run(scenario.name, func(t *testing.T) {
			setUp := scenario.setUp
			scenario.setUp = func(w *world) {
				w.withClaims = true
				w.deviceObjects()
				setUp(w)
			}
			scenario.check(t, scenario.play(t, nil))
		})
	}
}
