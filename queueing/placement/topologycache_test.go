package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

// TestTheTopologyCacheFollowsItsEvents: after random events of nodes, pods and assignments, each node has the room that a plain count
// gives, the hosts that a Workload has lost are those of a plain search, and no growth of room and no lost host goes unreported.
func TestTheTopologyCacheFollowsItsEvents(t *testing.T) {
	requests := func(spec *corev1.PodSpec) nodegroups.Resources {
		return nodegroups.ResourcesFrom(spec.Containers[0].Resources.Requests)
	}
	evicts := func(*corev1.Taint) bool { return true }
	flavor := Flavor{Name: "h100", NodeLabels: map[string]string{"pool": "h100"}, Topology: "racks",
		Levels: []string{"block", "rack", corev1.LabelHostname}}
	keyOf := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: name} }
	grown, lostOnes, ended := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		c := NewTopologyCache()
		c.SetFlavors([]Flavor{flavor}, nil)
		nodes, pods, usage := map[string]*corev1.Node{}, map[string]*corev1.Pod{}, map[string][]Usage{}
		room, lost := map[string]int64{}, map[string]map[string]bool{}
		for step := range 80 {
			name, job := fmt.Sprint("n", r.IntN(5)), fmt.Sprint("w", r.IntN(3))
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			assigned, workloadPodGone := "", false
			switch r.IntN(6) {
			case 0, 1:
				n := rackNode(name, "b1", r.IntN(6) == 0)
				if r.IntN(6) == 0 {
					n.Labels["pool"] = "other"
				}
				if r.IntN(5) == 0 {
					n.Status.Conditions[0].Status = corev1.ConditionFalse
				}
				if r.IntN(8) == 0 {
					n.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
				}
				n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("100")
				nodes[name] = n
				c.SetNode(n)
			case 2:
				delete(nodes, name)
				c.DeleteNode(name)
			case 3, 4:
				pod := fmt.Sprint("p", r.IntN(6))
				p := pods[pod]
				if p == nil {
					p = gpuPod(pod, name, []string{"", job}[r.IntN(2)], int64(1+r.IntN(3)))
				} else if p = p.DeepCopy(); r.IntN(2) == 0 {
					p.DeletionTimestamp = new(metav1.Unix(1, 0))
				} else {
					p.Status.Phase = corev1.PodSucceeded
				}
				if IsBoundAndRunning(p) {
					pods[pod] = p
				} else {
					workloadPodGone = p.Annotations != nil
					delete(pods, pod)
				}
				c.SetPod(p, "", requests)
			default:
				assigned = job
				delete(usage, job)
				if r.IntN(3) > 0 {
					usage[job] = []Usage{{Flavor: "h100", Pod: nodegroups.Resources{gpu: 1},
						Domains: []Domain{{[]string{name}, int32(1 + r.IntN(3))}}}}
				}
				c.SetUsage(keyOf(job), usage[job])
			}
			if got := c.PodEnded(); got != workloadPodGone {
				t.Fatalf("%s: a pod of a Workload has ended: %v, want %v", when, got, workloadPodGone)
			} else if got {
				ended++
			}
			// The room of a node is what assignments, and pods of no assignment, leave.
			now, gone := map[string]int64{}, map[string]map[string]bool{}
			for name, n := range nodes {
				if n.Labels["pool"] != "h100" || n.Spec.Unschedulable || n.Status.Conditions[0].Status != corev1.ConditionTrue {
					continue
				}
				now[name] = 8
				for _, uses := range usage {
					if d := uses[0].Domains[0]; d.Values[0] == name {
						now[name] -= int64(d.Count)
					}
				}
				for _, p := range pods {
					if p.Spec.NodeName == name && len(usage[p.Annotations[kueue.WorkloadAnnotation]]) == 0 {
						now[name] -= p.Spec.Containers[0].Resources.Requests.Name(gpu, "").Value()
					}
				}
			}
			freed, more := c.CapacityFreed(), false
			for name, v := range now {
				more = more || v > max(0, room[name])
			}
			if more {
				grown++
				if !freed {
					t.Fatalf("%s: room has grown from %v to %v, and is not reported", when, room, now)
				}
			}
			suspects := c.SuspectWorkloads()
			for name, uses := range usage {
				host := uses[0].Domains[0].Values[0]
				n := nodes[host]
				runs := slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(p *corev1.Pod) bool {
					return p.Spec.NodeName == host && p.Annotations[kueue.WorkloadAnnotation] == name && p.DeletionTimestamp == nil
				})
				if n == nil || (n.Status.Conditions[0].Status != corev1.ConditionTrue || len(n.Spec.Taints) > 0) && !runs {
					gone[name] = map[string]bool{host: true}
				}
				want := gone[name]
				if want == nil {
					want = map[string]bool{}
				}
				if diff := cmp.Diff(want, c.LostHosts(keyOf(name), uses, evicts)); diff != "" {
					t.Fatalf("%s: lost hosts of %s (-want +got)\n%s", when, name, diff)
				}
				if len(want) > 0 && !lost[name][host] && name != assigned {
					lostOnes++
					if !slices.Contains(suspects, keyOf(name)) {
						t.Fatalf("%s: %s has lost %s, and is not reported", when, name, host)
					}
				}
			}
			tree := c.Tree("h100")
			for name := range nodes {
				fits := int64(0)
				for n := int32(1); n <= 8 && tree.Snapshot().Fits([]Domain{{[]string{name}, n}}, nodegroups.Resources{gpu: 1}); n++ {
					fits = int64(n)
				}
				if fits != max(0, now[name]) {
					t.Fatalf("%s: %d GPUs are free on %s, want %d", when, fits, name, now[name])
				}
				if !c.HasHost(name) {
					t.Fatalf("%s: host %s is unknown", when, name)
				}
			}
			room, lost = now, gone
		}
	}
	if grown < 100 || ended < 100 || lostOnes < 100 {
		t.Errorf("room has grown %d times, %d pods have ended and %d hosts were lost: too few to show anything", grown, ended, lostOnes)
	}
}

// TestACordonedNodeMayBeLost: what runs on a node that is being drained is checked when its kubelet stops, too.
func TestACordonedNodeMayBeLost(t *testing.T) {
	c := NewTopologyCache()
	c.SetFlavors([]Flavor{{Name: "h100", Topology: "racks", Levels: []string{corev1.LabelHostname}}}, nil)
	w := types.NamespacedName{Namespace: "default", Name: "train"}
	c.SetUsage(w, []Usage{{Flavor: "h100", Domains: []Domain{{[]string{"n1"}, 1}}}})
	c.SetNode(rackNode("n1", "b1", true))
	if got := c.SuspectWorkloads(); len(got) > 0 {
		t.Errorf("a cordon alone makes %v suspect", got)
	}
	stopped := rackNode("n1", "b1", true)
	stopped.Status.Conditions[0].Status = corev1.ConditionUnknown
	c.SetNode(stopped)
	if got := c.SuspectWorkloads(); !slices.Equal(got, []types.NamespacedName{w}) {
		t.Errorf("once its kubelet has stopped, suspect are %v, want %v", got, w)
	}
}
