package queueing

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
)

// racks is a cluster of nodes in racks, counted by the test itself.
type racks struct {
	*world
	// cpus of each node, and of the pods on it that no Workload has.
	cpus, strangers map[string]int
	rack            map[string]string
	// bare are the nodes that have no label of their rack yet, with their CPUs.
	bare        map[string]int
	nodes, pods int
	placed      int
}

// TestRacksHoldTheirGangs runs random gangs on random racks, while nodes and other pods come and go. A gang that gets
// quota has room on each of its nodes, and is in one rack if it has to be; so are its slices. At rest none waits
// that could have a rack. A State that is fed all objects again decides the same.
func TestRacksHoldTheirGangs(t *testing.T) {
	placed, preempted, repaired, seeds := 0, 0, 0, cases(300)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 20))
		w := &racks{world: newWorld(), cpus: map[string]int{}, strangers: map[string]int{}, rack: map[string]string{}, bare: map[string]int{}}
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
		w.set(topology)
		w.set(flavor("gpu", map[string]string{"topology": "racks"}))
		preempts := r.IntN(2) == 0
		args := map[string]string{}
		if preempts {
			args["within"] = "LowerPriority"
		}
		w.set(clusterQueue(t, "team", args, "gpu cpu=60"))
		w.set(localQueueTo("main", "team", ""))
		w.sees = func(v *lifecycle.Verdict) {
			switch v.Action {
			case lifecycle.Reserve:
				w.placed++
				w.judge(t, seed, v, nil)
			case lifecycle.Advance:
				repaired++
				w.judge(t, seed, v, podsOn(v.Workload.Object.Status.Admission))
			}
			if v.PreemptedFor != "" {
				preempted++
			}
		}
		for range 40 {
			w.shake(t, r)
			w.cycles(t)
			if !preempts {
				w.checkNoneWaitsForNothing(t, seed)
			}
			w.now = w.now.Add(time.Duration(r.IntN(20)) * time.Second)
			if t.Failed() {
				t.FailNow()
			}
		}
		if got, want := fmt.Sprint(outcomes(w.restarted().Cycle(w.now))), fmt.Sprint(outcomes(w.copied().Cycle(w.now))); got != want {
			t.Fatalf("seed %d: a State that is fed again decides %s, a copy %s", seed, got, want)
		}
		placed += w.placed
	}
	if placed < 3*int(seeds) || 3*preempted < int(seeds) || 3*repaired < int(seeds) {
		t.Errorf("%d gangs were placed, %d preempted and %d repaired; the test sees too little", placed, preempted, repaired)
	}
}

func (w *racks) copied() *State {
	out := w.s.WithoutWorkloads(nil)
	for _, x := range w.s.AllWorkloads() {
		out.Join(x)
	}
	return out
}

// label puts a node into a rack.
func (w *racks) label(t *testing.T, r *rand.Rand, name string, cpus int) {
	rack := string(rune('a' + r.IntN(3)))
	w.cpus[name], w.rack[name] = cpus, rack
	w.world.nodes(t, name, map[string]string{"pool": "gpu", "rack": rack, "cpu": strconv.Itoa(cpus)})
}

