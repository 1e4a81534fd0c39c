package kinds

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// TestEveryOperatorsJobsAreEvictedByPriority: a job of a higher one gets its machines first, then all pods of the other go, and come
// again on other machines once there is quota.
func TestEveryOperatorsJobsAreEvictedByPriority(t *testing.T) {
	for _, x := range []story{
		{operator: "jobset", file: "jobset.yaml", kind: "JobSet"},
		{operator: "trainer", file: "trainjob.yaml", kind: "TrainJob"},
		{operator: "mpi", file: "mpijob.yaml", kind: "MPIJob"},
		{operator: "kubeflow", file: "pytorchjob.yaml", kind: "PyTorchJob"},
		{operator: "ray", file: "raycluster.yaml", kind: "RayCluster"},
		{operator: "appwrapper", file: "appwrapper.yaml", kind: "AppWrapper"},
		{operator: "spark", file: "sparkapplication.yaml", kind: "SparkApplication"},
		{operator: "lws", file: "leaderworkerset.yaml", kind: "LeaderWorkerSet"},
	} {
		t.Run(x.kind, func(t *testing.T) {
			t.Parallel()
			testbed.NeedOperators(t, x.operator)
			x.runFor = "1h"
			x.yields(&site{testbed.NewSite(t, shared)})
		})
	}
}

// rivalPods are the pods of the job of a higher priority. Each needs a whole machine. Together with those of a sample they need no more
// machines than the group of the site has.
const rivalPods = 4

// yields has a sample run, and makes room for a job of a higher priority.
func (x story) yields(s *site) {
	s.queue()
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Value: 1000}
	s.Create(class)
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/resourceGroups/0/flavors/1/resources/2/nominalQuota", "value": %d},
		{"op": "add", "path": "/spec/preemption", "value": {"withinClusterQueue": "LowerPriority"}}]`, 8*rivalPods)
	if err := s.Kube.Patch(s.Context(), queue, client.RawPatch("application/json-patch+json", patch)); err != nil {
		s.Fatal(err)
	}
	job := x.create(s)
	state := func() string {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		out := fmt.Sprint("pods ", s.pods(), "; status ", job.Object["status"])
		for i := range list.Items {
			out += fmt.Sprintf("; %s %v", list.Items[i].Name, list.Items[i].Status.Conditions)
		}
		return out
	}
	until := func(wish string, holds func() bool) { s.Helper(); s.Within(patience, wish, holds, state) }
	// own are the pods of the sample that may have a machine.
	own := func() (out []string) {
		for _, pod := range s.pods(corev1.PodPending, corev1.PodRunning) {
			if !strings.HasPrefix(pod, "rival-") {
				out = append(out, pod)
			}
		}
		return out
	}
	runs := func() bool {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		sum := int32(0)
		for i := range list.Items {
			for _, p := range list.Items[i].Spec.PodSets {
				sum += p.Count
			}
		}
		return sum > 0 && len(s.pods(corev1.PodRunning)) == int(sum)
	}
	until("all pods run", runs)
	rival := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "rival"}}
	rival.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "two-groups", "kueue.x-k8s.io/priority-class": class.Name}
	rival.Spec.Parallelism, rival.Spec.Completions = new(int32(rivalPods)), new(int32(rivalPods))
	rival.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": "1h"}
	rival.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	rival.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: testbed.WholeMachine()}}
	s.Create(rival)
	until("it makes room, by its priority", func() bool {
		var list kueue.WorkloadList
		s.List(&list, client.InNamespace(s.Name))
		preempted := 0
		for i := range list.Items {
			c := meta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.WorkloadEvicted)
			if c != nil && c.Reason == kueue.WorkloadEvictedByPreemption && list.Items[i].Status.Admission == nil {
				preempted++
			}
		}
		return s.Get(rival) && rival.Status.Ready != nil && *rival.Status.Ready == rivalPods &&
			preempted == len(list.Items)-1 && x.isHeld(s, own())
	})
	s.Delete(rival, client.PropagationPolicy(metav1.DeletePropagationForeground))
	until("all of its pods run again", runs)
	s.Delete(job, client.PropagationPolicy(metav1.DeletePropagationForeground))
	until("nothing is left", func() bool { return len(s.pods()) == 0 && len(s.Left(s.Name+"-cpu"))+len(s.Left(s.Name+"-gpu")) == 0 })
}

// isHeld reports whether none of the pods of a job runs. Those of a LeaderWorkerSet are there, behind their gates.
func (x story) isHeld(s *site, pods []string) bool {
	if x.kind != "LeaderWorkerSet" {
		return len(pods) == 0
	}
	for _, pod := range pods {
		if strings.HasSuffix(pod, "(Running)") {
			return false
		}
	}
	return len(s.nodes()) == rivalPods
}
