package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// TestRepelledNodesAreAsGoodAsGone compares plans where pods keep gangs away with plans without the nodes and groups that an
// InterPodState does not allow the gang on.
func TestRepelledNodesAreAsGoodAsGone(t *testing.T) {
	cases := randomCases(20_000)
	outcomes, kept := map[Outcome]int{}, 0
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 2))
		s, gang, policy := randomSnapshot(r), randomGang(r), randomPolicy(r)
		gang.PodSets = gang.PodSets[:1]
		populate(r, s)
		v, want := Plan(s, gang, policy), Plan(withoutRepelled(s, &gang), gang, policy)
		if v.Outcome == Wait && want.Outcome == Never {
			want.Outcome = Wait // those pods may end
		}
		if diff := cmp.Diff([]any{want.Outcome, want.Placement, want.Launches}, []any{v.Outcome, v.Placement, v.Launches}); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		outcomes[v.Outcome]++
		for _, reason := range v.Reasons {
			if reason.Code == CodeApart {
				kept++
			}
		}
	}
	if t.Logf("%v, of which %d name what keeps them away", outcomes, kept); outcomes[Fits] < cases/100 || kept < cases/100 {
		t.Error("the cases say little about it")
	}
}

// populate has pods run on the nodes that keep others away, within topologies that classes distinguish or do not.
func populate(r *rand.Rand, s *Snapshot) {
	for n := range s.Nodes.All() {
		n := *n
		n.Labels = maps.Clone(n.Labels)
		n.Labels[corev1.LabelHostname] = n.Name
		n.Labels["rack"] = fmt.Sprint(r.IntN(3))
		for range r.IntN(2) * r.IntN(3) {
			term := corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}}
			term.TopologyKey = []string{corev1.LabelHostname, corev1.LabelTopologyZone, "rack", "row"}[r.IntN(4)]
			if r.IntN(4) > 0 {
				term.NamespaceSelector = &metav1.LabelSelector{}
			}
			if r.IntN(8) == 0 {
				term.LabelSelector.MatchLabels = map[string]string{"app": "other"}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"", "other"}[r.IntN(2)]}}
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
			}}
			n.Running = append(n.Running, fit.ReadRunning(pod))
		}
		s.Nodes.Set(&n)
	}
}

// withoutRepelled is the snapshot without what the first podSet is kept off.
func withoutRepelled(s *Snapshot, gang *state.Gang) *Snapshot {
	p, _ := gang.PodSets[0].Read(gang.Namespace, fit.Objects{})
	var nodes []fit.Node
	for n := range s.Nodes.All() {
		nodes = append(nodes, fit.Node{Name: n.Name, Labels: n.Labels, Taints: n.Taints, Pods: n.Running})
	}
	around := fit.NewInterPodState([]*fit.Pod{p}, nodes)
	out := *s
	out.Nodes, out.Groups, out.Memo = nodeset.New(), nil, NewMemo()
	for n := range s.Nodes.All() {
		if around.Allows(0, n.Name) {
			out.Nodes.Set(n)
		}
	}
	for _, g := range s.Groups {
		around.AddNode(fit.Node{Name: g.Name, Labels: g.Labels})
		if !around.Allows(0, g.Name) {
			g.Max = g.Machines // it stays, with the nodes that are there
		}
		out.Groups = append(out.Groups, g)
	}
	return &out
}