// shake has something happen.
func (w *racks) shake(t *testing.T, r *rand.Rand) {
	running := func() *kueue.Workload {
		for _, x := range w.s.AllWorkloads() {
			if workload.HasQuota(x.Object) && !workload.IsFinished(x.Object) && r.IntN(2) == 0 {
				return x.Object.DeepCopy()
			}
		}
		return nil
	}
	switch r.IntN(9) {
	case 0, 1:
		w.nodes++
		w.label(t, r, fmt.Sprintf("node-%d", w.nodes), 1+r.IntN(4))
	case 8:
		w.nodes++
		name, cpus := fmt.Sprintf("node-%d", w.nodes), 1+r.IntN(4)
		w.bare[name] = cpus
		w.world.nodes(t, name, map[string]string{"pool": "gpu", "cpu": strconv.Itoa(cpus)})
	case 2:
		name := fmt.Sprintf("node-%d", 1+r.IntN(w.nodes+1))
		if cpus, is := w.bare[name]; is {
			delete(w.bare, name)
			w.label(t, r, name, cpus)
			break
		}
		delete(w.cpus, name)
		w.s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(name)}})
	case 3:
		w.pods++
		name, node := fmt.Sprintf("stranger-%d", w.pods), fmt.Sprintf("node-%d", 1+r.IntN(w.nodes+1))
		if w.cpus[node] > 0 && w.free(node, "") > 0 {
			w.strangers[node]++
			w.pod(name, map[string]string{"node": node, "cpu": "1"})
		}
	case 4:
		name := types.UID(fmt.Sprintf("pod stranger-%d", 1+r.IntN(w.pods+1)))
		if node := w.s.Nodes.NodeOfPod(name); node != "" {
			w.strangers[strings.TrimPrefix(node, nodeOf(""))]--
			w.s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: name}})
		}
	case 5:
		if x := running(); x != nil {
			w.change(t, map[bool]string{true: "stopped", false: "finish"}[workload.IsEvicted(x)], x.Name)
		}
	default:
		count := 1 + r.IntN(6)
		asks := []string{"required:rack", "required:kubernetes.io/hostname", "preferred:rack", "unconstrained", ""}[r.IntN(5)]
		if count%2 == 0 && r.IntN(3) == 0 {
			asks = "slice:rack:2"
		}
		args := map[string]string{"cpu": strconv.Itoa(1 + r.IntN(2)), "count": strconv.Itoa(count), "priority": strconv.Itoa(r.IntN(3))}
		if asks != "" {
			args["topology"] = asks
		}
		w.set(w.workload(t, fmt.Sprintf("gang-%d", w.created+1), args))
	}
}

// free is what a node has beside all gangs but one.
func (w *racks) free(node, but string) int {
	out := w.cpus[node] - w.strangers[node]
	for _, x := range w.s.AllWorkloads() {
		if x.Object.Name != but && !workload.IsFinished(x.Object) && workload.HasQuota(x.Object) {
			out -= podsOn(x.Object.Status.Admission)[node] * cpusOf(x.Object)
		}
	}
	return out
}

func cpusOf(w *kueue.Workload) int {
	return int(w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Cpu().Value())
}

// podsOn are how many pods of a gang are on each node.
func podsOn(a *kueue.Admission) map[string]int {
	out := map[string]int{}
	if a.PodSetAssignments[0].TopologyAssignment == nil {
		return out
	}
	domains, err := placement.Decode(a.PodSetAssignments[0].TopologyAssignment)
	if err != nil {
		panic(err)
	}
	for _, d := range domains {
		out[d.Values[0]] += int(d.Count)
	}
	return out
}

// judge verifies the assignment of a verdict. Pods keep their places as long as the node exists.
func (w *racks) judge(t *testing.T, seed uint64, v *lifecycle.Verdict, before map[string]int) {
	object := v.Workload.Object
	inRack, sum := map[string]int{}, 0
	now := podsOn(v.Status.Admission)
	for node, n := range before {
		if w.cpus[node] > 0 && now[node] < n {
			t.Errorf("seed %d: %d pods of %s are moved from %s, which is there", seed, n-now[node], object.Name, node)
		}
	}
	for node, n := range now {
		if free := w.free(node, object.Name); n > before[node] && n*cpusOf(object) > free {
			t.Errorf("seed %d: %s has %d pods of %d cpu on %s, where %d of %d are free beside %d of strangers", seed, object.Name, n, cpusOf(object),
				node, free, w.cpus[node], w.strangers[node])
		}
		inRack[w.rack[node]] += n
		sum += n
	}
	ps := object.Spec.PodSets[0]
	if sum != int(ps.Count) {
		t.Errorf("seed %d: %d of the %d pods of %s have a place", seed, sum, ps.Count, object.Name)
	}
	r := ps.TopologyRequest
	switch {
	case r == nil:
	case r.Required != nil && len(inRack) != 1, r.Required != nil && *r.Required == corev1.LabelHostname &&
		len(podsOn(v.Status.Admission)) != 1:
		t.Errorf("seed %d: %s requires one %s and is in %v", seed, object.Name, *r.Required, podsOn(v.Status.Admission))
	case r.PodSetSliceSize != nil:
		for rack, n := range inRack {
			if n%int(*r.PodSetSliceSize) != 0 {
				t.Errorf("seed %d: %d pods of %s are in rack %s, though its slices have %d", seed, n, object.Name, rack, *r.PodSetSliceSize)
			}
		}
	}
}

