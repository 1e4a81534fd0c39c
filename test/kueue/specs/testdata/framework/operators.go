package framework

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operator acts as the controller of a kind of job, as far as the specs do not. They write which pods run and which have ended,
// which is all that Kueue reads, while Muster releases the quota of a suspended job only when its controller reports that it has
// stopped.
type operator struct {
	kind schema.GroupVersionKind
	// suspend is the field that suspends a job.
	suspend []string
	// status is the field that says so of a job that has stopped, and value what stands there. Without them it is the condition Suspended.
	status []string
	value  string
}

var operators = []operator{
	{kind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, suspend: []string{"suspend"}},
	{kind: schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, suspend: []string{"suspend"}},
	{kind: schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"}, suspend: []string{"suspend"}},
	{kind: kubeflow("v2beta1", "MPIJob"), suspend: runPolicy},
	{kind: kubeflow("v1", "PyTorchJob"), suspend: runPolicy},
	{kind: kubeflow("v1", "TFJob"), suspend: runPolicy},
	{kind: kubeflow("v1", "XGBoostJob"), suspend: runPolicy},
	{kind: kubeflow("v1", "PaddleJob"), suspend: runPolicy},
	{kind: kubeflow("v1", "JAXJob"), suspend: runPolicy},
	{kind: schema.GroupVersionKind{Group: "workload.codeflare.dev", Version: "v1beta2", Kind: "AppWrapper"}, suspend: []string{"suspend"},
		status: []string{"phase"}, value: "Suspended"},
	{kind: schema.GroupVersionKind{Group: "sparkoperator.k8s.io", Version: "v1beta2", Kind: "SparkApplication"}, suspend: []string{"suspend"},
		status: []string{"applicationState", "state"}, value: "SUSPENDED"},
	{kind: schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}, suspend: []string{"suspend"},
		status: []string{"state"}, value: "suspended"},
	{kind: schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayJob"}, suspend: []string{"suspend"},
		status: []string{"jobDeploymentStatus"}, value: "Suspended"},
}

var runPolicy = []string{"runPolicy", "suspend"}

func kubeflow(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kubeflow.org", Version: version, Kind: kind}
}

// operate runs the operators of the cluster's kinds until ctx ends.
func operate(ctx context.Context, c client.Client) {
	known := slices.DeleteFunc(slices.Clone(operators), func(o operator) bool {
		_, err := c.RESTMapper().RESTMapping(o.kind.GroupKind(), o.kind.Version)
		return apimeta.IsNoMatchError(err)
	})
	for {
		for _, o := range known {
			o.once(ctx, c)
		}
		collect(ctx, c)
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// once acts once on each job of the kind. A failed write is repeated the next time.
func (o operator) once(ctx context.Context, c client.Client) {
	jobs := &unstructured.UnstructuredList{}
	jobs.SetGroupVersionKind(o.kind.GroupVersion().WithKind(o.kind.Kind + "List"))
	if c.List(ctx, jobs) != nil {
		return
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		suspended, _, _ := unstructured.NestedBool(job.Object, append([]string{"spec"}, o.suspend...)...)
		status, _, _ := unstructured.NestedMap(job.Object, "status")
		if active, _, _ := unstructured.NestedInt64(status, "active"); suspended && active > 0 {
			continue // its pods are ending, until the spec says that they have
		}
		patch := o.change(status, suspended)
		if patch == nil {
			continue
		}
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": job.GetResourceVersion()}, "status": patch})
		if err != nil {
			continue
		}
		_ = c.Status().Patch(ctx, job, client.RawPatch(types.MergePatchType, text))
	}
}

// change returns the change to the status of a job; nil for none. A job that never ran needs no status, and one that has ended
// keeps its status.
func (o operator) change(status map[string]any, suspended bool) map[string]any {
	if o.status != nil {
		return o.changeField(status, suspended)
	}
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	at := -1
	for i := range conditions {
		condition, _ := conditions[i].(map[string]any)
		switch condition["type"] {
		case "Suspended":
			at = i
		case "Complete", "Completed", "Failed", "FailureTarget", "SuccessCriteriaMet", "Succeeded":
			if condition["status"] == "True" {
				return nil
			}
		}
	}
	_, started := status["startTime"]
	want := "False"
	switch {
	case suspended:
		want = "True"
	case at < 0:
		return nil
	}
	if o.kind.Kind == "Job" && suspended && at < 0 && !started {
		return nil
	}
	if at >= 0 && conditions[at].(map[string]any)["status"] == want {
		return nil
	}
	now := time.Now().UTC().Format(time.RFC3339)
	condition := map[string]any{
		"type": "Suspended", "status": want, "reason": "JobSuspended", "message": "played by the specs", "lastTransitionTime": now,
	}
	if at < 0 {
		conditions = append(conditions, condition)
	} else {
		conditions[at] = condition
	}
	return map[string]any{"conditions": conditions}
}

func (o operator) changeField(status map[string]any, suspended bool) map[string]any {
	value, _, _ := unstructured.NestedString(status, o.status...)
	want := value
	switch {
	case suspended && (value == "" || isRunning(value)):
		want = o.value
	case !suspended && value == o.value:
		want = ""
	}
	if want == value {
		return nil
	}
	patch := map[string]any{}
	if err := unstructured.SetNestedField(patch, want, o.status...); err != nil {
		return nil
	}
	return patch
}

// isRunning reports whether a job in the state has running pods, so that the state changes when they are gone.
func isRunning(state string) bool {
	return slices.Contains([]string{"Running", "RUNNING", "ready", "Initializing", "Resuming", "SUBMITTED"}, state)
}

// collect deletes the templates of deleted ProvisioningRequests, as the garbage collector would: the next request reuses their
// names.
func collect(ctx context.Context, c client.Client) {
	var templates corev1.PodTemplateList
	if c.List(ctx, &templates) != nil {
		return
	}
	for i := range templates.Items {
		t := &templates.Items[i]
		owner := metav1.GetControllerOf(t)
		if owner == nil || owner.Kind != "ProvisioningRequest" {
			continue
		}
		var request autoscaling.ProvisioningRequest
		err := c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: owner.Name}, &request)
		if apierrors.IsNotFound(err) || err == nil && request.UID != owner.UID {
			_ = c.Delete(ctx, t)
		}
	}
}
