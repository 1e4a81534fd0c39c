package kinds

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/testbed"
)

// failure is a job whose operator restarts it once, and what fails it.
type failure struct {
	story
	// pod is a part of the name of the pod that fails.
	pod string
	// again and last are the exit codes of a failure that is retried, and of one that ends the job. A job that has no last one is deleted.
	again, last int32
	// moves: the operator deletes all pods and waits before it makes new ones, and machines are idle for too long meanwhile.
	moves bool
}

var failures = []failure{
	{pod: "workers", again: 1, last: 1, story: story{operator: "jobset", file: "jobset.yaml", kind: "JobSet",
		change: func(spec map[string]any) {
			spec["failurePolicy"] = map[string]any{"maxRestarts": int64(1)}
			for _, r := range spec["replicatedJobs"].([]any) {
				set(r, int64(0), "template", "spec", "backoffLimit")
			}
		}}},
	{pod: "node", again: 1, story: story{operator: "trainer", file: "trainjob.yaml", kind: "TrainJob"}},
	{pod: "launcher", again: 1, last: 1, story: story{operator: "mpi", file: "mpijob.yaml", kind: "MPIJob",
		change: func(spec map[string]any) { set(spec, int64(1), "runPolicy", "backoffLimit") }}},
	{pod: "worker-1", again: 137, last: 1, story: story{operator: "kubeflow", file: "pytorchjob.yaml", kind: "PyTorchJob",
		change: func(spec map[string]any) { byExitCode(spec, "pytorchReplicaSpecs") }}},
	{pod: "master", again: 137, last: 1, story: story{operator: "kubeflow", file: "xgboostjob.yaml", kind: "XGBoostJob",
		change: func(spec map[string]any) { byExitCode(spec, "xgbReplicaSpecs") }}},
	{pod: "worker-0", again: 137, last: 1, story: story{operator: "kubeflow", file: "tfjob.yaml", kind: "TFJob",
		change: func(spec map[string]any) { byExitCode(spec, "tfReplicaSpecs") }}},
	{pod: "worker-0", again: 137, last: 1, story: story{operator: "kubeflow", file: "jaxjob.yaml", kind: "JAXJob",
		change: func(spec map[string]any) { byExitCode(spec, "jaxReplicaSpecs") }}},
	{pod: "worker-0", again: 137, last: 1, story: story{operator: "kubeflow", file: "paddlejob.yaml", kind: "PaddleJob",
		change: func(spec map[string]any) { byExitCode(spec, "paddleReplicaSpecs") }}},
	{pod: "gpu-worker", again: 1, story: story{operator: "ray", file: "raycluster.yaml", kind: "RayCluster"}},
	{pod: "head", again: 1, story: story{operator: "ray", file: "raycluster.yaml", kind: "RayCluster"}},
	{pod: "gpu-worker", again: 1, story: story{operator: "ray", file: "rayservice.yaml", kind: "RayService"}},
	{pod: "driver", again: 1, last: 1, story: story{operator: "spark", file: "sparkapplication.yaml", kind: "SparkApplication",
		change: func(spec map[string]any) {
			spec["restartPolicy"] = map[string]any{"type": "OnFailure", "onFailureRetries": int64(1), "onFailureRetryInterval": int64(1)}
		}}},
	{pod: "wrapped", again: 1, moves: true, story: story{operator: "appwrapper", file: "appwrapper.yaml", kind: "AppWrapper",
		change: func(spec map[string]any) {
			c := spec["components"].([]any)[0]
			set(c, int64(1), "template", "spec", "backoffLimit")
		}}},
}

// set sets a field of an object that was decoded.
func set(in any, value any, fields ...string) {
	if err := unstructured.SetNestedField(in.(map[string]any), value, fields...); err != nil {
		panic(err)
	}
}

// byExitCode restarts replicas of the training operator by the exit codes of their containers: from 128 on they are retried.
func byExitCode(spec map[string]any, field string) {
	for _, r := range spec[field].(map[string]any) {
		set(r, "ExitCode", "restartPolicy")
	}
}

// TestEveryOperatorRestartsWithinItsQuota fails a pod of a job that its operator restarts, and once more if that ends the job. The job
// keeps its quota and machines in between, launches no more, and has none once it has failed.
func TestEveryOperatorRestartsWithinItsQuota(t *testing.T) {
	for _, f := range failures {
		t.Run(f.kind+"/"+f.pod, func(t *testing.T) {
			t.Parallel()
			testbed.NeedOperators(t, f.operator)
			f.runFor = "1h"
			f.run(&site{testbed.NewSite(t, shared)})
		})
	}
}

func (f failure) run(s *site) {
	s.queue()
	job := f.create(s)
	until := func(wish string, holds func() bool) { s.Helper(); f.until(s, job, wish, holds) }
	sum := 0
	until("all pods run", func() bool {
		w := f.workload(s, job)
		if w == nil || w.Status.Admission == nil {
			return false
		}
		sum = 0
		for i := range w.Spec.PodSets {
			sum += int(w.Spec.PodSets[i].Count)
		}
		return len(s.pods(corev1.PodRunning)) == sum
	})
	first, machines := f.workload(s, job), s.machines()

	failed := s.fail(f.pod, f.again)
	until("the failed pod is replaced, and all run", func() bool {
		var list corev1.PodList
		s.List(&list, client.InNamespace(s.Name))
		return len(s.pods(corev1.PodRunning)) == sum && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
			return p.UID == failed && p.Status.Phase == corev1.PodRunning
		})
	})
	w := f.workload(s, job)
	if w.UID != first.UID || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted) {
		s.Errorf("it was queued again: %s", f.state(s, job))
	}
	if again := s.machines(); !f.moves && !slices.Equal(machines, again) {
		s.Errorf("it had the machines %v, and has %v", machines, again)
	}
	if f.last == 0 {
		s.Delete(job)
	} else {
		s.fail(f.pod, f.last)
		until("its Workload is finished as failed", func() bool {
			w := f.workload(s, job)
			c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
			return c != nil && c.Reason == kueue.WorkloadFinishedReasonFailed
		})
	}
	until("nothing runs, and its machines are terminated", func() bool {
		return len(s.pods(corev1.PodPending, corev1.PodRunning))+len(s.machines()) == 0
	})
}

// machines are the nodes of the site.
func (s *site) machines() []string {
	return slices.Sorted(slices.Values(append(s.Left(s.Name+"-cpu"), s.Left(s.Name+"-gpu")...)))
}

// fail ends a running pod as the kubelet does when a container has ended with that exit code.
func (s *site) fail(part string, code int32) types.UID {
	s.Helper()
	var list corev1.PodList
	s.List(&list, client.InNamespace(s.Name))
	i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && strings.Contains(p.Name, part)
	})
	if i < 0 {
		s.Fatalf("none of %v is named so: %s", s.pods(corev1.PodRunning), part)
	}
	p := &list.Items[i]
	s.EndPod(p, code)
	return p.UID
}
