package fit

import corev1 "k8s.io/api/core/v1"

// Untolerated returns the first taint that keeps a pod of these tolerations off the
// node, or nil.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		t := &taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute || isCordon(t) {
			continue
		}
		if !tolerated(t, tolerations) {
			return t
		}
	}
	return nil
}

// isCordon: pods that use a booking get a toleration of exactly this taint.
func isCordon(t *corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
}

func tolerated(t *corev1.Taint, tolerations []corev1.Toleration) bool {
	for i := range tolerations {
		tol := &tolerations[i]
		if (tol.Effect == "" || tol.Effect == t.Effect) && (tol.Key == "" || tol.Key == t.Key) && toleratesValue(tol, t.Value) {
			return true
		}
	}
	return false
}

func toleratesValue(tol *corev1.Toleration, value string) bool {
	switch tol.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return tol.Value == value
	default:
		// Gt and Lt are behind a feature gate of the scheduler that is off by default.
		return false
	}
}
