package simulation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
)

// found are faults that random stories have found, each told as shortly as it can
// be. The seeds are those that found them; other stories have these seeds today.
var found = []tale{
	{
		name: "seed 172: pods of a gang change places between a node that is there and a new one",
		tell: func(w *world) {
			w.create(newNode("node", gpuMachine))
			w.create(newGroup("gpus", nil))
			g := workers("gang")
			g.podSets = []podSet{{spec: podSpec(4, 4), count: 1}, {spec: podSpec(2, 2), count: 2}}
			w.submit(w.began, g, model.ClassAtomicScaleUp, nil)
		},
	},
	{
		name: "seed 121: a pod that failed is made again when its node is promised to others",
		tell: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			first := workers("first")
			first.podSets[0].count, first.fails, first.retryAfter = 2, 1, 10*time.Second
			w.submit(w.began, first, model.ClassCheckCapacity, nil)
			second := workers("second")
			second.podSets[0].count, second.delay = 1, 20*time.Second
			w.submit(w.began.Add(15*time.Second), second, model.ClassCheckCapacity, nil)
		},
	},
	{
		name: "seed 45: two gangs share a node, and one puts more pods there than it has booked",
		tell: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			first := workers("first")
			first.podSets = []podSet{{spec: podSpec(2, 2), count: 1}}
			first.delay = 30 * time.Second
			w.submit(w.began, first, model.ClassCheckCapacity, nil)
			second := workers("second")
			second.podSets = []podSet{{spec: podSpec(2, 2), count: 3}}
			w.submit(w.began.Add(2*time.Second), second, model.ClassCheckCapacity, nil)
		},
	},
	{
		name: "seed 1214: a request of the name of one that is gone does not send its pods to the old nodes",
		tell: func(w *world) {
			w.create(newNode("node-0", gpuMachine))
			w.create(newNode("node-1", gpuMachine))
			g := workers("gang")
			g.podSets[0].count = 1
			w.ask(w.began, g, model.ClassCheckCapacity, nil)
			w.withdraw(w.began.Add(5*time.Second), g)
			other := workers("other")
			other.podSets[0].count, other.delay = 1, 30*time.Second
			w.submit(w.began.Add(8*time.Second), other, model.ClassCheckCapacity, nil)
			w.plan(w.began.Add(12*time.Second), "somebody asks again", func() {
				w.submit(time.Now(), g, model.ClassCheckCapacity, nil)
			})
		},
	},
	{
		name: "seed 53: the idle machines of a group that was deleted are given back",
		tell: func(w *world) {
			w.create(newGroup("gpus", nil))
			w.submit(w.began, workers("gang"), model.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(15*time.Second), "an admin deletes the group", func() {
				_ = w.store.delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}})
			})
		},
	},
	{
		name: "seed 299: of a request that was withdrawn in flight no more is kept than the least of its group",
		tell: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MinNodes, g.Spec.Kwok.DeviceDelay = 1, seconds(5) }))
			g := workers("gang")
			w.submit(w.began, g, model.ClassAtomicScaleUp, nil)
			w.withdraw(w.began.Add(4*time.Second), g)
		},
	},
	{
		name: "seed 257: a machine is given back soon after the pod has gone that could not be moved",
		tell: func(w *world) {
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { *g.Spec.IdleTimeout = seconds(5) }))
			g := workers("gang")
			g.podSets[0].count = 1
			w.submit(w.began, g, model.ClassAtomicScaleUp, nil)
			w.services = append(w.services, &service{
				name: "service", spec: podSpec(1, 0), from: w.began.Add(5 * time.Second), until: w.began.Add(25 * time.Second),
			})
		},
		shows: []string{"stranger on a node", "machine taken back"},
	},
	{
		name: "seed 156: who waits is told that the last group that could serve him was deleted",
		tell: func(w *world) {
			w.create(newNode("node", gpuMachine))
			stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strangers, Name: "stays"}, Spec: podSpec(4, 4)}
			w.create(stranger)
			w.create(newGroup("gpus", func(g *v1alpha1.NodeGroup) { g.Spec.MaxNodes = 2 }))
			w.submit(w.began.Add(10*time.Second), workers("gang"), model.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(15*time.Second), "an admin deletes the group", func() {
				_ = w.store.delete(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}})
			})
		},
	},
	{
		name: "seed 1318: who waits is told that the only node that could serve him is gone",
		tell: func(w *world) {
			w.create(newNode("node", gpuMachine))
			first := workers("first")
			first.podSets[0].count = 1
			w.submit(w.began, first, model.ClassAtomicScaleUp, nil)
			second := workers("second")
			second.podSets[0].count = 1
			w.submit(w.began.Add(time.Second), second, model.ClassAtomicScaleUp, nil)
			w.plan(w.began.Add(5*time.Second), "the node breaks down", func() {
				_ = w.store.delete(find[*corev1.Node](w.store, "", "node"))
			})
		},
	},
}

// TestFoundFaults tells the stories in which something was once wrong.
func TestFoundFaults(t *testing.T) {
	for _, tale := range found {
		t.Run(tale.name, func(t *testing.T) {
			tale.check(t, tale.play(t, nil))
		})
	}
}
