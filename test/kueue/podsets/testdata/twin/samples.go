package main

import (
	"fmt"

	kfmpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	kftrainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kftraining "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	awv1beta2 "github.com/project-codeflare/appwrapper/api/v1beta2"
	awutils "github.com/project-codeflare/appwrapper/pkg/utils"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/appwrapper"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/jaxjob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/job"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/jobset"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/leaderworkerset"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/mpijob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/paddlejob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/pod"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/pytorchjob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/raycluster"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/rayjob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/rayservice"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/sparkapplication"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/statefulset"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/tfjob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/trainjob"
	"sigs.k8s.io/kueue/pkg/util/testingjobs/xgboostjob"
)

const (
	name      = "sample"
	namespace = "ns"
	queue     = "main"
)

// samples returns objects of each kind. Some are lists of them.
func samples() (out []any) {
	add := func(apiVersion, kind string, o client.Object) {
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		out = append(out, o)
	}
	add("batch/v1", "Job", job.MakeJob(name, namespace).Queue(queue).Request("cpu", "1").Obj())
	add("batch/v1", "Job", job.MakeJob(name, namespace).Queue(queue).Parallelism(5).Completions(3).Indexed(true).
		SetAnnotation("kueue.x-k8s.io/job-min-parallelism", "2").RequestAndLimit("example.com/gpu", "1").Obj())
	add("jobset.x-k8s.io/v1alpha2", "JobSet", jobset.MakeJobSet(name, namespace).Queue(queue).ReplicatedJobs(
		jobset.ReplicatedJobRequirements{Name: "Driver", Replicas: 1, Parallelism: 1, Completions: 1},
		jobset.ReplicatedJobRequirements{Name: "workers", Replicas: 3, Parallelism: 4, Completions: 2},
	).Request("Driver", "cpu", "100m").RequestAndLimit("workers", "example.com/gpu", "8").Obj())
	add("kubeflow.org/v1", "PyTorchJob", pytorchjob.MakePyTorchJob(name, namespace).Queue(queue).PyTorchReplicaSpecs(
		pytorchjob.PyTorchReplicaSpecRequirement{ReplicaType: kftraining.PyTorchJobReplicaTypeMaster, ReplicaCount: 1, RestartPolicy: "Never"},
		pytorchjob.PyTorchReplicaSpecRequirement{ReplicaType: kftraining.PyTorchJobReplicaTypeWorker, ReplicaCount: 4,
			RestartPolicy: "OnFailure"},
	).Request(kftraining.PyTorchJobReplicaTypeMaster, "cpu", "1").Request(kftraining.PyTorchJobReplicaTypeWorker,
		"example.com/gpu", "2").Obj())
	add("kubeflow.org/v1", "PyTorchJob", pytorchjob.MakePyTorchJob(name, namespace).Queue(queue).PyTorchReplicaSpecsOnlyMasterDefault().Obj())
	add("kubeflow.org/v1", "TFJob", tfjob.MakeTFJob(name, namespace).Queue(queue).TFReplicaSpecsDefault().
		Request(kftraining.TFJobReplicaTypeChief, "cpu", "1").Request(kftraining.TFJobReplicaTypePS, "cpu", "2").
		Request(kftraining.TFJobReplicaTypeWorker, "example.com/gpu", "1").Obj())
	add("kubeflow.org/v1", "XGBoostJob", xgboostjob.MakeXGBoostJob(name, namespace).Queue(queue).XGBReplicaSpecsDefault().
		Request(kftraining.XGBoostJobReplicaTypeWorker, "cpu", "3").Obj())
	add("kubeflow.org/v1", "PaddleJob", paddlejob.MakePaddleJob(name, namespace).Queue(queue).PaddleReplicaSpecsDefault().
		Request(kftraining.PaddleJobReplicaTypeWorker, "cpu", "3").Obj())
	add("kubeflow.org/v1", "JAXJob", jaxjob.MakeJAXJob(name, namespace).Queue(queue).JAXReplicaSpecsDefault().
		Request(kftraining.JAXJobReplicaTypeWorker, "cpu", "3").Obj())
	add("kubeflow.org/v2beta1", "MPIJob", mpijob.MakeMPIJob(name, namespace).Queue(queue).GenericLauncherAndWorker().Parallelism(4).
		Request(kfmpi.MPIReplicaTypeLauncher, "cpu", "1").Request(kfmpi.MPIReplicaTypeWorker, "example.com/gpu", "8").Obj())
	add("kubeflow.org/v2beta1", "MPIJob", mpijob.MakeMPIJob(name,
		namespace).Queue(queue).GenericLauncherAndWorker().RunLauncherAsWorker(true).Obj())
	add("ray.io/v1", "RayCluster", raycluster.MakeCluster(name, namespace).Queue(queue).RequestHead("cpu", "1").
		RequestWorkerGroup("cpu", "4").ScaleFirstWorkerGroup(3).WithNumOfHosts("workers-group-0", 2).Obj())
	add("ray.io/v1", "RayJob", rayjob.MakeJob(name, namespace).Queue(queue).RequestHead("cpu", "1").RequestWorkerGroup("cpu", "4").
		WithSubmissionMode(rayv1.K8sJobMode).Image(rayv1.HeadNode, "ray").Obj())
	add("ray.io/v1", "RayJob", rayjob.MakeJob(name, namespace).Queue(queue).RequestWorkerGroup("cpu", "4").
		WithSubmissionMode(rayv1.HTTPMode).Obj())
	add("ray.io/v1", "RayJob", rayjob.MakeJob(name, namespace).Queue(queue).WithSubmissionMode(rayv1.SidecarMode).Obj())
	add("ray.io/v1", "RayJob", rayjob.MakeJob(name, namespace).Queue(queue).WithSubmissionMode(rayv1.K8sJobMode).
		WithSubmitterPodTemplate(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{
			Name: "submitter", Image: "ray", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
		}}}}).Obj())
	add("ray.io/v1", "RayService", rayservice.MakeService(name, namespace).Queue(queue).Request(rayv1.HeadNode, "cpu", "1").
		Request(rayv1.WorkerNode, "cpu", "4").Obj())
	wrapped := appwrapper.MakeAppWrapper(name, namespace).Queue(queue).Component(appwrapper.Component{
		Template: job.MakeJob(name, namespace).SetTypeMeta().Parallelism(3).Request("cpu", "1").Obj(),
	}).Component(appwrapper.Component{
		Template: jobset.MakeJobSet(name, namespace).ReplicatedJobs(jobset.ReplicatedJobRequirements{Name: "w", Replicas: 2,
			Parallelism: 2, Completions: 2}).SetTypeMeta().Obj(),
		DeclaredPodSets: []awv1beta2.AppWrapperPodSet{{Path: "template.spec.replicatedJobs[0].template.spec.template", Replicas: new(int32(4))}},
	}).Obj()
	// As its controller does.
	must(awutils.EnsureComponentStatusInitialized(wrapped))
	add("workload.codeflare.dev/v1beta2", "AppWrapper", wrapped)
	add("sparkoperator.k8s.io/v1beta2", "SparkApplication", sparkapplication.MakeSparkApplication(name, namespace).Queue(queue).Image("spark").
		ExecutorInstances(3).DriverCoreRequest("1").ExecutorCoreRequest("2").Obj())
	add("v1", "Pod", pod.MakePod(name, namespace).UID("uid").Queue(queue).Request("cpu", "2").Obj())
	out = append(out, list("v1", "Pod", append(pod.MakePod("ring", namespace).Queue(queue).Request("cpu", "1").MakeGroup(3)[:2],
		pod.MakePod("ring-worker", namespace).Queue(queue).RequestAndLimit("example.com/gpu", "8").GroupNameLabel("ring").
			GroupTotalCount("3").Obj())))
	add("apps/v1", "StatefulSet", statefulset.MakeStatefulSet(name, namespace).UID("uid").Queue(queue).Replicas(3).Request("cpu", "1").Obj())
	add("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderworkerset.MakeLeaderWorkerSet(name, namespace).UID("uid").Queue(queue).
		Replicas(2).Size(3).Request("cpu", "1").Obj())
	add("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderworkerset.MakeLeaderWorkerSet(name, namespace).UID("uid").Queue(queue).
		Size(4).Request("example.com/gpu", "1").
		LeaderTemplate(corev1.PodTemplateSpec{Spec: pod.MakePod("", "").Request("cpu", "1").Obj().Spec}).Obj())
	set := jobset.MakeJobSet("", "").ReplicatedJobs(
		jobset.ReplicatedJobRequirements{Name: "dataset-initializer", Replicas: 1, Parallelism: 1, Completions: 1},
		jobset.ReplicatedJobRequirements{Name: "node", Replicas: 1, Parallelism: 1, Completions: 1}).Obj()
	set.Spec.ReplicatedJobs[1].Template.Labels = map[string]string{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
	runtime := trainjob.MakeClusterTrainingRuntime("torch", set.Spec)
	runtime.Spec.MLPolicy = &kftrainer.MLPolicy{NumNodes: new(int32(2))}
	runtime.SetGroupVersionKind(kftrainer.GroupVersion.WithKind("ClusterTrainingRuntime"))
	job := trainjob.MakeTrainJob(name, namespace).Queue(queue).RuntimeRef(kftrainer.RuntimeRef{Name: "torch",
		APIGroup: new(kftrainer.GroupVersion.Group), Kind: new("ClusterTrainingRuntime")}).TrainerNumNodes(4).TrainerRequest("cpu", "2").Obj()
	job.SetGroupVersionKind(kftrainer.GroupVersion.WithKind("TrainJob"))
	return append(out, map[string]any{"kind": "List", "items": []any{runtime, job}})
}

// list is one of several objects.
func list[T client.Object](apiVersion, kind string, objects []T) any {
	for i, o := range objects {
		o.SetUID(types.UID(fmt.Sprint("uid-", i)))
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	}
	return map[string]any{"kind": "List", "items": objects}
}
