package podsets

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/workload"
)

// shape is the relevant part of a manifest that an operator's project publishes, or that Trainer creates from one, with the pods
// that its operator creates: each pod set with its count and the requests of one pod.
type shape struct {
	of     string
	object string
	// jobSet are the replicatedJobs that Trainer makes.
	jobSet string
	want   string
	// beside is what Muster counts and Kueue does not.
	beside string
}

// pod returns the spec of a pod template whose container has these requests.
func pod(resources string) string {
	return `{spec: {containers: [{name: c, image: i, resources: {limits: {` + resources + `}}}]}}`
}

// replica returns a role of a job of Kubeflow.
func replica(count int, restart, resources string) string {
	return fmt.Sprintf("{replicas: %d, restartPolicy: %s, template: %s}", count, restart, pod(resources))
}

// replicated returns a replicatedJob as Trainer writes it. The fields come before its template.
func replicated(name, fields string, pods int, template string) string {
	return fmt.Sprintf("{name: %s, replicas: 1, %stemplate: {spec: {parallelism: %d, completions: %d, template: %s}}}",
		name, fields, pods, pods, template)
}

var shapes = func() []shape {
	mpi := func(launcher, worker string) string {
		return `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {slotsPerWorker: 1, runPolicy: {cleanPodPolicy: Running}, mpiReplicaSpecs: {
			Launcher: ` + launcher + `, Worker: ` + worker + `}}}`
	}
	kubeflow := func(kind, field, roles string) string {
		return `{apiVersion: kubeflow.org/v1, kind: ` + kind + `, spec: {` + field + `: {` + roles + `}}}`
	}
	const (
		trainJob  = `{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {name: r}}}`
		one, gpus = "cpu: 1, memory: 1Gi", "nvidia.com/gpu: 1"
		after     = "dependsOn: [{name: dataset-initializer, status: Complete}, {name: model-initializer, status: Complete}], "
	)
	return []shape{
		{of: "mpi-operator pi", object: mpi(replica(1, "OnFailure", one), replica(2, "Never", one)),
			want: "launcher×1 cpu=1 memory=1Gi, worker×2 cpu=1 memory=1Gi"},
		{of: "mpi-operator horovod", object: mpi(replica(1, "Never", "cpu: 1, memory: 2Gi"), replica(2, "Never", "cpu: 2, memory: 4Gi")),
			want: "launcher×1 cpu=1 memory=2Gi, worker×2 cpu=2 memory=4Gi"},
		{of: "mpi-operator tensorflow-benchmarks", object: mpi(replica(1, "Never", ""), replica(2, "Never", gpus)),
			want: "launcher×1, worker×2 nvidia.com/gpu=1"},
		{of: "training-operator mnist with NCCL", object: kubeflow("PyTorchJob", "pytorchReplicaSpecs",
			"Master: "+replica(1, "OnFailure", gpus)+", Worker: "+replica(1, "OnFailure", gpus)),
			want: "master×1 nvidia.com/gpu=1, worker×1 nvidia.com/gpu=1", beside: "container `init-pytorch`"},
		{of: "training-operator send and receive", object: kubeflow("PyTorchJob", "pytorchReplicaSpecs",
			"Master: "+replica(1, "OnFailure", "")+", Worker: "+replica(3, "OnFailure", "")), want: "master×1, worker×3",
			beside: "container `init-pytorch`"},
		{of: "training-operator elastic echo", object: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {elasticPolicy: {rdzvBackend: c10d,
			minReplicas: 1, maxReplicas: 2, maxRestarts: 100}, pytorchReplicaSpecs: {Worker: ` + replica(2, "OnFailure", "") + `}}}`, want: "worker×2"},
		{of: "training-operator elastic imagenet", object: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {elasticPolicy: {minReplicas: 1,
			maxReplicas: 3, metrics: [{type: Resource}]}, pytorchReplicaSpecs: {Worker: ` + replica(2, "OnFailure", "cpu: 4") + `}}}`,
			want: "worker×2 cpu=4, refused: spec.elasticPolicy.metrics has a HorizontalPodAutoscaler add workers"},
		{of: "training-operator distributed mnist", object: kubeflow("TFJob", "tfReplicaSpecs", "PS: "+replica(1, "Never", "")+
			", Chief: "+replica(1, "Never", "")+", Worker: "+replica(2, "Never", "")), want: "chief×1, ps×1, worker×2"},
		{of: "training-operator iris", object: kubeflow("XGBoostJob", "xgbReplicaSpecs", "Master: "+replica(1, "Never", "")+
			", Worker: "+replica(2, "ExitCode", "")), want: "master×1, worker×2"},
		{of: "training-operator paddle on GPUs", object: kubeflow("PaddleJob", "paddleReplicaSpecs", "Worker: "+
			replica(2, "OnFailure", "nvidia.com/gpu: 2")), want: "worker×2 nvidia.com/gpu=2"},
		{of: "training-operator jax", object: kubeflow("JAXJob", "jaxReplicaSpecs", "Worker: "+replica(2, "OnFailure", "")), want: "worker×2"},
		{of: "trainer torch on 4 nodes", object: trainJob, jobSet: replicated("node", "", 4, pod(gpus)), want: "node×4 nvidia.com/gpu=1"},
		{of: "trainer torchtune", object: trainJob, jobSet: replicated("dataset-initializer", "", 1, pod("")) + ", " +
			replicated("model-initializer", "", 1, pod("")) + ", " + replicated("node", after, 1, pod("nvidia.com/gpu: 2")),
			want: "dataset-initializer×1, model-initializer×1, node×1 nvidia.com/gpu=2"},
		// The launcher is the first node.
		{of: "trainer deepspeed on 2 nodes", object: trainJob, jobSet: replicated("launcher", "", 1, pod(gpus)) + ", " + replicated("node", "", 1, pod(gpus)),
			want: "launcher×1 nvidia.com/gpu=1, node×1 nvidia.com/gpu=1"},
		{of: "trainer deepspeed on 1 node", object: trainJob, jobSet: replicated("launcher", "", 1, pod(gpus)) + ", " + replicated("node", "", 0, pod(gpus)),
			want: "launcher×1 nvidia.com/gpu=1, node×0 nvidia.com/gpu=1"},
		{of: "trainer flux on 2 nodes", object: trainJob, jobSet: replicated("node", "", 2,
			`{spec: {initContainers: [{name: flux-installer, image: i}], containers: [{name: node, image: i, resources: {requests: {cpu: 4}}}]}}`),
			want: "node×2 cpu=4"},
		// Each pod of a workflow queues by itself, with what its controller adds.
		{of: "argo-workflows steps", object: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {
			initContainers: [{name: init, image: i}], containers: [{name: wait, image: i, resources: {requests: {cpu: 10m, memory: 64Mi}}},
			{name: main, image: i, resources: {requests: {cpu: 1}}}]}}`, want: "main×1 cpu=1010m memory=64Mi"},
		{of: "tekton TaskRun", object: `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {
			initContainers: [{name: prepare, image: i}, {name: place-scripts, image: i}], containers: [{name: step-build, image: i, resources: {requests: {
			cpu: 500m}}}, {name: step-test, image: i, resources: {requests: {cpu: 2}}}]}}`, want: "main×1 cpu=2500m"},
	}
}()

// objects returns the object of the shape, and the JobSet that Trainer creates for it.
func (s *shape) objects(t *testing.T) (object, jobSet map[string]any) {
	t.Helper()
	read := func(text string) (out map[string]any) {
		text = strings.ReplaceAll(text, "\t", " ")
		body, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = json.Unmarshal(body, &out)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", s.of, err, text)
		}
		metadata, _ := out["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{"name": "j"}
		}
		metadata["namespace"], metadata["labels"] = "default", map[string]any{"kueue.x-k8s.io/queue-name": "main"}
		out["metadata"] = metadata
		return out
	}
	object = read(s.object)
	if s.jobSet != "" {
		jobSet = read(`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [` + s.jobSet + `]}}`)
	}
	return object, jobSet
}

// TestPublishedSamplesHaveThePodsOfTheirOperators: the shapes of the manifests that the projects publish have the pods that their operators
// make, and Kueue's pod sets where its twin is there.
func TestPublishedSamplesHaveThePodsOfTheirOperators(t *testing.T) {
	kube := newReader(t)
	for _, s := range shapes {
		object, jobSet := s.objects(t)
		own := ours(t, kube, runtime.DeepCopyJSON(object), jobSet)
		var got []string
		for i := range own.PodSets {
			p := &own.PodSets[i]
			line := fmt.Sprintf("%s×%d", p.Name, p.Count)
			requests := workload.PodRequests(&p.Template.Spec).List()
			for _, name := range []string{"cpu", "memory", "nvidia.com/gpu"} {
				for have, amount := range requests {
					if string(have) == name && !amount.IsZero() {
						line += fmt.Sprintf(" %s=%s", name, amount.String())
					}
				}
			}
			got = append(got, line)
		}
		if own.Error != "" {
			why, _, _ := strings.Cut(own.Error, " for which")
			got = append(got, "refused: "+why)
		}
		if diff := cmp.Diff(s.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.of, diff)
		}
		// Kueue works the JobSet of a TrainJob out by itself.
		if os.Getenv("MUSTER_PODSETS_TWIN_BIN") == "" || jobSet != nil || kindOf(object) == "Pod" {
			continue
		}
		beside, diff := compare(kindOf(object), own, answersOf(t, []map[string]any{object})[0])
		slices.Sort(beside)
		if diff != "" || strings.Join(beside, ", ") != s.beside {
			t.Errorf("%s: Muster counts %q beside, want %q; from Kueue it differs by (-ours +theirs):\n%s", s.of, beside, s.beside, diff)
		}
	}
}
