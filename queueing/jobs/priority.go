package jobs

import (
	"context"
	"fmt"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/controller/writes"
	"github.com/muster-dev/muster/queueing/workload"
)

// prioritize follows another priority class of a running job. It reports whether it wrote.
func (r *reconciler) prioritize(ctx context.Context, job client.Object, w *kueue.Workload) (bool, error) {
	if PrebuiltName(job) != "" {
		return false, nil
	}
	want := &kueue.Workload{}
	want.Spec.PodSets, _ = r.kind.PodSets(job)
	if why, err := setPriority(ctx, r.client, r.kind, job, w, &want.Spec); why != "" || err != nil {
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

// defaultClass is the WorkloadPriorityClass of a job that names none, where it exists, as in Kueue.
const defaultClass = "default"

// setPriority sets the Workload's priority to that of the job's class, or else of the default WorkloadPriorityClass or of its
// pods' class. It returns why the job cannot be queued if the class does not exist, or is one of the system's, before which all others
// in the queue would give way. A Workload that exists keeps the default class, or goes on without it: Kueue gives it to jobs as they are
// created, and a Workload with quota cannot change the kind of its class.
func setPriority(ctx context.Context, kube client.Reader, kind Source, job client.Object, has *kueue.Workload,
	spec *kueue.WorkloadSpec) (why string, err error) {
	if name := job.GetLabels()[PriorityClassLabel]; name != "" {
		found, err := setClass(ctx, kube, name, spec)
		if err == nil && !found {
			why = fmt.Sprintf("WorkloadPriorityClass %q, which the label %s names, doesn't exist; create it or change the label", name,
				PriorityClassLabel)
		}
		return why, err
	}
	switch {
	case has == nil:
		if found, err := setClass(ctx, kube, defaultClass, spec); found || err != nil {
			return "", err
		}
	case equality.Semantic.DeepEqual(has.Spec.PriorityClassRef, kueue.NewWorkloadPriorityClassRef(defaultClass)):
		workload.CopyPriority(spec, &has.Spec)
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

// setClass sets the Workload's priority to that of a WorkloadPriorityClass. It reports whether that exists.
func setClass(ctx context.Context, kube client.Reader, name string, spec *kueue.WorkloadSpec) (found bool, err error) {
	class := &kueue.WorkloadPriorityClass{}
	if err := kube.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading WorkloadPriorityClass %s: %w", name, err)
	}
	spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(name)
	spec.Priority = new(class.Value)
	return true, nil
}
