package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/templates"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return out
}

func kindOf(t *testing.T, o *unstructured.Unstructured) jobs.Kind {
	t.Helper()
	for _, k := range All() {
		if k.GroupVersionKind() == o.GroupVersionKind() {
			return k
		}
	}
	t.Fatalf("no kind %s", o.GroupVersionKind())
	return nil
}

// said is what a kind reads of an object: name×count of its pod sets, or why it is refused.
func said(k jobs.Kind, o *unstructured.Unstructured) string {
	var out []string
	podSets, refusals := k.PodSets(o)
	for i := range podSets {
		text := fmt.Sprintf("%s×%d", podSets[i].Name, podSets[i].Count)
		for _, c := range podSets[i].Template.Spec.InitContainers {
			text += " after " + c.Name
		}
		for _, c := range podSets[i].Template.Spec.Containers[min(1, len(podSets[i].Template.Spec.Containers)):] {
			text += " with " + c.Name
		}
		if counted, ok := k.(jobs.Counted); ok {
			if c := counted.Counts(o)[i]; c.Needed != c.Requested {
				text += fmt.Sprintf(" (%d needed)", c.Needed)
			}
		}
		out = append(out, text)
	}
	if len(refusals) > 0 {
		return "refused: " + strings.Join(refusals, "; ")
	}
	switch outcome, message := k.Outcome(o); outcome {
	case jobs.Succeeded:
		out = append(out, "succeeded: "+message)
	case jobs.Failed:
		out = append(out, "failed: "+message)
	}
	if !k.IsSuspended(o) {
		out = append(out, "running")
	}
	return strings.Join(out, ", ")
}

// The pod templates of most cases, and one that names its container.
const oneContainer = `{spec: {containers: [{name: c, image: i}]}}`

// TestWhatAnOperatorAddsCountsForRequestedResources: a queue that covers no memory may have RayClusters whose pods request none.
func TestWhatAnOperatorAddsCountsForRequestedResources(t *testing.T) {
	for asked, want := range map[string]string{
		"":                                  "",
		"requests: {cpu: 1}":                "cpu=200m",
		"limits: {memory: 1Gi}":             "memory=256Mi",
		"requests: {cpu: 50m, memory: 1Gi}": "cpu=200m memory=256Mi",
	} {
		o := object(t, `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: `+oneContainer+`}, workerGroupSpecs: [
			{groupName: small, replicas: 1, template: {spec: {containers: [{name: c, image: i, resources: {`+asked+`}}]}}}]}}`)
		podSets, _ := kindOf(t, o).PodSets(o)
		added := podSets[1].Template.Spec.InitContainers[0].Resources.Requests
		var got []string
		for _, name := range slices.Sorted(maps.Keys(added)) {
			amount := added[name]
			got = append(got, fmt.Sprintf("%s=%s", name, amount.String()))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("pods that ask for {%s} have a container that asks for %q, want %q", asked, got, want)
		}
	}
}

