package dispatch

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// Kept returns the labels or annotations of a manager's object that its copy gets, too. Muster's own describe the manager's object alone,
// and the priority class may have another value in the worker or not exist there.
func Kept(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return strings.HasPrefix(key, "muster.dev/") || key == workload.JobUIDLabel || key == workload.PriorityClassLabel ||
			key == corev1.LastAppliedConfigAnnotation
	})
	if out == nil {
		out = map[string]string{}
	}
	return out
}
