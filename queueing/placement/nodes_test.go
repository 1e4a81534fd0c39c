package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
)

func cpu(n int64) nodegroups.Resources { return nodegroups.Resources{"cpu": n * 1000} }

func roomOf(n int64) nodegroups.Resources {
	return nodegroups.Resources{"cpu": n * 1000, corev1.ResourcePods: 110}
}

// requiring has a required node affinity of one term.
func requiring(term corev1.NodeSelectorTerm) *corev1.PodSpec {
	return &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}}
}

// TestDomainsOfSeveralNodesFitByNode: the domains of a Topology without kubernetes.io/hostname have several nodes, and a pod still needs
// room on one node that suits it.
func TestDomainsOfSeveralNodesFitByNode(t *testing.T) {
	rack := "rack"
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	tree := func(nodes int, change func(*corev1.Node)) *Tree {
		out := NewTree("racks", hostLevels[:2], nil)
		for i := range nodes {
			n := newNode(fmt.Sprint("n", i), "b", "r")
			if change != nil && i == 0 {
				change(n)
			}
			out.SetNode(n, roomOf(2))
		}
		return out
	}
	required := &kueue.PodSetTopologyRequest{Required: &rack}
	in := func(n int32) []Domain { return []Domain{{[]string{"b", "r"}, n}} }
	for name, tc := range map[string]struct {
		tree    *Tree
		request Request
		want    Placement
	}{
		"each node is too small": {tree(2, nil), Request{Count: 1, Pod: cpu(3), Topology: required}, Placement{
			Reason: `topology "racks" doesn't allow to fit any of 1 pod(s). Total nodes: 2; excluded: resource "cpu": 2`,
			Best:   Domain{[]string{"b", "r"}, 0}}},
		"what is left on the nodes does not sum up": {tree(2, nil), Request{Count: 3, Pod: nodegroups.Resources{"cpu": 1_200}, Topology: required},
			Placement{Reason: `topology "racks" allows to fit only 2 out of 3 pod(s)`, Best: Domain{[]string{"b", "r"}, 2}}},
		"enough on each node": {tree(2, nil), Request{Count: 4, Pod: cpu(1), Topology: required}, Placement{Pods: in(4)}},
		"a tainted node": {tree(2, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }),
			Request{Count: 4, Pod: cpu(1), Topology: required, Spec: &corev1.PodSpec{}}, Placement{
				Reason: `topology "racks" allows to fit only 2 out of 4 pod(s). Total nodes: 2; excluded: taint "gpu:NoSchedule": 1`,
				Best:   Domain{[]string{"b", "r"}, 2}}},
		"a taint that is tolerated": {tree(2, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{gpu} }),
			Request{Count: 4, Pod: cpu(1), Topology: required, Spec: &corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu",
				Operator: corev1.TolerationOpExists}}}}, Placement{Pods: in(4)}},
		"a node selector": {tree(2, func(n *corev1.Node) { n.Labels["disk"] = "ssd" }),
			Request{Count: 3, Pod: cpu(1), Topology: required, Spec: &corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}, Placement{
				Reason: `topology "racks" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: nodeSelector: 1`,
				Best:   Domain{[]string{"b", "r"}, 2}}},
		"a node affinity": {tree(2, func(n *corev1.Node) { n.Labels["disk"] = "ssd" }),
			Request{Count: 3, Pod: cpu(1), Topology: required, Spec: requiring(corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}}})},
			Placement{Reason: `topology "racks" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: affinity: 1`,
				Best: Domain{[]string{"b", "r"}, 2}}},
		"a node affinity by name": {tree(2, nil),
			Request{Count: 3, Pod: cpu(1), Topology: required, Spec: requiring(corev1.NodeSelectorTerm{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}})},
			Placement{Reason: `topology "racks" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: affinity: 1`,
				Best: Domain{[]string{"b", "r"}, 2}}},
		"unconstrained": {tree(2, nil), Request{Count: 1, Pod: cpu(3), Topology: &kueue.PodSetTopologyRequest{Unconstrained: new(true)}}, Placement{
			Reason: `topology "racks" doesn't allow to fit any of 1 pod(s). Total nodes: 2; excluded: resource "cpu": 2`,
			Best:   Domain{[]string{"b", "r"}, 0}}},
		"the node is no level": {tree(2, nil), Request{Count: 1, Pod: cpu(1), Topology: &kueue.PodSetTopologyRequest{Required: &hostLevels[2]}},
			Placement{Reason: "no requested topology level: kubernetes.io/hostname"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.tree.Snapshot().Place(&tc.request)
			got.Nodes, got.LeaderNodes = nil, nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAssignmentsCountInTheirDomain: an assignment does not name the node of its domain that a pod runs on, so its usage is charged to
// the whole domain.
func TestAssignmentsCountInTheirDomain(t *testing.T) {
	rack := "rack"
	tree := NewTree("racks", hostLevels[:2], nil)
	for i := range 2 {
		tree.SetNode(newNode(fmt.Sprint("n", i), "b", "r"), roomOf(4))
	}
	domain := []Domain{{[]string{"b", "r"}, 1}}
	request := func(count int32, pod nodegroups.Resources) *Request {
		return &Request{Count: count, Pod: pod, Topology: &kueue.PodSetTopologyRequest{Required: &rack}}
	}
	tree.AddUsage(domain, cpu(4), 1)
	if p := tree.Snapshot().Place(request(2, cpu(4))); p.Reason == "" {
		t.Errorf("two pods of 4 CPU were placed on 8 CPU of which 4 are used: %v", p.Pods)
	}
	if p := tree.EmptySnapshot().Place(request(2, cpu(4))); p.Reason != "" {
		t.Errorf("without Workloads: %s", p.Reason)
	}
	view := tree.Snapshot()
	view.AddUsage(domain, cpu(4), -1)
	if p := view.Place(request(2, cpu(4))); p.Reason != "" {
		t.Errorf("once the Workload has left: %s", p.Reason)
	}
	if tree.Snapshot().Fits(domain, cpu(5)) || !tree.Snapshot().Fits(domain, cpu(4)) {
		t.Error("Fits does not count what single nodes have room for")
	}
	if tree.Snapshot().Fits([]Domain{{domain[0].Values, 2}}, cpu(4)) {
		t.Error("Fits forgets what is used of the domain")
	}
}

// TestUsageThatEndsLeavesNothing: a tree lives for months, and its Workloads come and go.
func TestUsageThatEndsLeavesNothing(t *testing.T) {
	tree := NewTree("racks", hostLevels, nil)
	first, second := []Domain{{[]string{"n0"}, 2}, {[]string{"gone"}, 1}}, []Domain{{[]string{"n0"}, 1}}
	tree.AddUsage(first, cpu(1), 1)
	tree.AddUsage(second, cpu(1), 1)
	tree.AddUsage(first, cpu(1), -1)
	tree.AddUsage(second, cpu(1), -1)
	if len(tree.usage) > 0 {
		t.Errorf("when all have ended, %v is in use", tree.usage)
	}
}

// TestPodSetsOfAWorkloadHaveNodesOfTheirOwn: the nodes that one podSet needs have no room for the next one.
func TestPodSetsOfAWorkloadHaveNodesOfTheirOwn(t *testing.T) {
	tree := NewTree("racks", hostLevels[:2], nil)
	for i := range 2 {
		tree.SetNode(newNode(fmt.Sprint("n", i), "b", "r"), roomOf(4))
	}
	view := tree.Snapshot()
	first := view.Place(&Request{Count: 2, Pod: nodegroups.Resources{"cpu": 2_500}, Implied: true})
	view.AddUsage(first.Pods, nodegroups.Resources{"cpu": 2_500}, 1)
	view.AddNodeUsage(first.Nodes, nodegroups.Resources{"cpu": 2_500})
	if p := view.Place(&Request{Count: 1, Pod: cpu(3), Implied: true}); p.Reason == "" {
		t.Errorf("a pod of 3 CPU was placed where two nodes have 1.5 left: %v", p.Pods)
	}
	if p := view.Place(&Request{Count: 2, Pod: nodegroups.Resources{"cpu": 1_500}, Implied: true}); p.Reason != "" {
		t.Error(p.Reason)
	}
}

// TestALeaderHasANodeOfItsOwn: a leader and a worker that do not fit on one node need two.
func TestALeaderHasANodeOfItsOwn(t *testing.T) {
	rack := "rack"
	tree := NewTree("racks", hostLevels[:2], nil)
	for i := range 2 {
		tree.SetNode(newNode(fmt.Sprint("n", i), "b", "r"), roomOf(4))
	}
	request := &Request{Count: 1, Pod: cpu(3), Leader: cpu(2), Topology: &kueue.PodSetTopologyRequest{Required: &rack}}
	p := tree.Snapshot().Place(request)
	if p.Reason != "" || len(p.Nodes) != 1 || len(p.LeaderNodes) != 1 || p.Nodes[0].Values[0] == p.LeaderNodes[0].Values[0] {
		t.Errorf("%+v", p)
	}
	if request.Count = 2; tree.Snapshot().Place(request).Reason == "" {
		t.Error("two workers and a leader were placed on two nodes of which each takes one of them")
	}
}

// TestALeaderAndPodsThatSelectNodes: a node that suits both counts for the pods and for the leader.
func TestALeaderAndPodsThatSelectNodes(t *testing.T) {
	rack := hostLevels[1]
	request := func(count int32) *Request {
		return &Request{Count: count, Pod: cpu(1), Spec: &corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}},
			Leader: cpu(1), LeaderSpec: &corev1.PodSpec{NodeSelector: map[string]string{"net": "fast"}},
			Topology: &kueue.PodSetTopologyRequest{Required: &rack}}
	}
	suitsBoth, suitsPods, suitsLeader := map[string]string{"disk": "ssd", "net": "fast"}, map[string]string{"disk": "ssd"},
		map[string]string{"net": "fast"}
	for name, tc := range map[string]struct {
		nodes []map[string]string
		most  int32
	}{
		"one node suits both":                                          {[]map[string]string{suitsBoth}, 2},
		"beside one that suits the pods":                               {[]map[string]string{suitsBoth, suitsPods}, 5},
		"beside one that suits the leader":                             {[]map[string]string{suitsBoth, suitsLeader}, 3},
		"beside one that suits the pods and one that suits the leader": {[]map[string]string{suitsBoth, suitsPods, suitsLeader}, 6},
		"none suits both":                                              {[]map[string]string{suitsPods, suitsLeader}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			tree := NewTree("racks", hostLevels, nil)
			for i, labels := range tc.nodes {
				n := newNode(fmt.Sprint("n", i), "b", "r")
				maps.Copy(n.Labels, labels)
				tree.SetNode(n, roomOf(3))
			}
			if p := tree.Snapshot().Place(request(tc.most)); p.Reason != "" || len(p.Leader) != 1 {
				t.Errorf("%d pods and their leader are not placed: %+v", tc.most, p)
			}
			if p := tree.Snapshot().Place(request(tc.most + 1)); p.Reason == "" {
				t.Errorf("%d pods and their leader are placed: %+v", tc.most+1, p)
			}
		})
	}
}

