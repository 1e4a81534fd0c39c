package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// BenchmarkNeighbours plans the gang of BenchmarkPlan on 5,000 nodes where pods of other users run that have a say about
// other pods, and gangs that have one themselves. It reports how many times as long a plan takes as without them, both in one
// run. Seen on 2 cores of an AMD EPYC, busy otherwise: up to 1.5 times where pods attract others, or keep others away, or one
// keeps the gang away; about 10 times where 1,000 do so, each by a term of its own and from a node of its own; 45 to 120 times
// where the gang has a say itself, which is placed pod after pod.
func BenchmarkNeighbours(b *testing.B) {
	const nodes, groups, many = 5000, 200, 1000
	plain := medianPlan(b, crowded(nodes, groups), gangOf64())
	measure := func(name string, s *planner.Snapshot, gang state.Gang) {
		b.Run(name, func(b *testing.B) {
			took := medianPlan(b, s, gang)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took.Microseconds()), "µs/plan")
			b.ReportMetric(float64(took)/float64(plain), "times")
		})
	}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone, "rack"} {
		toAll := func(i int) *corev1.Affinity { return repels(key, i) }
		toOthers := func(i int) *corev1.Affinity {
			a := repels(key, i)
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{"app": "other"}
			return a
		}
		measure("one-repels/"+key, populated(nodes, groups, 1, toAll), gangOf64())
		measure("many-repel/"+key, populated(nodes, groups, many, toAll), gangOf64())
		measure("many-repel-others/"+key, populated(nodes, groups, many, toOthers), gangOf64())
		measure("many-attract/"+key, populated(nodes, groups, many, func(i int) *corev1.Affinity { return attracts(key, i) }), gangOf64())
	}
	for name, affinity := range map[string]*corev1.Affinity{
		"own-attract/hostname": attracts(corev1.LabelHostname, 0),
		"own-attract/zone":     attracts(corev1.LabelTopologyZone, 0),
		"own-repel/hostname":   repels(corev1.LabelHostname, 0),
	} {
		gang := gangOf64()
		gang.PodSets[2].Template.Labels = map[string]string{"rev": "0"}
		gang.PodSets[2].Template.Spec.Affinity = affinity
		measure(name, crowded(nodes, groups), gang)
	}
}

func repels(key string, i int) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{anyNamespace(key, i)}}}
}

func attracts(key string, i int) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{anyNamespace(key, i)}}}
}

func medianPlan(b *testing.B, s *planner.Snapshot, gang state.Gang) time.Duration {
	policy := state.DefaultPolicy(state.AtomicScaleUp)
	took := make([]time.Duration, 0, 1000)
	for range max(b.N, 3) {
		start := time.Now()
		if v := planner.Plan(s, gang, policy); v.Outcome != planner.Launch {
			b.Fatalf("plan is %s: %s", v.Outcome, v.Message())
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// anyNamespace is the i-th of terms about pods of all namespaces, each by labels of its own.
func anyNamespace(key string, i int) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		TopologyKey: key, NamespaceSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"rev"},
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: fmt.Sprintf("absent-%d", i), Operator: metav1.LabelSelectorOpDoesNotExist},
		}},
	}
}

// populated is the crowded cluster, racks of 16 nodes, where each of many pods runs on the next node of a zone in which the gang
// does not have to be.
func populated(nodes, groups, many int, affinity func(i int) *corev1.Affinity) *planner.Snapshot {
	s := crowded(nodes, groups)
	for i := range nodes {
		n := *s.Nodes.Find(fmt.Sprintf("node-%06d", i))
		n.Labels["rack"] = fmt.Sprintf("rack-%d", i/16)
		if n.Labels[corev1.LabelTopologyZone] == "zone-2" && i >= 16 && many > 0 {
			many--
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Labels: map[string]string{"rev": fmt.Sprint(i)}}}
			pod.Spec.Affinity = affinity(i)
			n.Running = []*fit.Running{fit.ReadRunning(pod)}
		}
		s.Nodes.Set(&n)
	}
	return s
}
