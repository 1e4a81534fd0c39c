package workload

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Mismatch returns why pods of a spec cannot run on the nodes of a flavor; empty if they can. Constraints on labels
// that the flavor does not have are left to the scheduler.
func Mismatch(spec *corev1.PodSpec, flavor *kueue.ResourceFlavor) string {
	for i := range flavor.Spec.NodeTaints {
		taint := &flavor.Spec.NodeTaints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !tolerated(taint, spec.Tolerations) && !tolerated(taint, flavor.Spec.Tolerations) {
			return fmt.Sprintf("untolerated taint %s in flavor %s", taint.ToString(), flavor.Name)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: flavor.Spec.NodeLabels}}
	pod := &corev1.Pod{Spec: onlyKeys(spec, flavor.Spec.NodeLabels)}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil {
		return fmt.Sprintf("flavor %s: the pods' node affinity cannot be read: %v", flavor.Name, err)
	} else if !ok {
		return fmt.Sprintf("flavor %s doesn't match node affinity: its node labels do not match the pods' node selector or affinity", flavor.Name)
	}
	return ""
}

// tolerated reports whether the tolerations tolerate the taint. Lt and Gt tolerations compare numbers of real nodes and
// never match here.
func tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			return true
		case corev1.TolerationOpEqual, "":
			return t.Key != "" && t.Value == taint.Value
		}
		return false
	})
}

// onlyKeys reduces a spec to its constraints on the given node labels. The terms of an affinity are alternatives, so a
// term without any of the labels matches every flavor.
func onlyKeys(spec *corev1.PodSpec, keys map[string]string) corev1.PodSpec {
	out := corev1.PodSpec{NodeSelector: maps.Clone(spec.NodeSelector)}
	maps.DeleteFunc(out.NodeSelector, func(k, _ string) bool { _, ok := keys[k]; return !ok })
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return out
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return out
	}
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		kept := slices.Clone(term.MatchExpressions)
		kept = slices.DeleteFunc(kept, func(r corev1.NodeSelectorRequirement) bool { _, ok := keys[r.Key]; return !ok })
		if len(kept) == 0 {
			return out
		}
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: kept})
	}
	out.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	return out
}

// Contradiction returns a label for which two flavors of one podSet have different values; no node can have both.
func Contradiction(a, b *kueue.ResourceFlavor) (label string, found bool) {
	for _, k := range slices.Sorted(maps.Keys(a.Spec.NodeLabels)) {
		if v, ok := b.Spec.NodeLabels[k]; ok && v != a.Spec.NodeLabels[k] {
			return k, true
		}
	}
	return "", false
}

// TemplateOn returns a pod template with the node labels of flavors as node selector and with their tolerations. It
// shares the rest with the given template.
func TemplateOn(template *corev1.PodTemplateSpec, flavors []*kueue.ResourceFlavor) *corev1.PodTemplateSpec {
	out := *template
	out.Spec.NodeSelector = maps.Clone(template.Spec.NodeSelector)
	out.Spec.Tolerations = slices.Clone(template.Spec.Tolerations)
	for _, f := range flavors {
		if out.Spec.NodeSelector == nil && len(f.Spec.NodeLabels) > 0 {
			out.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(out.Spec.NodeSelector, f.Spec.NodeLabels)
		out.Spec.Tolerations = AddTolerations(out.Spec.Tolerations, f.Spec.Tolerations)
	}
	return &out
}

// ByRuntime returns a pod spec with what the API server adds from its RuntimeClass. It shares the rest with spec. The
// pod's own node selector takes precedence; the API server rejects a pod whose value differs.
func ByRuntime(spec *corev1.PodSpec, class *nodev1.RuntimeClass) *corev1.PodSpec {
	out := *spec
	if class.Overhead != nil && spec.Overhead == nil {
		out.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling != nil {
		out.NodeSelector = maps.Clone(class.Scheduling.NodeSelector)
		if out.NodeSelector == nil {
			out.NodeSelector = map[string]string{}
		}
		maps.Copy(out.NodeSelector, spec.NodeSelector)
		out.Tolerations = AddTolerations(slices.Clone(spec.Tolerations), class.Scheduling.Tolerations)
	}
	return &out
}

// AddTolerations appends missing tolerations.
func AddTolerations(list, more []corev1.Toleration) []corev1.Toleration {
	for _, t := range more {
		if !slices.ContainsFunc(list, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			list = append(list, t)
		}
	}
	return list
}
