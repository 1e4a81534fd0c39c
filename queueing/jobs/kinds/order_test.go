package kinds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/queueing/jobs"
)

// TestOrder: which pods an operator creates only after others.
func TestOrder(t *testing.T) {
	replicated := func(more ...string) string {
		var out []string
		for i, m := range more {
			out = append(out, fmt.Sprintf("{name: %c, %s template: {spec: {template: %s}}}", 'a'+i, m, oneContainer))
		}
		return "replicatedJobs: [" + strings.Join(out, ", ") + "]"
	}
	const set, ray = `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {`, `{headGroupSpec: {template: ` + oneContainer + `},
		workerGroupSpecs: [{groupName: GPU, replicas: 1, template: ` + oneContainer + `}]}`
	const mpi = `mpiReplicaSpecs: {Launcher: {template: ` + oneContainer + `}, Worker: {template: ` + oneContainer + `}}}}`
	for name, c := range map[string]struct{ object, want string }{
		"JobSet": {set + replicated("", "") + `}}`, "first, first"},
		"JobSet InOrder": {set + `startupPolicy: {startupPolicyOrder: InOrder}, ` + replicated("", "", "") + `}}`,
			"first, after ready [a], after ready [b]"},
		"JobSet with dependsOn": {set + replicated("", "dependsOn: [{name: a, status: Complete}],",
			"dependsOn: [{name: b, status: Ready}],") + `}}`,
			"first, after complete [a], after ready [b]"},
		"MPIJob": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {` + mpi, "first, first"},
		"MPIJob, workers first": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {launcherCreationPolicy: WaitForWorkersReady, ` + mpi,
			"after ready [worker], first"},
		"RayJob": {`{apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: ` + ray + `}}`,
			"first, first, after ready [head gpu]"},
		"SparkApplication": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {driver: {}, executor: {}}}`,
			"first, after ready [driver]"},
		"AppWrapper, of unknown": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {components: [
			{podSets: [{path: template.spec.template}], template: {spec: {template: ` + oneContainer + `}}}]}}`, "unknown"},
	} {
		o := object(t, c.object)
		var got []string
		for _, after := range kindOf(t, o).(jobs.Ordered).Order(o) {
			switch {
			case after == nil:
				got = append(got, "unknown")
			case len(after.Ready) > 0:
				got = append(got, fmt.Sprintf("after ready %v", after.Ready))
			case len(after.Complete) > 0:
				got = append(got, fmt.Sprintf("after complete %v", after.Complete))
			default:
				got = append(got, "first")
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}
