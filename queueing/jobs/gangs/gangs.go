// Package gangs keeps the PodGroups of scheduling.k8s.io by which kube-scheduler places the pods
// of a job together.
package gangs

import (
	"context"
	"fmt"
	"slices"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is the version of the API in Kubernetes 1.36, the only one that is used.
var Kind = schedulingv1alpha2.SchemeGroupVersion.WithKind("PodGroup")

// Create creates a PodGroup of as many pods, unless it is there. They are in one domain of the node label
// level, unless that is empty. API servers without the feature TopologyAwareWorkloadScheduling drop it.
func Create(ctx context.Context, kube client.Client, meta metav1.ObjectMeta, pods int32, level string) error {
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: meta}
	if level != "" {
		group.Spec.SchedulingConstraints = &schedulingv1alpha2.PodGroupSchedulingConstraints{
			Topology: []schedulingv1alpha2.TopologyConstraint{{Key: level}},
		}
	}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: pods}
	if err := kube.Create(ctx, group); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}

// Leave deletes the PodGroups of a job but one, and reports whether there were any: those of
// earlier starts, and that which the Job controller makes for each Indexed Job where the feature
// WorkloadWithJob is on. That one counts the pods of the whole Job for good, so that one that
// starts again for less, or with fewer pods, would never run.
func Leave(ctx context.Context, kube client.Client, live client.Reader, job client.Object, but string) (left bool, err error) {
	var list schedulingv1alpha2.PodGroupList
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
		if from := group.Spec.PodGroupTemplateRef; metav1.IsControlledBy(group, job) && from != nil && from.Workload != nil {
			w := &schedulingv1alpha2.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: from.Workload.WorkloadName}}
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