// checkNoneWaitsForNothing: no pending Workload has quota and a rack with room for all of its pods.
func (w *racks) checkNoneWaitsForNothing(t *testing.T, seed uint64) {
	free := 60
	for _, x := range w.s.AllWorkloads() {
		if !workload.IsFinished(x.Object) && workload.HasQuota(x.Object) {
			free -= cpusOf(x.Object) * int(x.Object.Spec.PodSets[0].Count)
		}
	}
	for _, x := range w.s.AllWorkloads() {
		if workload.HasQuota(x.Object) || workload.IsFinished(x.Object) || cpusOf(x.Object)*int(x.Object.Spec.PodSets[0].Count) > free {
			continue
		}
		if r := x.Object.Spec.PodSets[0].TopologyRequest; r != nil && r.Required != nil && *r.Required == corev1.LabelHostname {
			continue
		}
		room := map[string]int{}
		for node := range w.cpus {
			if n := w.free(node, ""); n > 0 {
				room[w.rack[node]] += n / cpusOf(x.Object)
			}
		}
		for rack, n := range room {
			if n >= int(x.Object.Spec.PodSets[0].Count) {
				t.Errorf("seed %d: %s waits (%s), and rack %s has room for %d of its pods", seed, x.Object.Name, x.Message, rack, n)
			}
		}
	}
}

// TestALeaderIsPlacedByItsOwnTemplate: the leader of a group selects other nodes than its workers. It has no room
// where it may not run, before the start and once it has lost its node.
func TestALeaderIsPlacedByItsOwnTemplate(t *testing.T) {
	w := newWorld()
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
	w.set(topology)
	w.set(flavor("gpu", map[string]string{"topology": "racks"}))
	w.set(clusterQueue(t, "team", nil, "gpu cpu=60"))
	w.set(localQueueTo("main", "team", ""))
	node := func(name, block string) {
		w.nodes(t, name, map[string]string{"pool": "gpu", "rack": "r", "block": block, "cpu": "4"})
	}
	node("a", "workers")
	node("b", "workers")
	object := w.workload(t, "led", map[string]string{"cpu": "1", "count": "1", "topology": "required:rack", "group": "7"})
	for i, block := range []string{"leaders", "workers"} {
		spec := object.Spec.PodSets[i].Template.Spec.DeepCopy()
		spec.NodeSelector = map[string]string{"block": block}
		object.Spec.PodSets[i].Template.Spec = *spec
	}
	w.set(object)
	w.cycles(t)
	if led := w.find(t, "led"); workload.HasQuota(led) {
		t.Fatalf("it has quota, and its leader may run nowhere: %s", places(led))
	}
	node("c", "leaders")
	w.cycles(t)
	if got, want := places(w.find(t, "led")), "main: c=1\ngroup-1: a=4 b=3\n"; got != want {
		t.Fatalf("places are %q, want %q", got, want)
	}
	node("d", "leaders")
	node("e", "workers")
	w.s.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf("c")}})
	w.cycles(t)
	if got, want := places(w.find(t, "led")), "main: d=1\ngroup-1: a=4 b=3\n"; got != want {
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
		w := newWorld()
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
		w.set(topology)
		w.set(flavor("one", map[string]string{"topology": "racks"}))
		w.set(flavor("two", map[string]string{"topology": "racks"}))
		w.set(clusterQueue(t, "team", map[string]string{"within": "LowerPriority"}, "one cpu=0\ntwo cpu=10"))
		w.set(localQueueTo("main", "team", ""))
		// The first node has the name of its rack.
		w.nodes(t, "a", map[string]string{"pool": "one", "rack": "a", "cpu": "20"})
		w.nodes(t, "b", map[string]string{"pool": "two", "rack": "b", "cpu": "10"})
		w.set(w.workload(t, "low", map[string]string{"cpu": "1", "count": "10", "priority": "-5"}))
		w.cycles(t)
		if got := places(w.find(t, "low")); got != "main: b=10\n" {
			t.Fatalf("%s: the victim is on %q", name, got)
		}
		object := w.workload(t, "led", map[string]string{"cpu": "1", "count": "1", "topology": "required:rack", "group": "7"})
		object.Spec.PodSets = c.change(object.Spec.PodSets)
		w.set(object)
		w.cycles(t)
		w.change(t, "stopped", "low")
		w.cycles(t)
		if got := places(w.find(t, "led")); got != c.want {
			t.Errorf("%s: places are %q, want %q", name, got, c.want)
		}
	}
}
