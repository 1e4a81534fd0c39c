// Package prebuilt compares a Workload that something else has created for a job with the one that Muster would make.
package prebuilt

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/jobs/defaults"
	"github.com/muster-dev/muster/queueing/jobs/topology"
	"github.com/muster-dev/muster/queueing/workload"
)

// Differs is the field in which a prebuilt Workload is not for the pods of its job;
// empty where it is. Beyond what Kueue compares, it compares all that decides what a pod
// takes and where it may go: quota and machines are for the pods of the Workload, and
// those of the job are to run on them.
func Differs(ctx context.Context, kube client.Reader, w, want *kueue.Workload) (field string, err error) {
	if len(w.Spec.PodSets) != len(want.Spec.PodSets) {
		return "spec.podSets", nil
	}
	if !equality.Semantic.DeepEqual(w.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) {
		return "spec.maximumExecutionTimeSeconds", nil
	}
	for i := range want.Spec.PodSets {
		if field, err := podSetDiffers(ctx, kube, w.Namespace, w.Spec.PodSets[i].DeepCopy(), &want.Spec.PodSets[i]); field != "" || err != nil {
			return fmt.Sprintf("spec.podSets[%d].%s", i, field), err
		}
	}
	return "", nil
}

// podSetDiffers is the field in which a pod set, a copy, differs from the wanted one; empty
// if it does not.
func podSetDiffers(ctx context.Context, kube client.Reader, namespace string, a, b *kueue.PodSet) (field string, err error) {
	// The Workload may already have what the API server adds to the pods. A reason why that cannot be read is ignored
	// here, since want has it.
	if _, err := defaults.FillIn(ctx, kube, namespace, &a.Template.Spec); err != nil {
		return "", err
	}
	x, y := &a.Template.Spec, &b.Template.Spec
	for _, part := range []struct {
		field string
		a, b  any
	}{
		{"count", a.Count, b.Count},
		{"minCount", a.MinCount, b.MinCount},
		{"template.spec.containers", x.Containers, y.Containers},
		{"template.spec.initContainers", x.InitContainers, y.InitContainers},
		{"template.spec.resources", x.Resources, y.Resources},
		{"template.spec.overhead", x.Overhead, y.Overhead},
		{"template.spec.runtimeClassName", x.RuntimeClassName, y.RuntimeClassName},
		{"template.spec.nodeSelector", x.NodeSelector, y.NodeSelector},
		{"template.spec.affinity", x.Affinity, y.Affinity},
		{"template.spec.tolerations", x.Tolerations, y.Tolerations},
		{"template.spec.topologySpreadConstraints", x.TopologySpreadConstraints, y.TopologySpreadConstraints},
		{"template.spec.resourceClaims", x.ResourceClaims, y.ResourceClaims},
	} {
		if !equality.Semantic.DeepEqual(part.a, part.b) {
			return part.field, nil
		}
	}
	if !topology.Same(a.TopologyRequest, b.TopologyRequest) {
		return "topologyRequest", nil
	}
	return "", nil
}

// Follow changes a prebuilt Workload without quota in what its job may change of
// it, and reports whether that differs.
func Follow(w, want *kueue.Workload) bool {
	queue := cmp.Or(want.Spec.QueueName, w.Spec.QueueName)
	changed := w.Spec.QueueName != queue
	w.Spec.QueueName = queue
	for _, key := range []string{workload.RefusedAnnotation, workload.SubmittedByAnnotation} {
		value := want.Annotations[key]
		if w.Annotations[key] == value {
			continue
		}
		changed = true
		delete(w.Annotations, key)
		if value != "" {
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, key, value)
		}
	}
	return changed
}

// Finish finishes a prebuilt Workload that is not for its pods, with the message that it returns.
func Finish(ctx context.Context, kube client.Client, w *kueue.Workload, why string, now time.Time) (message string, err error) {
	message = "The prebuilt workload is out of sync with its user job: " + why // the first words are Kueue's
	return message, writes.Finish(ctx, kube, w, kueue.WorkloadFinishedReasonOutOfSync, message, now)
}
