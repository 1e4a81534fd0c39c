package kinds

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed pods.yaml.tmpl
var podPolicies string

// PodFrameworks are Kueue's names of the integrations of pods, and of what makes pods and cannot
// be suspended.
func PodFrameworks() []string {
	return []string{"pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"}
}

// PodPolicies returns the admission policies for pods that queue by themselves, and for what
// makes them and cannot be suspended, as YAML.
func PodPolicies(kinds []*Kind) ([]byte, error) {
	return execute("gated-pods.yaml", podPolicies, kinds)
}

// PodAlone reports in CEL whether the pod of a request queues by itself: nothing controls it
// that queues as a whole, and it is not of a job that has started.
func (w writer) PodAlone() string {
	whole := append([]string{"batch/Job"}, w.owners()...)
	return `!(has(object.metadata.labels) && 'kueue.x-k8s.io/job-uid' in object.metadata.labels) &&
        (!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller &&
        o.apiVersion.split('/')[0] + '/' + o.kind in ` + list(slices.Sorted(slices.Values(whole))) + "))"
}

// Write is the patch of a key of a field of metadata, with what is missing above it.
func (writer) Write(metadata, field, key, value string) string {
	return patch(append(strings.Split(metadata, "/"), field, key), value)
}
