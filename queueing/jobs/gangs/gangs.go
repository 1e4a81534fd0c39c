// Package gangs keeps the PodGroups of scheduling.k8s.io by which kube-scheduler places the pods
// of a job together.
package gangs

import (
	"context"
	"fmt"
	"slices"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is the version of the API in Kubernetes 1.37, the only one that is used.
var Kind = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")

// Gang is what a PodGroup is made of.
type Gang struct {
	Pods int32
	// PriorityClass is that of all its pods: kube-scheduler binds none whose priority differs from that of its group.
	PriorityClass string
	// Level is the node label of the one domain that its pods are in, or empty. API servers without the feature
	// TopologyAwareWorkloadScheduling drop it.
	Level string
}

// Create creates a PodGroup, unless it is there.
func Create(ctx context.Context, kube client.Client, meta metav1.ObjectMeta, gang Gang) error {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: meta}
	if gang.Level != "" {
		group.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{
			Topology: []schedulingv1beta1.TopologyConstraint{{Key: gang.Level}},
		}
	}
	group.Spec.PriorityClassName = gang.PriorityClass
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: gang.Pods}
	if err := kube.Create(ctx, group); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}

// Leave deletes the PodGroups of a job but one, and reports whether there were any: those of
// earlier starts, and that which the Job controller makes for each Job where the feature
// WorkloadWithJob is on. No pod of a queued Job is in that one, whose condition would say for good
// that nothing has been bound.
func Leave(ctx context.Context, kube client.Client, live client.Reader, job client.Object, but string) (left bool, err error) {
	var list schedulingv1beta1.PodGroupList
	if err := live.List(ctx, &list, client.InNamespace(job.GetNamespace())); err != nil {
		return false, fmt.Errorf("listing the PodGroups of namespace %s: %w", job.GetNamespace(), err)
	}
	for i := range list.Items {
		group := &list.Items[i]
		if group.Name == but || !slices.ContainsFunc(group.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == job.GetUID() }) {
			continue
		}
		left = true
		// It would be made again as long as there is the object that it comes from.
		if from := group.Spec.WorkloadRef; metav1.IsControlledBy(group, job) && from != nil {
			w := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: from.WorkloadName}}
			if err := kube.Delete(ctx, w); client.IgnoreNotFound(err) != nil {
				return left, fmt.Errorf("deleting Workload %s/%s of scheduling.k8s.io: %w", w.Namespace, w.Name, err)
			}
		}
		if err := kube.Delete(ctx, group, client.Preconditions{UID: &group.UID}); client.IgnoreNotFound(err) != nil {
			return left, fmt.Errorf("deleting PodGroup %s/%s: %w", group.Namespace, group.Name, err)
		}
	}
	return left, nil
}
