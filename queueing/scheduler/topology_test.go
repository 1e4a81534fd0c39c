package scheduler_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// TestALeaderIsPlacedByItsOwnTemplate: the leader of a group selects other nodes than its workers. It has no room
// where it may not run, before the start and once it has lost its node.
func TestALeaderIsPlacedByItsOwnTemplate(t *testing.T) {
	w := queues.New()
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
	w.Set(topology)
	w.Set(queues.Flavor("gpu", map[string]string{"topology": "racks"}))
	w.Set(queues.ClusterQueue(t, "team", nil, "gpu cpu=60"))
	w.Set(queues.LocalQueue("main", "team", ""))
	node := func(name, block string) {
		w.Nodes(t, name, map[string]string{"pool": "gpu", "rack": "r", "block": block, "cpu": "4"})
	}
	node("a", "workers")
	node("b", "workers")
	object := w.Workload(t, "led", map[string]string{"cpu": "1", "count": "1", "topology": "required:rack", "group": "7"})
	for i, block := range []string{"leaders", "workers"} {
		spec := object.Spec.PodSets[i].Template.Spec.DeepCopy()
		spec.NodeSelector = map[string]string{"block": block}
		object.Spec.PodSets[i].Template.Spec = *spec
	}
	w.Set(object)
	w.Cycles(t)
	if led := w.Find(t, "led"); workload.HasQuota(led) {
		t.Fatalf("it has quota, and its leader may run nowhere: %s", queues.Places(led))
	}
	node("c", "leaders")
	w.Cycles(t)
	if got, want := queues.Places(w.Find(t, "led")), "main: c=1\ngroup-1: a=4 b=3\n"; got != want {
		t.Fatalf("places are %q, want %q", got, want)
	}
	node("d", "leaders")
	node("e", "workers")
	w.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: queues.NodeOf("c")}})
	w.Cycles(t)
	if got, want := queues.Places(w.Find(t, "led")), "main: d=1\ngroup-1: a=4 b=3\n"; got != want {
		t.Errorf("after its node is lost, places are %q, want %q", got, want)
	}
}

// TestAGroupPreemptsForItsPodSets: podSets of a group need not be next to each other, and one may request nothing. They are found by their
// names: the victim leaves, and all have a place on one flavor.
func TestAGroupPreemptsForItsPodSets(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]kueue.PodSet) []kueue.PodSet
		want   string
	}{
		"apart": {func(s []kueue.PodSet) []kueue.PodSet {
			between := *s[0].DeepCopy()
			between.Name, between.TopologyRequest = "between", nil
			return []kueue.PodSet{s[0], between, s[1]}
		}, "main: b=1\nbetween: b=1\ngroup-1: b=7\n"},
		"of a leader that requests nothing": {func(s []kueue.PodSet) []kueue.PodSet {
			s[0].Template = *s[0].Template.DeepCopy()
			s[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			return s
		}, "main: b=1\ngroup-1: b=7\n"},
	} {
		w := queues.New()
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
		w.Set(topology)
		w.Set(queues.Flavor("one", map[string]string{"topology": "racks"}))
		w.Set(queues.Flavor("two", map[string]string{"topology": "racks"}))
		w.Set(queues.ClusterQueue(t, "team", map[string]string{"within": "LowerPriority"}, "one cpu=0\ntwo cpu=10"))
		w.Set(queues.LocalQueue("main", "team", ""))
		// The first node has the name of its rack.
		w.Nodes(t, "a", map[string]string{"pool": "one", "rack": "a", "cpu": "20"})
		w.Nodes(t, "b", map[string]string{"pool": "two", "rack": "b", "cpu": "10"})
		w.Set(w.Workload(t, "low", map[string]string{"cpu": "1", "count": "10", "priority": "-5"}))
		w.Cycles(t)
		if got := queues.Places(w.Find(t, "low")); got != "main: b=10\n" {
			t.Fatalf("%s: the victim is on %q", name, got)
		}
		object := w.Workload(t, "led", map[string]string{"cpu": "1", "count": "1", "topology": "required:rack", "group": "7"})
		object.Spec.PodSets = c.change(object.Spec.PodSets)
		w.Set(object)
		w.Cycles(t)
		w.Change(t, "stopped", "low")
		w.Cycles(t)
		if got := queues.Places(w.Find(t, "led")); got != c.want {
			t.Errorf("%s: places are %q, want %q", name, got, c.want)
		}
	}
}
