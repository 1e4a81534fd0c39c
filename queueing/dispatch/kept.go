package dispatch

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/queueing/workload"
)

// Kept are the labels or annotations of an object of the manager that its copy has, too: what Muster keeps on its own objects is not true
// of the copy, and the class of its priority may have another value there, or be missing.
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
