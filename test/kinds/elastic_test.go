package kinds

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// TestAnElasticRayJobGrowsAndShrinks by its RayCluster, as Ray's autoscaler scales it: new workers are gated until there is quota and
// capacity for them, the admitted workers keep running, and shrinking releases both.
func TestAnElasticRayJobGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	testbed.NeedOperators(t, "ray")
	s := &site{testbed.NewSite(t, shared)}
	s.queue()
	x := story{file: "rayjob.yaml", kind: "RayJob", elastic: true, change: func(spec map[string]any) {
		group := spec["rayClusterSpec"].(map[string]any)["workerGroupSpecs"].([]any)[0].(map[string]any)
		group["minReplicas"], group["maxReplicas"] = int64(1), int64(20)
		// A pod that submits the job ends before it, and KubeRay then gives the job half a minute.
		spec["submissionMode"] = "HTTPMode"
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
	state := func() string {
		return fmt.Sprint(s.pods(), workloads(), s.Left(s.Name+"-gpu"), job.Object["status"])
	}
	until := func(wish string, holds func() bool) { s.Helper(); s.Within(patience, wish, holds, state) }
	run := func(pods int) func() bool {
		return func() bool {
			return len(s.pods(corev1.PodRunning)) == pods && len(s.pods(corev1.PodPending)) == 0 && len(workloads()) == 1
		}
	}
	scale := func(replicas int64) {
		t.Helper()
		s.Get(job)
		name, _, _ := unstructured.NestedString(job.Object, "status", "rayClusterName")
		cluster := &unstructured.Unstructured{}
		cluster.SetAPIVersion(job.GetAPIVersion())
		cluster.SetKind("RayCluster")
		cluster.SetNamespace(s.Name)
		cluster.SetName(name)
		patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": %d}]`, replicas)
		if err := s.Kube.Patch(t.Context(), cluster, client.RawPatch("application/json-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	until("all pods run", run(3))
	scale(4)
	until("two more workers run", run(5))
	scale(9)
	until("it is told that no quota is left for five more, and the others run on", func() bool {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		return len(s.pods(corev1.PodRunning)) == 5 && slices.ContainsFunc(list.Items, func(w kueue.Workload) bool {
			c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
			return c != nil && c.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota
		})
	})
	scale(1)
	until("one worker is left, with its quota and its machine", func() bool {
		return run(2)() && len(s.Left(s.Name+"-gpu")) == 2 // the machine and its node
	})
	s.Delete(job, client.PropagationPolicy("Foreground"))
	until("nothing is left", func() bool { return len(s.pods()) == 0 && len(workloads()) == 0 })
}
