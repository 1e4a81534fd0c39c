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

// BenchmarkNeighbours plans the gang of BenchmarkPlan on 5,000 nodes with pods of other users that have affinity or anti-affinity, and
// gangs with demanding terms of their own. It reports the ratio to a plan without them, measured by turns. Seen on 2 cores of a busy AMD
// EPYC, compared with 0.2 ms: 1 to 2 where 1,000 pods have affinity or anti-affinity to other pods; 1 to 3 where one pod repels the gang,
// and also where 1,000 pods in one zone do; 17 to 20 where 1,000 pods do so by terms of their own from as many nodes (3 µs for each); 35
// to 90 where pods of the gang have terms, so that they are placed one by one; 10 to 30 where they select on a label with a different
// value on each node, or by 100 terms of 100 values; 1 with 5,000 tolerations.
func BenchmarkNeighbours(b *testing.B) {
	const many = 1000
	plain := crowded(populatedNodes, populatedGroups)
	measure := func(name string, s *planner.Snapshot, gang state.Gang) {
		b.Run(name, func(b *testing.B) {
			var without, with []time.Duration
			for range b.N {
				without = append(without, timePlan(b, plain, gangOf64()))
				with = append(with, timePlan(b, s, gang))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(median(with).Microseconds()), "µs/plan")
			b.ReportMetric(float64(median(with))/float64(median(without)), "times")
		})
	}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone, "rack"} {
		toAll := func(i int) *corev1.Affinity { return repels(key, i) }
		toOthers := func(i int) *corev1.Affinity {
			a := repels(key, i)
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{"app": "other"}
			return a
		}
		measure("one-repels/"+key, populated(1, toAll), gangOf64())
		measure("many-repel/"+key, populated(many, toAll), gangOf64())
		measure("many-repel-others/"+key, populated(many, toOthers), gangOf64())
		measure("many-attract/"+key, populated(many, func(i int) *corev1.Affinity { return attracts(key, i) }), gangOf64())
	}
	own := func(name string, change func(*corev1.PodTemplateSpec)) {
		gang := gangOf64()
		gang.PodSets[2].Template.Labels = map[string]string{"rev": "0"}
		change(gang.PodSets[2].Template)
		measure("own-"+name, populated(0, nil), gang)
	}
	own("attract/hostname", func(t *corev1.PodTemplateSpec) { t.Spec.Affinity = attracts(corev1.LabelHostname, 0) })
	own("attract/zone", func(t *corev1.PodTemplateSpec) { t.Spec.Affinity = attracts(corev1.LabelTopologyZone, 0) })
	own("repel/hostname", func(t *corev1.PodTemplateSpec) { t.Spec.Affinity = repels(corev1.LabelHostname, 0) })
	own("ports", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} })
	own("spread/hostname", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, MaxSkew: 1,
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rev": "0"}}}}
	})
	own("node-affinity", func(t *corev1.PodTemplateSpec) {
		terms := &corev1.NodeSelector{}
		for i := range 100 {
			e := corev1.NodeSelectorRequirement{Key: fmt.Sprintf("label-%d", i%10), Operator: corev1.NodeSelectorOpNotIn}
			for k := range 100 {
				e.Values = append(e.Values, fmt.Sprintf("value-%d-%d", i, k))
			}
			absent := corev1.NodeSelectorRequirement{Key: "absent", Operator: corev1.NodeSelectorOpExists}
			if i == 99 {
				absent.Operator = corev1.NodeSelectorOpDoesNotExist
			}
			terms.NodeSelectorTerms = append(terms.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{e, absent}})
		}
		t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	})
	own("tolerations", func(t *corev1.PodTemplateSpec) {
		for i := range 5000 {
			tolerated := corev1.Toleration{Key: fmt.Sprintf("taint-%d", i), Operator: corev1.TolerationOpExists}
			t.Spec.Tolerations = append(t.Spec.Tolerations, tolerated)
		}
	})
	own("serial", func(t *corev1.PodTemplateSpec) {
		not := corev1.NodeSelectorRequirement{Key: "serial", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"x"}}
		terms := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{not}}}}
		t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	})
}

func repels(key string, i int) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{anyNamespace(key, i)}}}
}

func attracts(key string, i int) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{anyNamespace(key, i)}}}
}

func timePlan(b *testing.B, s *planner.Snapshot, gang state.Gang) time.Duration {
	start := time.Now()
	if v := planner.Plan(s, gang, state.DefaultPolicy(state.AtomicScaleUp)); v.Outcome != planner.Launch {
		b.Fatalf("plan is %s: %s", v.Outcome, v.Message())
	}
	return time.Since(start)
}

func median(took []time.Duration) time.Duration {
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

const populatedNodes, populatedGroups = 5000, 200

// populated is the crowded cluster, racks of 16 nodes, where each of many pods runs on the next node of a zone in which the gang
// does not have to be.
func populated(many int, affinity func(i int) *corev1.Affinity) *planner.Snapshot {
	s := crowded(populatedNodes, populatedGroups)
	for i := range populatedNodes {
		n := *s.Nodes.Find(fmt.Sprintf("node-%06d", i))
		n.Labels["rack"], n.Labels["serial"] = fmt.Sprintf("rack-%d", i/16), fmt.Sprint(i)
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