// TestDomainsTakeWhatTheirNodesTake compares placements with a plain count, node by node: no domain gets more pods than fit on its nodes,
// and a request is placed if and only if its pods fit in a domain, or in all of them together.
func TestDomainsTakeWhatTheirNodesTake(t *testing.T) {
	seeds := 4_000
	if testing.Short() {
		seeds = 400
	}
	placed := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		levels := hostLevels[r.IntN(2):2]
		tree := NewTree("racks", levels, []string{"disk"})
		pod, spec := nodegroups.Resources{"cpu": 500 * int64(1+r.IntN(8))}, &corev1.PodSpec{}
		if r.IntN(3) == 0 {
			spec.NodeSelector = map[string]string{[]string{"disk", "generation"}[r.IntN(2)]: "1"}
		}
		capacity, left := map[string]int32{}, map[string]int64{}
		for i := range 1 + r.IntN(12) {
			n := newNode(fmt.Sprint("n", i), fmt.Sprint("b", r.IntN(2)), fmt.Sprint("r", r.IntN(2)))
			n.Labels["disk"], n.Labels["generation"] = fmt.Sprint(r.IntN(2)), fmt.Sprint(r.IntN(2))
			if r.IntN(5) == 0 {
				n.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: corev1.TaintEffectNoSchedule}}
			}
			free := int64(r.IntN(6)) * 1000
			tree.SetNode(n, nodegroups.Resources{"cpu": free, corev1.ResourcePods: 110})
			key := strings.Join(tree.valuesOf(n), "/")
			left[key] += free
			suits := len(n.Spec.Taints) == 0
			for label, v := range spec.NodeSelector {
				suits = suits && n.Labels[label] == v
			}
			if suits {
				capacity[key] += int32(free / pod["cpu"])
			}
			if r.IntN(3) == 0 {
				tree.AddUsage([]Domain{{tree.valuesOf(n), 1}}, cpu(1), 1)
				left[key] -= 1000
			}
		}
		level := r.IntN(len(levels))
		within, total := map[string]int32{}, int32(0)
		for key := range left {
			capacity[key] = int32(max(0, min(int64(capacity[key]), left[key]/pod["cpu"])))
			within[strings.Join(strings.Split(key, "/")[:level+1], "/")] += capacity[key]
			total += capacity[key]
		}
		most := int32(0)
		for _, n := range within {
			most = max(most, n)
		}
		count := int32(1 + r.IntN(10))
		request := &Request{Count: count, Pod: pod, Spec: spec, Topology: &kueue.PodSetTopologyRequest{Required: &levels[level]}}
		fits := most >= count
		switch r.IntN(3) {
		case 0:
			request.Topology, fits = &kueue.PodSetTopologyRequest{Preferred: &levels[level]}, total >= count
		case 1:
			request.Topology, request.Implied, fits = nil, true, total >= count
		}
		p := tree.Snapshot().Place(request)
		if (p.Reason == "") != fits {
			t.Fatalf("seed %d: %d pods of %v, capacity %v: %q", seed, count, pod, capacity, p.Reason)
		}
		if p.Reason != "" {
			continue
		}
		placed++
		sum, on := int32(0), int32(0)
		for i, d := range p.Pods {
			if key := strings.Join(d.Values, "/"); d.Count > capacity[key] || len(d.Values) != len(levels) {
				t.Fatalf("seed %d: %d pods in %s, which takes %d", seed, d.Count, key, capacity[key])
			}
			if i > 0 && slices.Compare(p.Pods[i-1].Values, d.Values) >= 0 {
				t.Fatalf("seed %d: %v are not in order", seed, p.Pods)
			}
			sum += d.Count
		}
		for _, d := range p.Nodes {
			on += d.Count
		}
		if sum != count || on != count {
			t.Fatalf("seed %d: %d of %d pods in domains, %d on nodes", seed, sum, count, on)
		}
	}
	if placed < seeds/4 || placed > seeds*3/4 {
		t.Errorf("%d of %d were placed: the cases are too easy or too hard to show anything", placed, seeds)
	}
}
