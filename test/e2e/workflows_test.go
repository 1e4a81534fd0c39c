package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

// Pods as the controllers of Argo Workflows and of Tekton make them: what these add, they and their
// labels, stands beside what the user wrote.
const (
	argoPod = `
metadata:
  name: train-and-score-train-1846341
  labels: {workflows.argoproj.io/completed: "false", workflows.argoproj.io/workflow: train-and-score}
  annotations: {workflows.argoproj.io/node-id: train-and-score-1846341, workflows.argoproj.io/node-name: "train-and-score[0].train", kubectl.kubernetes.io/default-container: main}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Workflow, name: train-and-score, uid: f2d4ac34-1495-48ba-8aab-25239880fef3, controller: true, blockOwnerDeletion: true}]
spec:
  restartPolicy: Never
  initContainers: [{name: init, image: argoexec, command: [argoexec, init], resources: {requests: {cpu: 100m}}}]
  containers:
  - {name: wait, image: argoexec, command: [argoexec, wait], resources: {requests: {cpu: 100m}}}
  - {name: main, image: train, resources: {requests: {cpu: "5"}}}
`
	tektonPod = `
metadata:
  name: build-and-test-build-pod
  labels: {app.kubernetes.io/managed-by: tekton-pipelines, tekton.dev/memberOf: tasks, tekton.dev/pipeline: build-and-test,
    tekton.dev/pipelineRun: build-and-test, tekton.dev/pipelineTask: build, tekton.dev/taskRun: build-and-test-build}
  annotations: {tekton.dev/ready: READY}
  ownerReferences: [{apiVersion: tekton.dev/v1, kind: TaskRun, name: build-and-test-build, uid: 1c1a9f0d-2b0c-4b4b-9a57-1f3f3a1d8f11, controller: true, blockOwnerDeletion: true}]
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 5400
  initContainers:
  - {name: prepare, image: entrypoint}
  - {name: place-scripts, image: shell}
  containers:
  - {name: step-build, image: golang, resources: {requests: {cpu: "3"}}}
  - {name: sidecar-cache, image: cache, resources: {requests: {cpu: 500m}}}
`
)

// TestPodsOfWorkflowsAndPipelines queue one by one, each for all of its containers.
func TestPodsOfWorkflowsAndPipelines(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.Name)
	for _, text := range []string{argoPod, tektonPod} {
		p := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		p.Namespace, p.Labels["kueue.x-k8s.io/queue-name"] = s.Name, s.Name
		p.Annotations["kwok.muster.dev/run-for"] = "2s"
		s.Create(p)
		if !isGatedPod(p) {
			t.Errorf("%s is created without the gate: %v", p.Name, p.Spec.SchedulingGates)
		}
	}
	// The queue has 8 CPUs, and they request 5.1 and 3.5.
	s.Eventually("one waits while the other runs, and both end", func() bool {
		pods := s.pods()
		return pods["train-and-score-train-1846341"] == "Succeeded" && pods["build-and-test-build-pod"] == "Succeeded"
	}, func() string { return fmt.Sprint(s.pods(), s.workloads()) })
	var list kueue.WorkloadList
	s.Eventually("their Workloads are finished", func() bool {
		s.List(&list, client.InNamespace(s.Name))
		return !slices.ContainsFunc(list.Items, func(w kueue.Workload) bool {
			return !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
		})
	}, func() string { return fmt.Sprint(s.workloads()) })
	asked := map[string]string{}
	for i := range list.Items {
		w := &list.Items[i]
		name := strings.TrimPrefix(w.Name[:strings.LastIndex(w.Name, "-")], "pod-")
		for _, a := range w.Status.Admission.PodSetAssignments {
			asked[name] = a.ResourceUsage.Cpu().String()
		}
	}
	if asked["train-and-score-train-1846341"] != "5100m" || asked["build-and-test-build-pod"] != "3500m" || len(asked) != 2 {
		t.Errorf("their Workloads asked for %v", asked)
	}
}
