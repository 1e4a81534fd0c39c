package submit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
)

// masterPort is where the pod of rank 0 listens, as PyTorch's operator has it.
const masterPort = 29500

// Objects are those of a job with the options, the job last.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	var objects []any
	switch o.Kind {
	case KindJob:
		if o.Nodes > 1 {
			objects = append(objects, o.service())
		}
		spec := o.job(fmt.Sprintf("%s-0.%[1]s", o.Name), o.Name)
		spec.Suspend = new(true)
		objects = append(objects, &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}, ObjectMeta: o.meta(), Spec: spec,
		})
	case KindJobSet:
		objects = append(objects, o.owned("jobset.x-k8s.io/v1alpha2", "JobSet", map[string]any{
			"replicatedJobs": []any{map[string]any{"name": "main", "template": map[string]any{
				"spec": o.job(fmt.Sprintf("%s-main-0-0.%[1]s", o.Name), "")}}},
			"suspend": true, "failurePolicy": map[string]any{"maxRestarts": 0},
		}))
	case KindPyTorchJob:
		replicas := map[string]any{"Master": o.replicas(1)}
		if o.Nodes > 1 {
			replicas["Worker"] = o.replicas(o.Nodes - 1)
		}
		spec := map[string]any{"pytorchReplicaSpecs": replicas, "runPolicy": map[string]any{"suspend": true, "backoffLimit": o.Retries}}
		if o.GPUsPerNode > 0 {
			spec["nprocPerNode"] = strconv.Itoa(o.GPUsPerNode)
		}
		objects = append(objects, o.owned("kubeflow.org/v1", "PyTorchJob", spec))
	}
	out := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		out[i] = &unstructured.Unstructured{Object: content}
		delete(content, "status")
		prune(content)
	}
	return out, nil
}

// prune removes what is null, such as the creationTimestamp of a template that was never created, and empty maps that it leaves.
func prune(value any) {
	switch x := value.(type) {
	case map[string]any:
		for key, v := range x {
			prune(v)
			if m, ok := v.(map[string]any); v == nil || ok && len(m) == 0 {
				delete(x, key)
			}
		}
	case []any:
		for _, v := range x {
			prune(v)
		}
	}
}

func (o *Options) meta() metav1.ObjectMeta {
	labels := map[string]string{jobs.QueueLabel: o.Queue}
	if o.Priority != "" {
		labels[jobs.PriorityClassLabel] = o.Priority
	}
	if o.Time > 0 {
		labels[jobs.MaxExecTimeLabel] = strconv.Itoa(int(o.Time.Seconds()))
	}
	return metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: labels}
}

// custom is an object of a kind without Go types here.
type custom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec"`
}

func (o *Options) owned(apiVersion, kind string, spec map[string]any) *custom {
	return &custom{metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, o.meta(), spec}
}

// service gives the pods of a Job their names.
func (o *Options) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{batchv1.JobNameLabel: o.Name}, PublishNotReadyAddresses: true,
		},
	}
}

// job runs all pods at once, each with an index, and is over when each has succeeded.
func (o *Options) job(master, subdomain string) batchv1.JobSpec {
	pods := int32(o.Nodes)
	template := o.template("main")
	if pods > 1 {
		template.Spec.Subdomain = subdomain
		template.Spec.Containers[0].Env = append([]corev1.EnvVar{
			{Name: "MASTER_ADDR", Value: master}, {Name: "MASTER_PORT", Value: strconv.Itoa(masterPort)},
			{Name: "NNODES", Value: strconv.Itoa(o.Nodes)},
			{Name: "NODE_RANK", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: fmt.Sprintf("metadata.annotations['%s']", batchv1.JobCompletionIndexAnnotation)}}},
		}, template.Spec.Containers[0].Env...)
	}
	return batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion), BackoffLimit: new(int32(o.Retries)),
		Template: template,
	}
}

// replicas returns a role of a PyTorchJob, whose operator sets the addresses of the pods.
func (o *Options) replicas(n int) map[string]any {
	return map[string]any{"replicas": n, "restartPolicy": "Never", "template": o.template("pytorch")}
}

func (o *Options) template(container string) corev1.PodTemplateSpec {
	c := corev1.Container{Name: container, Image: o.Image, Command: o.Command}
	requests := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: o.CPU, corev1.ResourceMemory: o.Memory} {
		if text != "" {
			requests[name] = resource.MustParse(text) // checked by complete
		}
	}
	if len(requests) > 0 {
		c.Resources.Requests = requests
	}
	if o.GPUsPerNode > 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceName(o.Device): *resource.NewQuantity(int64(o.GPUsPerNode), resource.DecimalSI)}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: o.Env[name]})
	}
	out := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, NodeSelector: o.NodeSelector, Containers: []corev1.Container{c},
	}}
	if o.Topology != "" {
		out.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: o.Topology}
	}
	return out
}
