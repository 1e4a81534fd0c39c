package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/placement"
)

const rack = "example.com/rack"

// racked is a flavor h100 with a Topology of racks, in a queue of 512 GPUs, and so many nodes of 8 GPUs in
// each rack, from r1 on.
func racked(nodes ...int) []client.Object {
	t := &kueue.Topology{ObjectMeta: meta("racks")}
	t.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
	f := flavor("h100")
	f.Spec.TopologyName = new(kueue.TopologyReference("racks"))
	out := []client.Object{t, f}
	for i, n := range nodes {
		for j := range n {
			x := node(fmt.Sprintf("r%d-n%d", i+1, j+1), "h100")
			x.Labels[rack], x.Labels[corev1.LabelHostname] = fmt.Sprintf("r%d", i+1), x.Name
			out = append(out, x)
		}
	}
	return out
}

// onNodes has one pod of a Workload on each of these nodes.
func onNodes(names ...string) func(*kueue.Workload) {
	return func(w *kueue.Workload) {
		var domains []placement.Domain
		for _, n := range slices.Sorted(slices.Values(names)) {
			domains = append(domains, placement.Domain{Values: []string{n}, Count: 1})
		}
		w.Status.Admission.PodSetAssignments[0].TopologyAssignment = placement.Encode([]string{corev1.LabelHostname}, domains)
	}
}

// TestRacksAreListedByTheirNumbers, and so are the places of a job's pods.
func TestRacksAreListedByTheirNumbers(t *testing.T) {
	nodes := make([]int, 11)
	for i := range nodes {
		nodes[i] = 1
	}
	w := running("train", "team", 3, onNodes("r1-n1", "r2-n1", "r10-n1"))
	p := pictureOf(nil, append(racked(nodes...), team("team", nil, "h100=512"), w)...)
	var names []string
	for _, l := range p.Racks() {
		names = append(names, l.Name())
	}
	if got := strings.Join(names, " "); got != "r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11" {
		t.Errorf("the racks are %s", got)
	}
}

func TestRacksAreListedWithWhatIsOnThem(t *testing.T) {
	objects := append(racked(3, 1, 0), team("team", nil, "h100=512"), running("train", "team", 2, onNodes("r1-n1", "r2-n1")))
	closed := node("r4-n1", "h100")
	closed.Labels[rack], closed.Labels[corev1.LabelHostname], closed.Spec.Unschedulable = "r4", closed.Name, true
	p := pictureOf(nil, append(objects, closed)...)
	lacks(t, printed(t, rackLines(p.Racks("h100"))),
		"FLAVOR RACK NODES RESOURCE CAPACITY USED FREE WORKLOADS (PODS)",
		"h100 r1 3 nvidia.com/gpu 24 8 16 default/train (1)",
		"h100 r1 3 cpu 288 0 288 default/train (1)",
		"h100 r2 1 nvidia.com/gpu 8 8 0 default/train (1)",
		"h100 r4 1, 0 open nvidia.com/gpu 8 0 0 -")
	lines := p.Racks()
	if got := lines[1].Resources[0]; len(lines) != 3 || got.Size != 333 || got.UsedShare != 1000 || got.FreeShare != 0 {
		t.Errorf("rack r2 is %+v, want a third of the largest, all used", got)
	}
	if got := lines[0].Resources[0]; got.Size != 1000 || got.UsedShare != 333 || got.FreeShare != 666 {
		t.Errorf("rack r1 is %+v, want the largest, a third used", got)
	}
	lacks(t, printed(t, rackLines(pictureOf(nil, flavor("a100"), team("team", nil, "a100=64")).Racks())), "There are no racks")
}

// inOneRack has all pods of a Workload be in one rack.
func inOneRack(w *kueue.Workload) {
	w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new(rack)}
}

// daemon is a pod of no Workload with 4 GPUs on a node.
func daemon(node string) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: meta("daemon"), Spec: podTemplate(4).Spec}
	out.Spec.NodeName = node
	return out
}

// TestWhatWouldMakeRoomInOneRack is computed: by taking out each Workload that might.
func TestWhatWouldMakeRoomInOneRack(t *testing.T) {
	// Where it runs now, small leaves no rack whole; r3 has room for it.
	small := func(nodes ...string) *kueue.Workload {
		return running("small", "team", int32(len(nodes)), onNodes(nodes...))
	}
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
		not     []string
	}{
		"one Workload is in the way": {
			objects: append(racked(4, 3, 1), small("r1-n1"), running("big", "team", 2, onNodes("r2-n1", "r2-n2")), waiting("train", 4, inOneRack)),
			want: []string{
				"Workload default/train waits for room in one place.",
				`topology "racks" allows to fit only 3 out of 4 pod(s)`,
				"flavor h100: r1 has most room, for 3 of 4 pods; the others request 8 nvidia.com/gpu",
				"flavor h100: all pods have room in r1 once default/small (1 pod there) has ended; that one would have room elsewhere if it were started again",
			},
			// Without big, r2 has three nodes only.
			not: []string{"default/big"},
		},
		"which has no room elsewhere": {
			objects: append(racked(4, 0), small("r1-n1"), waiting("train", 4, inOneRack)),
			want:    []string{"all pods have room in r1 once default/small (1 pod there) has ended\n"},
		},
		"it takes two, and a third may stay": {
			objects: append(racked(6), small("r1-n1"), running("first", "team", 2, onNodes("r1-n2", "r1-n3")),
				running("second", "team", 2, onNodes("r1-n4", "r1-n5")), waiting("train", 5, inOneRack)),
			want: []string{
				"r1 has most room, for 1 of 5 pods; the others request 32 nvidia.com/gpu",
				"all pods have room in r1 once these have ended: default/first (2 pods there), default/second (2 pods there)",
			},
			not: []string{"default/small"},
		},
		"no rack is large enough": {
			objects: append(racked(4, 3), small("r1-n1"), waiting("train", 5, inOneRack)),
			want: []string{
				"too few nodes are in one place even without other workloads: the most room would be in r1, for 4 of 5 pods",
				"flavor h100: nodes are added or open to pods again, or the job requests less",
			},
			not: []string{" once "},
		},
		"no node takes its pods": {
			objects: append(racked(0), waiting("train", 5, inOneRack)),
			want:    []string{"flavor h100: no node that takes pods now suits its pods, even without other workloads"},
		},
		"pods of none are in the way": {
			objects: append(racked(4), daemon("r1-n1"), small("r1-n2"), waiting("train", 4, inOneRack)),
			want:    []string{"the most room would be in r1, for 3 of 4 pods"},
		},
		"it may be in several racks": {
			objects: append(racked(2, 2), small("r1-n1", "r2-n1"), waiting("train", 3, func(w *kueue.Workload) {
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Preferred: new(rack)}
			})),
			want: []string{"flavor h100: all pods have room once default/small (2 pods there) has ended"},
			not:  []string{"has most room, for"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pictureOf(nil, append(c.objects, team("team", nil, "h100=512"))...)
			before := fmt.Sprint(p.Racks())
			text := toldOf(t, p.ExplainWorkload(named(t, p, "train")))
			lacks(t, text, c.want...)
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("the answer has %q:\n%s", not, text)
				}
			}
			if after := fmt.Sprint(p.Racks()); before != after {
				t.Errorf("the trial has changed the racks:\n%s\n%s", before, after)
			}
		})
	}
}
