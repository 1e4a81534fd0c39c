package jobs

import (
	"context"
	"fmt"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
)

// prioritize follows another priority class of a running job. It reports whether it wrote.
func (r *reconciler) prioritize(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if PrebuiltName(job) != "" {
		return false, nil
	}
	want := &kueue.Workload{}
	want.Spec.PodSets, _ = r.kind.PodSets(job)
	if why, err := setPriority(ctx, r.client, r.kind, job, &want.Spec); why != "" || err != nil {
		return false, err
	}
	return writes.Patch(ctx, r.client, w, func(w *kueue.Workload) bool { return FollowReserved(w, want) })
}

// podPriorityClass is the PriorityClass that a job names beside its pods, or else that of the
// first pod set that names one.
func podPriorityClass(kind Source, job client.Object, podSets []kueue.PodSet) string {
	if k, ok := kind.(Prioritized); ok {
		if name := k.PriorityClass(job); name != "" {
			return name
		}
	}
	for i := range podSets {
		if name := podSets[i].Template.Spec.PriorityClassName; name != "" {
			return name
		}
	}
	return ""
}

// systemPrefix begins the names of the PriorityClasses that Kubernetes keeps for the pods of the cluster itself. Any user may name one.
const systemPrefix = "system-"

// setPriority sets the Workload's priority to that of the job's class, or else of its
// pods' class. It returns why the job cannot be queued if the class does not exist, or is one of the system's, before which all others
// in the queue would give way.
func setPriority(ctx context.Context, kube client.Reader, kind Source, job client.Object,
	spec *kueue.WorkloadSpec) (why string, err error) {
	if name := job.GetLabels()[PriorityClassLabel]; name != "" {
		class := &kueue.WorkloadPriorityClass{}
		if err := kube.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Sprintf("WorkloadPriorityClass %q, which the label %s names, doesn't exist; create it or change the label", name,
					PriorityClassLabel), nil
			}
			return "", fmt.Errorf("reading WorkloadPriorityClass %s: %w", name, err)
		}
		spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
		spec.Priority = new(class.Value)
		return "", nil
	}
	var classes schedulingv1.PriorityClassList
	if err := kube.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing PriorityClasses: %w", err)
	}
	name := podPriorityClass(kind, job, spec.PodSets)
	if strings.HasPrefix(name, systemPrefix) {
		return fmt.Sprintf("PriorityClass %q of the job's pods is for the pods of the cluster itself; remove it, or ask an administrator for a "+
			"WorkloadPriorityClass and name that in the label %s", name, PriorityClassLabel), nil
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.Name == name || name == "" && class.GlobalDefault {
			spec.PriorityClassRef = kueue.NewPodPriorityClassRef(class.Name)
			spec.Priority = new(class.Value)
			return "", nil
		}
	}
	if name != "" {
		return fmt.Sprintf("PriorityClass %q of the job's pods doesn't exist; create it or change priorityClassName", name), nil
	}
	spec.Priority = new(int32(0))
	return "", nil
}