// TestBuiltInKinds read pod sets as Kueue 0.19 does, with the counts of the operators.
func TestBuiltInKinds(t *testing.T) {
	const ray = `headGroupSpec: {template: ` + oneContainer + `}, workerGroupSpecs: [
		{groupName: Small, replicas: 2, minReplicas: 3, template: ` + oneContainer + `},
		{groupName: hosts, replicas: 9, maxReplicas: 4, numOfHosts: 2, template: ` + oneContainer + `},
		{groupName: last, replicas: 1, suspend: true, template: ` + oneContainer + `}]`
	const rayPods = "head×1, small×3 after wait-gcs-ready, hosts×8 after wait-gcs-ready, last×0 after wait-gcs-ready"
	for name, c := range map[string]struct{ object, want string }{
		"JobSet": {`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {suspend: true, replicatedJobs: [
			{name: Launcher, template: {spec: {template: ` + oneContainer + `}}},
			{name: workers, replicas: 4, template: {spec: {parallelism: 8, completions: 6, template: ` + oneContainer + `}}}]}}`,
			"launcher×1, workers×24"},
		"JobSet of which Jobs have succeeded": {`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [
			{name: workers, replicas: 4, template: {spec: {parallelism: 2, template: ` + oneContainer + `}}}]},
			status: {replicatedJobsStatus: [{name: workers, succeeded: 3}]}}`,
			"workers×8 (2 needed), running"},
		"JobSet that has completed": {`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [
			{name: w, template: {spec: {template: ` + oneContainer + `}}}]},
			status: {conditions: [{type: Suspended, status: "False"}, {type: Completed, status: "True", message: all is done}]}}`,
			"w×1, succeeded: all is done, running"},
		"JobSet without Jobs": {`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: []}}`,
			"refused: the JobSet has no pods; give it pod templates"},
		"PyTorchJob": {`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {runPolicy: {suspend: true}, pytorchReplicaSpecs: {
			Worker: {replicas: 3, template: ` + oneContainer + `}, Master: {template: ` + oneContainer + `}}}}`,
			"master×1, worker×3 after init-pytorch"},
		"PyTorchJob without a master": {`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {
			Worker: {replicas: 3, template: ` + oneContainer + `}}}, status: {conditions: [{type: Failed, status: "True", message: it broke}]}}`,
			"worker×3, failed: it broke, running"},
		"PyTorchJob that grows by itself": {`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {elasticPolicy: {metrics: []}, pytorchReplicaSpecs: {
			Worker: {template: ` + oneContainer + `}}}}`,
			"refused: spec.elasticPolicy.metrics has a HorizontalPodAutoscaler add workers for which there is no quota; remove it, and set " +
				"spec.pytorchReplicaSpecs.Worker.replicas to what the job needs"},
		"TFJob": {`{apiVersion: kubeflow.org/v1, kind: TFJob, spec: {tfReplicaSpecs: {Evaluator: {template: ` + oneContainer + `},
			PS: {replicas: 2, template: ` + oneContainer + `}, Chief: {template: ` + oneContainer + `}, Worker: {replicas: 4, template: ` + oneContainer + `}}}}`,
			"chief×1, ps×2, worker×4, evaluator×1, running"},
		"XGBoostJob": {`{apiVersion: kubeflow.org/v1, kind: XGBoostJob, spec: {xgbReplicaSpecs: {Master: {template: ` + oneContainer + `},
			Worker: {replicas: 2, template: ` + oneContainer + `}}}}`, "master×1, worker×2, running"},
		"PaddleJob": {`{apiVersion: kubeflow.org/v1, kind: PaddleJob, spec: {paddleReplicaSpecs: {
			Worker: {replicas: 2, template: ` + oneContainer + `}}}}`, "worker×2, running"},
		"JAXJob": {`{apiVersion: kubeflow.org/v1, kind: JAXJob, spec: {jaxReplicaSpecs: {
			Worker: {replicas: 2, template: ` + oneContainer + `}}}}`, "worker×2, running"},
		"MPIJob": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Worker: {replicas: 4, template: ` + oneContainer + `},
			Launcher: {template: ` + oneContainer + `}}}}`, "launcher×1, worker×4, running"},
		"MPIJob without workers": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Launcher: {template: ` + oneContainer + `}}}}`,
			"refused: spec.mpiReplicaSpecs has no Worker, and the mpi-operator runs no such job; add it"},
		"MPIJob whose workers are empty": {`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Launcher: {template: ` +
			oneContainer + `}, Worker: {}}}}`, "refused: the pods at spec.mpiReplicaSpecs.Worker cannot be read: there is no pod template at " +
			"template; correct the MPIJob"},
		"RayCluster": {`{apiVersion: ray.io/v1, kind: RayCluster, spec: {suspend: true, ` + ray + `}}`, rayPods},
		"RayCluster that scales itself": {`{apiVersion: ray.io/v1, kind: RayCluster, spec: {enableInTreeAutoscaling: true, headGroupSpec: {template: ` +
			oneContainer + `}}}`,
			"refused: spec.enableInTreeAutoscaling is true, so that Ray adds workers for which there is no quota; set the annotation " +
				`kueue.x-k8s.io/elastic-job to "true", so that they wait for it, or set the field to false`},
		"RayJob": {`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {shutdownAfterJobFinishes: true, rayClusterSpec: {` + ray + `}},
			status: {jobDeploymentStatus: Complete, jobStatus: STOPPED}}`, rayPods + ", submitter×1, failed: RayJob failed, running"},
		"RayJob that KubeRay refuses": {`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {shutdownAfterJobFinishes: true,
			rayClusterSpec: {headGroupSpec: {template: ` + oneContainer + `}}},
			status: {jobDeploymentStatus: ValidationFailed, message: no entrypoint}}`,
			"head×1, submitter×1, failed: no entrypoint, running"},
		"RayJob whose head has no container": {`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {shutdownAfterJobFinishes: true,
			rayClusterSpec: {headGroupSpec: {template: {spec: {containers: []}}}}}}`,
			"refused: the pod template at spec.rayClusterSpec.headGroupSpec.template has no containers, and the API server refuses such " +
				"pods; add one"},
		"SparkApplication whose submission is tried again": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: j},
			spec: {type: Scala, restartPolicy: {type: OnFailure}, driver: {memory: 1g, cores: 1}, executor: {memory: 1g, cores: 1, instances: 1}},
			status: {applicationState: {state: SUBMISSION_FAILED}}}`, "driver×1, executor×1, running"},
		"RayJob that submits from its head": {`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {submissionMode: SidecarMode,
			shutdownAfterJobFinishes: true, rayClusterSpec: {headGroupSpec: {template: ` + oneContainer + `}}}}`,
			"head×1 with ray-job-submitter, running"},
		"RayJob that keeps its cluster": {`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {
			rayClusterSpec: {headGroupSpec: {template: ` + oneContainer + `}}}}`,
			"refused: spec.shutdownAfterJobFinishes is not true, and KubeRay suspends only such jobs; set it to true"},
		"RayService": {`{apiVersion: ray.io/v1, kind: RayService, metadata: {name: j}, spec: {rayClusterConfig: {suspend: true, ` + ray + `}}}`, rayPods},
		"AppWrapper that says where its pods are": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: W}, spec: {suspend: true,
			components: [{podSets: [{path: "template.spec.groups[1].template", replicas: 3}], template: {spec: {groups: [{}, {template: ` + oneContainer + `}]}}},
			{podSets: [], template: {kind: Service}}, {podSets: [{path: template}], template: {kind: Pod, spec: {containers: [{name: c}]}}}]}}`,
			"w-0×3, w-1×1"},
		"AppWrapper whose controller says it": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{template: {kind: Job, spec: {template: ` + oneContainer + `}}}]}, status: {phase: Succeeded, componentStatus: [
			{podSets: [{path: template.spec.template, replicas: 2}]}]}}`, "w-0×2, succeeded: AppWrapper finished successfully, running"},
		"AppWrapper that nothing is known of": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{template: {kind: Job, spec: {template: ` + oneContainer + `}}}]}}`,
			"refused: the pods of spec.components[0] are not known yet: the AppWrapper's controller reports them in status.componentStatus; " +
				"see that it runs, or give the component podSets"},
		"AppWrapper with a wrong path": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{podSets: [{path: template.x}], template: {kind: Job}}]}}`,
			"refused: there is no pod template at spec.components[0].template.x; correct the path of its podSet"},
		// AppWrapper's own sample says 2 and 3.
		"AppWrapper that understates a LeaderWorkerSet": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{podSets: [{path: template.spec.leaderWorkerTemplate.leaderTemplate, replicas: 2},
			{path: template.spec.leaderWorkerTemplate.workerTemplate, replicas: 3}], template: {apiVersion: leaderworkerset.x-k8s.io/v1,
			kind: LeaderWorkerSet, spec: {replicas: 2, leaderWorkerTemplate: {size: 3, leaderTemplate: ` + oneContainer + `,
			workerTemplate: ` + oneContainer + `}}}}]}}`, "w-0×2, w-1×4, running"},
		"AppWrapper that keeps quiet about workers": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{podSets: [{path: template.spec.mpiReplicaSpecs.Launcher.template}], template: {apiVersion: kubeflow.org/v2beta1, kind: MPIJob,
			spec: {mpiReplicaSpecs: {Launcher: {template: ` + oneContainer + `}, Worker: {replicas: 8, template: ` + oneContainer + `}}}}}]}}`,
			"refused: spec.components[0].podSets lack the 8 pods that the MPIJob makes of template.spec.mpiReplicaSpecs.Worker.template; " +
				"add one with that path and replicas: 8"},
		"AppWrapper that says too much": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{podSets: [{path: template.spec.template, replicas: 5}], template: {apiVersion: apps/v1, kind: StatefulSet,
			spec: {replicas: 2, template: ` + oneContainer + `}}}]}}`, "w-0×5, running"},
		"AppWrapper whose controller understates Ray": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {
			components: [{template: {apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: {headGroupSpec: {template: ` + oneContainer + `},
			workerGroupSpecs: [{groupName: a, replicas: 1, minReplicas: 2, numOfHosts: 4, template: ` + oneContainer + `}]}}}},
			{template: {apiVersion: v1, kind: Pod, spec: {containers: [{name: c}]}}}]}, status: {componentStatus: [
			{podSets: [{path: template.spec.rayClusterSpec.headGroupSpec.template, replicas: 1},
			{path: "template.spec.rayClusterSpec.workerGroupSpecs[0].template", replicas: 1}]}, {podSets: [{path: template, replicas: 1}]}]}}`,
			"w-0×1, w-1×8 after wait-gcs-ready, w-2×1, w-3×1, running"},
		"SparkApplication": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {type: Scala, mode: cluster, driver: {}, executor: {}},
			status: {applicationState: {state: FAILED, errorMessage: no image}}}`, "driver×1, executor×2, failed: no image, running"},
		"SparkApplication that grows": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {driver: {}, executor: {},
			dynamicAllocation: {enabled: true}}}`,
			"refused: spec.dynamicAllocation.enabled is true, so that Spark adds executors for which there is no quota; set it to false, and " +
				"spec.executor.instances to what the application needs"},
		"SparkApplication that grows by a property": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {driver: {}, executor: {},
			sparkConf: {spark.dynamicAllocation.enabled: "true"}}}`,
			"refused: spark.dynamicAllocation.enabled in spec.sparkConf is true, so that Spark adds executors for which there is no quota; set it " +
				"to false, and spec.executor.instances to what the application needs"},
		"SparkApplication with a template of its own": {`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {driver: {}, executor: {},
			sparkConf: {spark.kubernetes.executor.podTemplateFile: /t.yaml}}}`,
			"refused: spec.sparkConf names a file with a pod template, which Muster cannot read; put the template into spec.driver.template or " +
				"spec.executor.template"},
		"TrainJob without its JobSet": {`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {suspend: true}}`,
			"refused: its pods are not known yet: Trainer makes a JobSet of its name; see that its controller runs, and that spec.runtimeRef " +
				"names a runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, c.object)
			if diff := cmp.Diff(c.want, said(kindOf(t, o), o)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestControllersAreNamedWhereOperatorsReadIt: a job of another cluster that its own operator takes for its own runs here, too.
func TestControllersAreNamedWhereOperatorsReadIt(t *testing.T) {
	want := map[string]string{
		"JobSet": "/spec/managedBy", "TrainJob": "/spec/managedBy", "AppWrapper": "/spec/managedBy",
		"RayCluster": "/spec/managedBy", "RayJob": "/spec/managedBy", "RayService": "/spec/managedBy",
		"PyTorchJob": "/spec/runPolicy/managedBy", "TFJob": "/spec/runPolicy/managedBy", "XGBoostJob": "/spec/runPolicy/managedBy",
		"PaddleJob": "/spec/runPolicy/managedBy", "JAXJob": "/spec/runPolicy/managedBy", "MPIJob": "/spec/runPolicy/managedBy",
		"SparkApplication": "",
	}
	got := map[string]string{}
	for _, k := range BuiltIn() {
		got[k.Kind] = ""
		if m := k.Stanza.ManagedBy; m != nil {
			got[k.Kind] = m.Path
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPodsAreNumbered by the labels that Kueue 0.19 reads of each kind.
func TestPodsAreNumbered(t *testing.T) {
	const completion, replica = "batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index"
	jobSet := func(replicas int32) *kueue.PodSetTopologyRequest {
		return &kueue.PodSetTopologyRequest{
			PodIndexLabel: new(completion), SubGroupIndexLabel: new("jobset.sigs.k8s.io/job-index"), SubGroupCount: &replicas,
		}
	}
	byReplica := &kueue.PodSetTopologyRequest{PodIndexLabel: new(replica)}
	for name, c := range map[string]struct {
		object string
		want   []*kueue.PodSetTopologyRequest
	}{
		"JobSet": {`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {suspend: true, replicatedJobs: [
			{name: a, template: {spec: {template: ` + oneContainer + `}}},
			{name: b, replicas: 4, template: {spec: {parallelism: 8, template: ` + oneContainer + `}}}]}}`,
			[]*kueue.PodSetTopologyRequest{jobSet(1), jobSet(4)}},
		"PyTorchJob": {samples["PyTorchJob"], []*kueue.PodSetTopologyRequest{byReplica, byReplica}},
		"MPIJob":     {samples["MPIJob"], []*kueue.PodSetTopologyRequest{byReplica, byReplica}},
		"RayJob":     {samples["RayJob"], []*kueue.PodSetTopologyRequest{nil, nil}},
		"AppWrapper": {`{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {components: [{
			template: {a: ` + oneContainer + `}}]}, status: {componentStatus: [{podSets: [{path: template.a, annotations: {
			workload.codeflare.dev.appwrapper/tas-pod-index-label: ` + completion + `,
			workload.codeflare.dev.appwrapper/tas-sub-group-index-label: jobset.sigs.k8s.io/job-index,
			workload.codeflare.dev.appwrapper/tas-sub-group-count: "3"}}]}]}}`,
			[]*kueue.PodSetTopologyRequest{jobSet(3)}},
	} {
		o := object(t, c.object)
		podSets, refusals := kindOf(t, o).PodSets(o)
		if len(refusals) > 0 {
			t.Errorf("%s is refused: %q", name, refusals)
		}
		var got []*kueue.PodSetTopologyRequest
		for i := range podSets {
			got = append(got, podSets[i].TopologyRequest)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	o := object(t, `{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w}, spec: {components: [{podSets: [{path: template.a,
		annotations: {workload.codeflare.dev.appwrapper/tas-sub-group-count: some}}], template: {a: `+oneContainer+`}}]}}`)
	if _, refusals := kindOf(t, o).PodSets(o); len(refusals) != 1 || !strings.Contains(refusals[0], `tas-sub-group-count is "some"`) {
		t.Errorf("a count of groups that is none: %q", refusals)
	}
}

// samples of each kind, as users write them: empty metadata, integers as quantities, and fields without a Go type.
var samples = map[string]string{
	"JobSet": `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j, uid: u}, spec: {suspend: true, unknown: {a: [1]}, replicatedJobs: [
		{name: a, template: {spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}}}},
		{name: c, template: {spec: {template: {metadata: {}, spec: {containers: [{name: c}]}}}}},
		{name: b, template: {spec: {template: {metadata: {labels: {app: x}}, spec: {nodeSelector: {disk: ssd}, tolerations: [{key: t, operator: Exists}],
			containers: [{name: c, newField: 7}]}}}}}]}}`,
	"PyTorchJob": `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, uid: u}, spec: {runPolicy: {suspend: true}, pytorchReplicaSpecs: {
		Master: {template: ` + oneContainer + `}, Worker: {replicas: 2, template: ` + oneContainer + `}}}}`,
	"MPIJob": `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: j, uid: u}, spec: {runPolicy: {suspend: true}, mpiReplicaSpecs: {
		Launcher: {template: ` + oneContainer + `}, Worker: {replicas: 2, template: ` + oneContainer + `}}}}`,
	"RayJob": `{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j, uid: u}, spec: {suspend: true, shutdownAfterJobFinishes: true,
		rayClusterSpec: {headGroupSpec: {template: ` + oneContainer + `}}}}`,
	"AppWrapper": `{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: w, uid: u}, spec: {suspend: true, components: [
		{podSets: [{path: template.a}, {path: template.b}], template: {a: ` + oneContainer + `, b: {spec: {tolerations: [{key: t}], containers: [{name: c}]}}}}]}}`,
	"SparkApplication": `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: s, uid: u}, spec: {suspend: true,
		driver: {cores: 2}, executor: {labels: {a: b}, memory: 4g, nodeSelector: {disk: ssd}}}}`,
	"RayService": `{apiVersion: ray.io/v1, kind: RayService, metadata: {name: j, uid: u}, spec: {rayClusterConfig: {suspend: true,
		headGroupSpec: {template: ` + oneContainer + `}}}}`,
}

// placements send the i-th pod set to a node pool of its own.
func placements(n int, attempt string) (out []templates.Placement) {
	for i := range n {
		out = append(out, templates.Placement{Updates: []kueue.PodSetUpdate{{
			NodeSelector: map[string]string{"booked/" + attempt: fmt.Sprint("pool-", i)},
			Tolerations:  []corev1.Toleration{{Key: "booked", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}},
			Annotations:  map[string]string{"request": attempt},
		}}, Labels: map[string]string{jobs.JobUIDLabel: "u"}})
	}
	return out
}

// TestStartAndRestore leave an object as it was, also after a second admission elsewhere, and
// lose nothing that a user has changed meanwhile.
func TestStartAndRestore(t *testing.T) {
	for name, text := range samples {
		t.Run(name, func(t *testing.T) {
			o := object(t, text)
			k := kindOf(t, o)
			podSets, refusals := k.PodSets(o)
			if len(refusals) > 0 {
				t.Fatal(refusals)
			}
			before := o.DeepCopy()
			for _, attempt := range []string{"first", "second"} {
				record, err := k.Start(o, placements(len(podSets), attempt))
				if err != nil {
					t.Fatal(err)
				}
				if k.IsSuspended(o) {
					t.Error("started, it is suspended")
				}
				started, _ := k.PodSets(o)
				for i := range started {
					want := podSets[i].Template.DeepCopy()
					if name == "AppWrapper" { // its controller adds to the templates what stands beside them
						infos, _ := pointer{"spec", "components", "0", "podSetInfos", strconv.Itoa(i), "nodeSelector"}.get(o.Object)
						started[i].Template.Spec.NodeSelector = map[string]string{"booked/" + attempt: fmt.Sprint(infos.(map[string]any)["booked/"+attempt])}
					}
					if got := started[i].Template.Spec.NodeSelector["booked/"+attempt]; got != fmt.Sprint("pool-", i) {
						t.Errorf("pod set %s goes to %q", started[i].Name, got)
					}
					if diff := cmp.Diff(want.Spec.Containers, started[i].Template.Spec.Containers); diff != "" {
						t.Errorf("the start changed containers (-want +got):\n%s", diff)
					}
				}
				saved, err := json.Marshal(record)
				if err != nil {
					t.Fatal(err)
				}
				k.Suspend(o)
				if !k.IsSuspended(o) {
					t.Error("suspended, it runs")
				}
				for i, text := range [][]byte{saved, saved, nil} { // only the first has anything to do
					if changed, err := k.Restore(o, text, podSets); err != nil || changed != (i == 0) {
						t.Fatalf("restoring it for the %d. time: changed %v, %v", i+1, changed, err)
					}
				}
				if diff := cmp.Diff(before.Object, o.Object); diff != "" {
					t.Fatalf("after the %s attempt (-want +got):\n%s", attempt, diff)
				}
			}
		})
	}
}

// TestATrainJob has the pods of its JobSet, patches the runtime for them, and is resolved only
// once its JobSet shows nothing of an earlier start.
func TestATrainJob(t *testing.T) {
	o := object(t, `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: j, uid: u}, spec: {suspend: true,
		newer: {field: 7}, runtimePatches: [{manager: kueue.x-k8s.io/manager}, {manager: example.com/other, trainingRuntimeSpec: {a: b}}]}}`)
	set := object(t, `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [
		{name: initializer, template: {spec: {template: `+oneContainer+`}}},
		{name: node, template: {spec: {parallelism: 2, template: {spec: {nodeSelector: {disk: ssd},
			tolerations: [{key: gpu, operator: Exists}], containers: [{name: c}]}}}}}]}}`)
	k := kindOf(t, o).(jobs.Resolver)
	if !k.Resolve(o, set) {
		t.Error("a JobSet of a TrainJob that never ran is not current")
	}
	if diff := cmp.Diff("initializer×1, node×2", said(k, o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	podSets, _ := k.PodSets(o)
	record, err := k.Start(o, placements(2, "first"))
	if err != nil {
		t.Fatal(err)
	}
	const entry = `{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [%s, %s]}}}}`
	const started = `{name: %s, template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/job-uid: u}, annotations: {request: first}},
		spec: {nodeSelector: {%s}, tolerations: [%s{key: booked, operator: Exists, tolerationSeconds: 300}]}}}}}`
	patches := func(a, b string) any {
		return object(t, fmt.Sprintf(`{kind: X, spec: {runtimePatches: [`+entry+`, {manager: example.com/other, trainingRuntimeSpec: {a: b}}]}}`,
			a, b)).Object["spec"].(map[string]any)["runtimePatches"]
	}
	if newer, _ := (pointer{"spec", "newer", "field"}).get(o.Object); newer != int64(7) {
		t.Errorf("the start has left %v of a field that it does not know", newer)
	}
	got, _ := pointer{"spec", "runtimePatches"}.get(o.Object)
	if diff := cmp.Diff(patches(fmt.Sprintf(started, "initializer", "booked/first: pool-0", ""),
		fmt.Sprintf(started, "node", "disk: ssd, booked/first: pool-1", "{key: gpu, operator: Exists}, ")), got); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
	saved, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	k.Suspend(o)
	for i, text := range [][]byte{saved, nil} {
		if changed, err := k.Restore(o, text, podSets); err != nil || changed != (i == 0) {
			t.Fatalf("restoring it for the %d. time: changed %v, %v", i+1, changed, err)
		}
	}
	const left = `{name: %[1]s, template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: %[1]s}}}}}}`
	got, _ = pointer{"spec", "runtimePatches"}.get(o.Object)
	if diff := cmp.Diff(patches(fmt.Sprintf(left, "initializer"), fmt.Sprintf(left, "node")), got); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	pointer{"spec", "replicatedJobs", "0", "template", "spec", "template", "metadata", "labels", jobs.JobUIDLabel}.set(set.Object, "u")
	if k.Resolve(o, set) {
		t.Error("a JobSet with the marks of a start is current")
	}
}

// TestSparkResources: they are those that Spark on Kubernetes requests.
func TestSparkResources(t *testing.T) {
	for name, c := range map[string]struct{ application, want string }{
		"defaults":         {`type: Scala, driver: {}, executor: {}`, "1: cpu 1, memory 1408Mi; 2: cpu 1, memory 1408Mi"},
		"of Python":        {`type: Python, driver: {memory: 4g}, executor: {cores: 8, memory: 10g}`, "1: cpu 1, memory 5734Mi; 2: cpu 8, memory 14Gi"},
		"with an overhead": {`driver: {memory: 512m, memoryOverhead: 1g, coreRequest: 500m, cores: 2}, executor: {memory: "2048"}`, "1: cpu 500m, memory 1536Mi; 2: cpu 1, memory 2432Mi"},
		"with a factor":    {`memoryOverheadFactor: "0.5", driver: {}, executor: {memory: 100g}`, "1: cpu 1, memory 1536Mi; 2: cpu 1, memory 150Gi"},
		"by sparkConf": {`sparkConf: {spark.driver.memory: 2g, spark.kubernetes.executor.request.cores: "3", spark.executor.pyspark.memory: 1g,
			spark.memory.offHeap.enabled: "TRUE", spark.memory.offHeap.size: 1g}, driver: {}, executor: {cores: 1, memory: 1g}`,
			"1: cpu 1, memory 2432Mi; 2: cpu 3, memory 3456Mi"},
		"by fields, which come after sparkConf": {`sparkConf: {spark.executor.instances: "1", spark.executor.memory: 512m, spark.executor.cores: "1",
			spark.kubernetes.driver.request.cores: "5", spark.driver.memoryOverhead: 1g}, driver: {coreRequest: "2", memoryOverhead: 2g},
			executor: {instances: 4, cores: 4, memory: 8g}`, "1: cpu 2, memory 3Gi; 4: cpu 4, memory 9011Mi"},
		"by properties of Spark's own alone": {`sparkConf: {spark.kubernetes.executor.instances: "1", spark.executor.request.cores: "1"}, driver: {},
			executor: {cores: 2}`, "1: cpu 1, memory 1408Mi; 2: cpu 2, memory 1408Mi"},
		"with a least overhead": {`sparkConf: {spark.driver.minMemoryOverhead: 1g}, driver: {}, executor: {}`, "1: cpu 1, memory 2Gi; 2: cpu 1, memory 1408Mi"},
		"with GPUs by property": {`sparkConf: {spark.executor.resource.gpu.amount: "2", spark.executor.resource.gpu.vendor: nvidia.com}, driver: {}, executor: {}`,
			"1: cpu 1, memory 1408Mi; 2: cpu 1, memory 1408Mi, nvidia.com/gpu 2"},
		"with GPUs of nobody": {`sparkConf: {spark.driver.resource.gpu.amount: "2"}, driver: {}, executor: {}`,
			`refused: spec.sparkConf requests "2" of gpu with the vendor ""; set spark.driver.resource.gpu.amount to a number, and the vendor to ` +
				`the domain of the resource, for example nvidia.com`},
		"with fewer GPUs than none": {`driver: {}, executor: {gpu: {name: nvidia.com/gpu, quantity: -8}}`, "1: cpu 1, memory 1408Mi; 2: cpu 1, memory 1408Mi"},
		"with a template": {`driver: {}, executor: {cores: 2, sidecars: [{name: proxy, resources: {requests: {cpu: 1}}}], template: {spec: {containers: [
			{name: log-shipper, resources: {requests: {cpu: 2, memory: 4Gi}}},
			{name: spark-kubernetes-executor, resources: {requests: {cpu: 64, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}}]}}}`,
			"1: cpu 1, memory 1408Mi; 2: cpu 5, memory 5504Mi, nvidia.com/gpu 1"},
		"with GPUs": {`driver: {}, executor: {gpu: {name: nvidia.com/gpu, quantity: 8}}`, "1: cpu 1, memory 1408Mi; 2: cpu 1, memory 1408Mi, nvidia.com/gpu 8"},
		"nonsense":  {`driver: {memory: much}, executor: {}`, `refused: the memory of spec.driver is "much", which is no amount of memory as Spark has it, like 512m or 4g; correct it`},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {`+c.application+`}}`)
			podSets, refusals := kindOf(t, o).PodSets(o)
			var out []string
			for i := range podSets {
				var of []string
				requests := resourcehelper.PodRequests(&corev1.Pod{Spec: podSets[i].Template.Spec}, resourcehelper.PodResourcesOptions{})
				for _, name := range slices.Sorted(maps.Keys(requests)) {
					quantity := requests[name]
					of = append(of, fmt.Sprintf("%s %s", name, quantity.String()))
				}
				out = append(out, fmt.Sprintf("%d: %s", podSets[i].Count, strings.Join(of, ", ")))
			}
			got := strings.Join(out, "; ")
			if len(refusals) > 0 {
				got = "refused: " + strings.Join(refusals, "; ")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAConflict of an admission check with the user's own selector ends the start.
func TestAConflict(t *testing.T) {
	o := object(t, samples["PyTorchJob"])
	placed := placements(2, "first")
	placed[1].Updates[0].NodeSelector = map[string]string{"a": "1"}
	placed[1].Updates = append(placed[1].Updates, kueue.PodSetUpdate{NodeSelector: map[string]string{"a": "2"}})
	if _, err := kindOf(t, o).Start(o, placed); err == nil || !strings.Contains(err.Error(), "conflict for key=a") {
		t.Errorf("error %v", err)
	}
}

// TestBadStanzas are refused with the field, the value and the fix.
func TestBadStanzas(t *testing.T) {
	const good = `
group: acme.io
version: v1
kind: TrainRun
suspend: {path: /spec/state, held: Pending}
podSets: [{each: /spec/roles, name: self.name, count: self.replicas, template: /template}]
`
	for name, c := range map[string]struct{ from, to, want string }{
		"it is good":      {"", "", ""},
		"no group":        {"group: acme.io", "", `jobKinds[0].group: Invalid value: "": it must be an API group, like example.com`},
		"a bad version":   {"version: v1", "version: one", `jobKinds[0].version: Invalid value: "one": it must be a version of the API, like v1 or v1alpha2`},
		"a kind in lower": {"kind: TrainRun", "kind: trainrun", `jobKinds[0].kind: Invalid value: "trainrun": it must be a kind, like TrainRun`},
		"no pointer":      {"/spec/state", "spec.state", `jobKinds[0].suspend.path: Invalid value: "spec.state": "spec.state" is not a JSON pointer; it must start with /, like /spec/suspend`},
		"a path that policies cannot read": {"podSets:", "managedBy: {path: /spec/managed-by, own: acme.io/runs}\npodSets:",
			`jobKinds[0].managedBy.path: Invalid value: "/spec/managed-by": it must lead through objects by names of letters and digits`},
		"no pods": {"podSets: [", "other: [", `unknown field "other"`},
		"bad CEL": {"self.replicas", "self.", "jobKinds[0].podSets[0].count: Invalid value: \"self.\": \"self.\" is not CEL"},
		"CEL of another type": {"count: self.replicas", `count: "'two'"`,
			`jobKinds[0].podSets[0].count: Invalid value: "'two'": "'two'" has values of type string, but they must be of type int; correct it`},
		"no template": {", template: /template", "", "jobKinds[0].podSets[0].template: Required value: give a JSON pointer, like /spec/suspend"},
		"a bad label": {"name: self.name,", "name: self.name, indexLabel: a b,", `jobKinds[0].podSets[0].indexLabel: Invalid value: "a b": it must be the key of a label`},
		"groups of pods without numbers": {"name: self.name,", "name: self.name, subGroups: {indexLabel: group, count: self.groups},",
			`jobKinds[0].podSets[0].indexLabel: Required value: name the label that numbers the pods in each of the subGroups`},
		"two places": {"each:", "path: /spec, each:", `jobKinds[0].podSets[0].each: Invalid value: "/spec/roles": there is a path, too; remove one`},
	} {
		t.Run(name, func(t *testing.T) {
			var s Stanza
			err := yaml.UnmarshalStrict([]byte(strings.Replace(good, c.from, c.to, 1)), &s)
			if err == nil {
				_, wrong := Compile(s, field.NewPath("jobKinds").Index(0))
				err = wrong.ToAggregate()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// TestTheManifestsAreOfTheStanzas that are built in.
func TestTheManifestsAreOfTheStanzas(t *testing.T) {
	for file, write := range map[string]func([]*Kind) ([]byte, error){"policies/jobs.yaml": Policies, "rbac/kinds.yaml": Rights} {
		want, err := write(BuiltIn())
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../../deploy/charts/muster/files/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, text, _ := strings.Cut(string(got), "\n"); text != string(want) {
			t.Errorf("%s is of other stanzas; run `make generate`", file)
		}
	}
}

// TestAKindOfAUser is suspended and started like the built-in kinds.
func TestAKindOfAUser(t *testing.T) {
	var s Stanza
	if err := yaml.UnmarshalStrict([]byte(`
group: acme.io
version: v1
kind: TrainRun
resource: trainruns
suspend: {path: /spec/state, held: Pending, running: null}
podSets:
- each: /spec/roles
  name: key
  count: "self.replicas * (has(self.hosts) ? self.hosts : 1)"
  template: /template
succeeded: self.?status.?phase.orValue('') == 'Done'
failed: self.?status.?phase.orValue('') == 'Broken'
`), &s); err != nil {
		t.Fatal(err)
	}
	all, wrong := CompileAll([]Stanza{s}, field.NewPath("jobKinds"))
	if len(wrong) > 0 {
		t.Fatal(wrong.ToAggregate())
	}
	k := all[0]
	o := object(t, `{apiVersion: acme.io/v1, kind: TrainRun, metadata: {name: r}, spec: {state: Pending, roles: {
		worker: {replicas: 2, hosts: 4, template: `+oneContainer+`}, chief: {replicas: 1, template: `+oneContainer+`}}}}`)
	if diff := cmp.Diff("chief×1, worker×8", said(k, o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := k.Start(o, placements(2, "first")); err != nil {
		t.Fatal(err)
	}
	if state, ok := (pointer{"spec", "state"}).get(o.Object); ok {
		t.Errorf("started, its state is %v", state)
	}
	text, err := Policies(slices.Concat(BuiltIn(), all))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`apiGroups: ["acme.io"]`, `resources: ["trainruns"]`, `"/spec/state", value: "Pending"`,
		"dyn(object).?spec.?roles == dyn(oldObject).?spec.?roles"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the policies lack %s", want)
		}
	}
	if _, wrong := CompileAll([]Stanza{s, s, {Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}},
		field.NewPath("jobKinds")); wrong == nil ||
		!strings.Contains(wrong.ToAggregate().Error(), "jobKinds[1].kind") || !strings.Contains(wrong.ToAggregate().Error(), "jobKinds[2].kind") {
		t.Errorf("two stanzas for one kind, and one for a known kind: %v", wrong)
	}
}

// TestSparkTemplateIsPlaced: pods with a template of their own get what a start adds, whether the operator applies the fields of their
// role to them or not.
func TestSparkTemplateIsPlaced(t *testing.T) {
	o := object(t, `{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, spec: {driver: {}, executor: {
		template: {spec: {nodeSelector: {a: b}, containers: [{name: spark-kubernetes-executor}]}}}}}`)
	podSets, refusals := kindOf(t, o).PodSets(o)
	if len(refusals) > 0 {
		t.Fatal(refusals)
	}
	want := map[string]string{"a": "b", "gpu": "h100"}
	for i, place := range []sparkPlace{{"spec", "driver"}, {"spec", "executor"}} {
		podSets[i].Template.Spec.NodeSelector = maps.Clone(want)
		if err := place.put(o.Object, &podSets[i].Template); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"driver.nodeSelector", "executor.nodeSelector", "executor.template.spec.nodeSelector"} {
		got, _ := append(pointer{"spec"}, strings.Split(at, ".")...).get(o.Object)
		if diff := cmp.Diff(map[string]any{"a": "b", "gpu": "h100"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", at, diff)
		}
	}
	again, _ := kindOf(t, o).PodSets(o)
	if diff := cmp.Diff(want, again[1].Template.Spec.NodeSelector); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

// TestJobsOfAllKindsMayBeDeleted, which were deactivated long ago (Kueue 0.20, 15565).
func TestJobsOfAllKindsMayBeDeleted(t *testing.T) {
	var all []*Kind
	for _, k := range All() {
		if k, is := k.(*Kind); is {
			all = append(all, k)
		}
	}
	text, err := Rights(all)
	if err != nil {
		t.Fatal(err)
	}
	role, _, _ := strings.Cut(string(text), "---\n")
	var rules struct {
		Rules []struct {
			APIGroups, Resources, Verbs []string
		}
	}
	if err := yaml.Unmarshal([]byte(role), &rules); err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{}
	for _, r := range rules.Rules {
		for _, resource := range r.Resources {
			may[resource+"."+r.APIGroups[0]] = may[resource+"."+r.APIGroups[0]] || slices.Contains(r.Verbs, "delete")
		}
	}
	for _, k := range all {
		if !may[k.Resource+"."+k.Group] {
			t.Errorf("Muster may not delete %s.%s", k.Resource, k.Group)
		}
	}
}
