package kinds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// TestWorkersThatAreAddedToARayJobWait behind a gate, as Ray's autoscaler adds them to its RayCluster: in a queue with admission checks
// for good, and it is told. Those that the job was admitted with run on.
func TestWorkersThatAreAddedToARayJobWait(t *testing.T) {
	t.Parallel()
	testbed.NeedOperators(t, "ray")
	s := &site{testbed.NewSite(t, shared)}
	s.queue()
	x := story{file: "rayjob.yaml", kind: "RayJob", elastic: true, change: func(spec map[string]any) {
		group := spec["rayClusterSpec"].(map[string]any)["workerGroupSpecs"].([]any)[0].(map[string]any)
		group["minReplicas"], group["maxReplicas"] = int64(1), int64(4)
	}}
	job := x.create(s)
	workloads := func() (out []string) {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		for i := range list.Items {
			w := &list.Items[i]
			if !isFinished(w.Status.Conditions) {
				out = append(out, fmt.Sprintf("%s admitted=%v reclaimable=%v", podSets(w), w.Status.Admission != nil, w.Status.ReclaimablePods))
			}
		}
		slices.Sort(out)
		return out
	}
	state := func() string { return fmt.Sprint(s.pods(), workloads(), job.Object["status"]) }
	until := func(wish string, holds func() bool) { s.Helper(); s.Within(patience, wish, holds, state) }
	until("all pods run, the submitter last", func() bool {
		return len(s.pods(corev1.PodRunning)) == 4 && len(s.pods(corev1.PodPending)) == 0 && len(workloads()) == 1
	})
	s.Get(job)
	name, _, _ := unstructured.NestedString(job.Object, "status", "rayClusterName")
	cluster := &unstructured.Unstructured{}
	cluster.SetAPIVersion(job.GetAPIVersion())
	cluster.SetKind("RayCluster")
	cluster.SetNamespace(s.Name)
	cluster.SetName(name)
	patch := []byte(`[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}]`)
	if err := s.Kube.Patch(t.Context(), cluster, client.RawPatch("application/json-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	until("it is told that no more may run", func() bool {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		return len(s.pods(corev1.PodRunning)) == 4 && slices.ContainsFunc(list.Items, func(w kueue.Workload) bool {
			c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			return c != nil && strings.Contains(c.Message, "jobs that grow in a queue with admission checks")
		})
	})
	s.Delete(job, client.PropagationPolicy("Foreground"))
	until("nothing is left", func() bool { return len(s.pods()) == 0 && len(workloads()) == 0 })
}
