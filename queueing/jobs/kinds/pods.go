package kinds

import (
	_ "embed"
	"fmt"
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

// PodAlone reports in CEL whether a pod queues by itself: no start has marked it. A mark of Kueue's counts on what a queued job
// makes; on others it is of a group of pods.
func (w writer) PodAlone(pod string) string {
	return fmt.Sprintf(`!('kueue.x-k8s.io/job-uid' in %[1]s.metadata.?labels.orValue({})) &&
        !('kueue.x-k8s.io/podset' in %[1]s.metadata.?labels.orValue({}) && %[2]s)`, pod, w.ofWhole(pod))
}

// PodGuarded reports in CEL whether the pod of a request, or what it was, is one that only Muster lets run. Where no policy gates
// pods, those of Jobs are created all the same.
func (w writer) PodGuarded() string {
	return `[object, oldObject].exists(o, o != null && ` + w.PodAlone("o") + `) &&
        !(request.operation == 'CREATE' && ` + w.ofWhole("object") + `)`
}

// ofWhole reports in CEL whether something controls a pod that queues with all that it makes.
func (w writer) ofWhole(pod string) string {
	whole := slices.Sorted(slices.Values(append([]string{"batch/Job"}, w.owners()...)))
	return pod + `.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) &&
        r.apiVersion.split('/')[0] + '/' + r.kind in ` + list(whole) + ")"
}

// Submitted reports in CEL whether a user submits the object of a request: it is neither part of what queues as a whole nor a pod
// that a controller creates.
func (w writer) Submitted() string {
	return `request.kind.kind == 'Pod' ? !object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)) :
        (` + w.NotPart() + ")"
}

// Write is the patch of a key of a field of metadata, with what is missing above it.
func (writer) Write(metadata, field, key, value string) string {
	return patch(append(strings.Split(metadata, "/"), field, key), value)
}
