package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// TestNodesAreCounted by group, rack and queue, those of no NodeGroup included, and each is in one state.
func TestNodesAreCounted(t *testing.T) {
	objects := append(racked(3, 1), team("team", nil, "h100=512"), group("spare", 4, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 2 }))
	used := &corev1.Pod{ObjectMeta: meta("shell")}
	used.Spec, used.Spec.NodeName = podTemplate(3).Spec, "r1-n1"
	broken, cordoned := node("lost", "spare"), node("drained", "spare")
	broken.Labels[v1alpha1.NodeGroupLabel] = "spare"
	broken.Status.Conditions[0].Status, broken.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, at(30)
	cordoned.Spec.Unschedulable = true
	booked := bookedNode("booked", "spare", "train")
	booked.Annotations = map[string]string{v1alpha1.CordonedAnnotation: "booked"}
	objects = append(append(objects, used, broken, cordoned, booked), request()...)
	p := pictureOf(nil, objects...)

	lacks(t, printed(t, nodes{p.NodesIn("")}),
		"Nodes: 7, of which 3 are free, 1 used, 1 booked and 1 broken.",
		"GROUP NODES FREE USED BOOKED JOINING CLOSED BROKEN DEVICES FREE",
		"(none) 5 3 1 0 0 1 0 29 of 40 nvidia.com/gpu",
		"spare 2 0 0 1 0 0 1 8 of 16 nvidia.com/gpu",
		"racks r1 3 2 1 0 0 0 0 21 of 24 nvidia.com/gpu",
		"racks r2 1 1 0 0 0 0 0 8 of 8 nvidia.com/gpu",
		"team 4 3 1 0 0 0 0 29 of 32 nvidia.com/gpu",
		"r1-n1 (none) r1 Used 5 of 8 nvidia.com/gpu default/pod/shell",
		"- node lost is broken: it has not been Ready for 30m",
		"- node drained is closed: it is cordoned, not by Muster; `kubectl uncordon drained` opens it")
	if text := printed(t, nodes{p.NodesIn("spare")}); strings.Contains(text, "(none)") || !strings.Contains(text, "spare 2") {
		t.Errorf("of one group:\n%s", text)
	}
}

// TestMachinesWithoutANodeJoin: the group counts them, and no node is there to list.
func TestMachinesWithoutANodeJoin(t *testing.T) {
	p := pictureOf(nil, group("h100", 4, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 3 }))
	lacks(t, printed(t, nodes{p.NodesIn("")}), "h100 3 0 0 0 3 0 0 -")
	lacks(t, printed(t, nodes{pictureOf(nil).NodesIn("")}), "There is no node.")
}
