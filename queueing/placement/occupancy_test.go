package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// rackNode is in rack r1 of a block and has 8 GPUs; a closed one is cordoned.
func rackNode(name, block string, closed bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"pool": "h100", "block": block, "rack": "r1", corev1.LabelHostname: name}}}
	n.Spec.Unschedulable = closed
	n.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse("8")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// gpuPod is on a node, with so many GPUs; of a Workload, if that is named.
func gpuPod(name, node, workload string, gpus int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	if workload != "" {
		p.Annotations = map[string]string{kueue.WorkloadAnnotation: workload}
	}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}}}}
	return p
}

func TestOccupancyOfDomains(t *testing.T) {
	requests := func(spec *corev1.PodSpec) nodegroups.Resources {
		return nodegroups.ResourcesFrom(spec.Containers[0].Resources.Requests)
	}
	f := NewTopologyCache()
	f.SetNode(rackNode("n1", "b1", false))
	f.SetNode(rackNode("n2", "b1", true))
	f.SetNode(rackNode("n3", "b1", false))
	// A rack of the same name in another block is another rack.
	f.SetNode(rackNode("n4", "b2", false))
	stray := rackNode("n5", "b2", false)
	delete(stray.Labels, "rack")
	f.SetNode(stray)
	train := types.NamespacedName{Namespace: "default", Name: "train"}
	f.SetFlavors([]Flavor{
		{Name: "h100", NodeLabels: map[string]string{"pool": "h100"}, Topology: "racks", Levels: []string{"block", "rack", corev1.LabelHostname}},
		{Name: "blocks", NodeLabels: map[string]string{"pool": "h100"}, Topology: "blocks", Levels: []string{"block"}},
		{Name: "hosts", NodeLabels: map[string]string{"pool": "h100"}, Topology: "hosts", Levels: []string{corev1.LabelHostname}},
	}, nil)
	f.SetUsage(train, []Usage{{Flavor: "h100", Pod: nodegroups.Resources{gpu: 2},
		Domains: []Domain{{Values: []string{"n1"}, Count: 3}, {Values: []string{"n4"}, Count: 1}}}})
	f.SetPod(gpuPod("train-0", "n1", "train", 2), "", requests)
	f.SetPod(gpuPod("old-0", "n3", "old", 4), "", requests)
	f.SetPod(gpuPod("daemon", "n2", "", 1), "", requests)

	type workloads = map[types.NamespacedName]int
	have := func(gpus, pods int64) nodegroups.Resources {
		out := nodegroups.Resources{gpu: gpus}
		if pods > 0 {
			out[corev1.ResourcePods] = pods
		}
		return out
	}
	old := types.NamespacedName{Namespace: "default", Name: "old"}
	want := []Occupancy{
		{Values: []string{"b1", "r1"}, Nodes: 3, Open: 2, Capacity: have(24, 0), Used: have(11, 5), Free: have(6, 0), Workloads: workloads{train: 3, old: 1}, Others: 1},
		{Values: []string{"b2", "r1"}, Nodes: 1, Open: 1, Capacity: have(8, 0), Used: have(2, 1), Free: have(6, 0), Workloads: workloads{train: 1}},
	}
	// The number of pods on a node only counts if the node has a limit for it.
	check := func(got, want []Occupancy) {
		t.Helper()
		for i := range got {
			delete(got[i].Free, corev1.ResourcePods)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(f.Occupancy("h100"), want)
	f.SetUsage(train, nil)
	// Without its assignment, the pods that it has count.
	want[0].Used, want[0].Free, want[0].Workloads = have(7, 3), have(10, 0), workloads{train: 1, old: 1}
	want[1].Used, want[1].Free, want[1].Workloads = have(0, 0), have(8, 0), workloads{}
	delete(want[1].Used, gpu)
	check(f.Occupancy("h100"), want)

	if got := f.Occupancy("hosts"); len(got) != 5 || got[1].Values[0] != "n2" || got[1].Open != 0 || got[1].Free[gpu] != 0 {
		t.Errorf("of nodes that are domains: %v", got)
	}
	if got := f.Occupancy("blocks"); len(got) != 2 || got[1].Nodes != 2 || got[0].Free[gpu] != 10 {
		t.Errorf("of domains that are no nodes: %v", got)
	}
	if got := f.Occupancy("none"); got != nil {
		t.Errorf("of a flavor without a Topology: %v", got)
	}
}
