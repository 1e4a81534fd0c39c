package queueing_test

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

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/placement"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// racks is a cluster of nodes in racks, counted by the test itself.
type racks struct {
	*queues.World
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
	placed, preempted, repaired, seeds := 0, 0, 0, queues.Cases(300)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 20))
		w := &racks{World: queues.New(), cpus: map[string]int{}, strangers: map[string]int{}, rack: map[string]string{}, bare: map[string]int{}}
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: corev1.LabelHostname}}
		w.Set(topology)
		w.Set(queues.Flavor("gpu", map[string]string{"topology": "racks"}))
		preempts := r.IntN(2) == 0
		args := map[string]string{}
		if preempts {
			args["within"] = "LowerPriority"
		}
		w.Set(queues.ClusterQueue(t, "team", args, "gpu cpu=60"))
		w.Set(queues.LocalQueue("main", "team", ""))
		w.Sees = func(v *lifecycle.Verdict) {
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
			w.Cycles(t)
			if !preempts {
				w.checkNoneWaitsForNothing(t, seed)
			}
			w.Now = w.Now.Add(time.Duration(r.IntN(20)) * time.Second)
			if t.Failed() {
				t.FailNow()
			}
		}
		restarted, copied := queues.Outcomes(w.Restarted().Cycle(w.Now)), queues.Outcomes(w.copied().Cycle(w.Now))
		if diff := cmp.Diff(restarted, copied); diff != "" {
			t.Fatalf("seed %d (-restarted +copy):\n%s", seed, diff)
		}
		placed += w.placed
	}
	if placed < 3*int(seeds) || 3*preempted < int(seeds) || 3*repaired < int(seeds) {
		t.Errorf("%d gangs were placed, %d preempted and %d repaired; the test sees too little", placed, preempted, repaired)
	}
}

func (w *racks) copied() *queueing.State {
	out := w.State.WithoutWorkloads(nil)
	for _, x := range w.State.AllWorkloads() {
		out.Join(x)
	}
	return out
}

// label puts a node into a rack.
func (w *racks) label(t *testing.T, r *rand.Rand, name string, cpus int) {
	rack := string(rune('a' + r.IntN(3)))
	w.cpus[name], w.rack[name] = cpus, rack
	w.Nodes(t, name, map[string]string{"pool": "gpu", "rack": rack, "cpu": strconv.Itoa(cpus)})
}

// shake has something happen.
func (w *racks) shake(t *testing.T, r *rand.Rand) {
	running := func() *kueue.Workload {
		for _, x := range w.State.AllWorkloads() {
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
		w.Nodes(t, name, map[string]string{"pool": "gpu", "cpu": strconv.Itoa(cpus)})
	case 2:
		name := fmt.Sprintf("node-%d", 1+r.IntN(w.nodes+1))
		if cpus, is := w.bare[name]; is {
			delete(w.bare, name)
			w.label(t, r, name, cpus)
			break
		}
		delete(w.cpus, name)
		w.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: queues.NodeOf(name)}})
	case 3:
		w.pods++
		name, node := fmt.Sprintf("stranger-%d", w.pods), fmt.Sprintf("node-%d", 1+r.IntN(w.nodes+1))
		if w.cpus[node] > 0 && w.free(node, "") > 0 {
			w.strangers[node]++
			w.Pod(name, map[string]string{"node": node, "cpu": "1"})
		}
	case 4:
		name := fmt.Sprintf("stranger-%d", 1+r.IntN(w.pods+1))
		if node := w.State.Nodes.NodeOfPod(types.UID("pod " + name)); node != "" {
			w.strangers[strings.TrimPrefix(node, queues.NodeOf(""))]--
			w.Pod(name, map[string]string{"done": ""})
		}
	case 5:
		if x := running(); x != nil {
			w.Change(t, map[bool]string{true: "stopped", false: "finish"}[workload.IsEvicted(x)], x.Name)
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
		w.Set(w.Workload(t, fmt.Sprintf("gang-%d", w.Created+1), args))
	}
}

// free is what a node has beside all gangs but one.
func (w *racks) free(node, but string) int {
	out := w.cpus[node] - w.strangers[node]
	for _, x := range w.State.AllWorkloads() {
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
	for _, x := range w.State.AllWorkloads() {
		if !workload.IsFinished(x.Object) && workload.HasQuota(x.Object) {
			free -= cpusOf(x.Object) * int(x.Object.Spec.PodSets[0].Count)
		}
	}
	for _, x := range w.State.AllWorkloads() {
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
