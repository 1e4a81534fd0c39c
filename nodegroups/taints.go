package nodegroups

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// taintsSettle is how old a node is that lacks a taint for good: some are added only once it has registered.
	taintsSettle = 2 * time.Minute
	// taintsNoted is how often it is noted that nodes still keep them.
	taintsNoted = time.Hour
	// mostTaints bounds those that are remembered.
	mostTaints = 16
)

func sameTaint(a, b *corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

func hasTaint(list []corev1.Taint, t *corev1.Taint) bool {
	return slices.ContainsFunc(list, func(o corev1.Taint) bool { return sameTaint(&o, t) })
}

// KeptTaints are the taints that nodes of the group are known to keep though its template does not declare them, and when they were last
// seen. What was learned of another configuration of the group does not count.
func KeptTaints(ng *v1alpha1.NodeGroup, status *v1alpha1.NodeGroupStatus) (taints []corev1.Taint, seen metav1.Time) {
	s := status.Shape
	if s == nil || len(s.Taints) == 0 || s.TaintsSeen == nil || s.TemplateHash != templateHash(ng.Spec.Template) ||
		status.ConfigurationHash != "" && status.ConfigurationHash != ConfigurationHash(ng) {
		return nil, seen
	}
	return s.Taints, *s.TaintsSeen
}

// WithTaints returns the status of a group once nodes of its template were seen to keep these taints. The status that was given stays
// as it is.
func WithTaints(ng *v1alpha1.NodeGroup, status v1alpha1.NodeGroupStatus, taints []corev1.Taint, seen metav1.Time) v1alpha1.NodeGroupStatus {
	hash := templateHash(ng.Spec.Template)
	if len(taints) == 0 || status.Shape != nil && status.Shape.TemplateHash != hash {
		return status
	}
	next := &v1alpha1.LearnedShape{TemplateHash: hash}
	if status.Shape != nil {
		next = status.Shape.DeepCopy()
	}
	for i := range taints {
		if t := taints[i]; !hasTaint(next.Taints, &t) && !hasTaint(ng.Spec.Template.Taints, &t) && len(next.Taints) < mostTaints {
			t.TimeAdded = nil
			next.Taints = append(next.Taints, t)
		}
	}
	if at := seconds(seen); len(next.Taints) > 0 && (next.TaintsSeen == nil || at.After(next.TaintsSeen.Time)) {
		next.TaintsSeen = &at
	}
	if len(next.Taints) > 0 {
		status.Shape = next
	}
	return status
}

// reviewTaints drops those that a node of the group lacks, and all that were not seen for a day.
func reviewTaints(s *v1alpha1.LearnedShape, nodes []SeenNode, now time.Time) {
	kept := false
	s.Taints = slices.DeleteFunc(s.Taints, func(t corev1.Taint) bool {
		lacks := slices.ContainsFunc(nodes, func(n SeenNode) bool {
			return !now.Before(n.Registered.Add(taintsSettle)) && !hasTaint(n.Taints, &t)
		})
		kept = kept || slices.ContainsFunc(nodes, func(n SeenNode) bool { return hasTaint(n.Taints, &t) })
		return lacks
	})
	switch {
	case len(s.Taints) == 0 || s.TaintsSeen == nil:
		s.Taints, s.TaintsSeen = nil, nil
	case kept && !now.Before(s.TaintsSeen.Add(taintsNoted)):
		s.TaintsSeen = &metav1.Time{Time: now.Truncate(time.Second)}
	case !kept && !now.Before(s.TaintsSeen.Add(unseenFor)):
		s.Taints, s.TaintsSeen = nil, nil
	}
}

func taintsUndeclared(ng *v1alpha1.NodeGroup, s *v1alpha1.LearnedShape) (out []Difference) {
	if s == nil {
		return nil
	}
	for i := range s.Taints {
		if t := &s.Taints[i]; !hasTaint(ng.Spec.Template.Taints, t) {
			out = append(out, Difference{TaintsUndeclared, fmt.Sprintf(
				"nodes keep the taint %s, which spec.template does not declare: only pods that tolerate it are planned there; add it to "+
					"spec.template.taints, or to spec.template.startupTaints if something removes it", t.ToString())})
		}
	}
	return out
}
