package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestWithout looks at what a gang could have on a machine of 8 GPUs if another
// one, or both, left it.
func TestWithout(t *testing.T) {
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	pod := func(gpus int64) nodegroups.Resources { return nodegroups.Resources{gpu: gpus, corev1.ResourcePods: 1} }
	for name, c := range map[string]struct {
		booking state.Booking
		// free is what the pods on the machine leave.
		free, want int64
	}{
		"its pods run":                     {state.Booking{Came: []nodegroups.Resources{pod(2), pod(2)}, Running: 2}, 4, 8},
		"some have not come":               {state.Booking{Came: []nodegroups.Resources{pod(2)}, Running: 1, Remaining: pod(2)}, 6, 8},
		"none has come":                    {state.Booking{Remaining: pod(8)}, 8, 8},
		"one has succeeded, and not which": {state.Booking{Came: []nodegroups.Resources{pod(1), pod(4)}, Running: 1}, 4, 5},
		"a pod without any GPU may be it":  {state.Booking{Came: []nodegroups.Resources{{corev1.ResourcePods: 1}, pod(4)}, Running: 1}, 4, 4},
		"one is on its way":                {state.Booking{Came: []nodegroups.Resources{pod(2)}, Running: 2, Remaining: pod(0)}, 4, 6},
	} {
		t.Run(name, func(t *testing.T) {
			c.booking.UID, c.booking.Key = "victim", "victim"
			other := state.Booking{UID: "other", Key: "other", Remaining: nodegroups.Resources{gpu: 0}}
			node := state.Node{
				Name: "n", Ready: true, Pods: 3, Allocatable: pod(8), Free: nodegroups.Resources{gpu: c.free, corev1.ResourcePods: 100},
				Labelled: []state.Booking{other, c.booking}, Bookings: []state.Booking{other, c.booking},
			}
			before := &Snapshot{Nodes: nodeset.Of(node)}
			after := before.Without("victim", "nobody").Nodes.Find("n")
			if got := after.Free[gpu]; got != c.want {
				t.Errorf("%d GPUs are free, want %d", got, c.want)
			}
			if after.Pods != 3-c.booking.Running || len(after.Labelled) != 1 || len(after.Bookings) != 1 || after.Bookings[0].UID != "other" {
				t.Errorf("%d pods, bookings %v of %v are left", after.Pods, after.Bookings, after.Labelled)
			}
			if n := before.Nodes.Find("n"); n.Free[gpu] != c.free || len(n.Bookings) != 2 {
				t.Errorf("the snapshot itself changed: %v", n)
			}
		})
	}
}
