package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// IsKept reports whether the node has an annotation of cluster-autoscaler or Karpenter against scale-down that Muster has not set.
func IsKept(o *corev1.Node) bool {
	_, ours := o.Annotations[v1alpha1.KeptAnnotation]
	return o.Annotations[v1alpha1.ScaleDownDisabledAnnotation] == "true" && !ours ||
		o.Annotations["karpenter.sh/do-not-disrupt"] == "true"
}

// IsReady reports whether the node is Ready and stays.
func IsReady(o *corev1.Node) bool {
	c := readyCondition(o)
	return o.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue
}

// UnreadySince is when the node's Ready condition was lost; zero while it is true.
func UnreadySince(o *corev1.Node) time.Time {
	switch c := readyCondition(o); {
	case c == nil:
		return o.CreationTimestamp.Time
	case c.Status == corev1.ConditionTrue:
		return time.Time{}
	default:
		return c.LastTransitionTime.Time
	}
}

// ReadySince is when the node's Ready condition became true; zero while it is not.
func ReadySince(o *corev1.Node) time.Time {
	if c := readyCondition(o); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func readyCondition(o *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &o.Status.Conditions[i]
}

// bookedTaint is the taint that holds nodes instead of a cordon.
var bookedTaint = corev1.Taint{Key: v1alpha1.BookedTaint, Effect: corev1.TaintEffectNoSchedule}

// IsTainted reports whether a node is held by the taint of bookings.
func IsTainted(o *corev1.Node) bool {
	return slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&bookedTaint) })
}

// cordonTaint is the taint that the node lifecycle controller adds to a cordoned node. Adding it in the same write saves a write of that
// controller.
var cordonTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func isCordonTaint(t corev1.Taint) bool { return t.MatchTaint(&cordonTaint) }

// MakeUnschedulable cordons a node.
func MakeUnschedulable(o *corev1.Node) {
	o.Spec.Unschedulable = true
	if !slices.ContainsFunc(o.Spec.Taints, isCordonTaint) {
		o.Spec.Taints = append(o.Spec.Taints, cordonTaint)
	}
}

// MakeSchedulable takes a cordon off a node.
func MakeSchedulable(o *corev1.Node) {
	o.Spec.Unschedulable = false
	o.Spec.Taints = slices.DeleteFunc(o.Spec.Taints, isCordonTaint)
}

// Taint puts the taint of bookings on a node, and takes its cordon off.
func Taint(o *corev1.Node) {
	MakeSchedulable(o)
	if !IsTainted(o) {
		o.Spec.Taints = append(o.Spec.Taints, bookedTaint)
	}
}

// Untaint takes the taint of bookings off a node.
func Untaint(o *corev1.Node) {
	o.Spec.Taints = slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&bookedTaint) })
}

// CordonOf returns whether a node is cordoned, or held by the taint of bookings, and on whose behalf.
func CordonOf(o *corev1.Node) Cordon {
	switch tainted := IsTainted(o); {
	case tainted && o.Spec.Unschedulable:
		return Foreign // that which others have put beside it
	case tainted:
		return Held
	case !o.Spec.Unschedulable:
		return Open
	}
	if o.Annotations[v1alpha1.RebootAnnotation] != "" {
		return Foreign // kured has found it cordoned, and counts on that
	}
	switch o.Annotations[v1alpha1.CordonedAnnotation] {
	case v1alpha1.CordonJoining:
		return Joining
	case v1alpha1.CordonBooked, v1alpha1.CordonIdle:
		return Held
	case v1alpha1.CordonScalingDown:
		return ScalingDown
	default:
		return Foreign
	}
}

// OffersFewerDevices reports whether a version of a node has less of some extended resource
// than the one before: its device plugin or its kubelet restarts, or devices have failed.
func OffersFewerDevices(o, before *corev1.Node) bool {
	for name, amount := range before.Status.Allocatable {
		if left := o.Status.Allocatable[name]; nodegroups.Extended(name) && left.Cmp(amount) < 0 {
			return true
		}
	}
	return false
}
