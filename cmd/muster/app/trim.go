package app

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/state"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// trim removes what is never read of objects before they are cached: managed fields; the pod sets of finished Workloads and what
// they were assigned, which are most of a Workload, and clusters keep finished Workloads for weeks; the images that a kubelet lists
// in its Node; and what containers run, of pods that are no jobs themselves.
func trim(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *kueue.Workload:
		if workloads.IsFinished(o) {
			o.Spec.PodSets = nil
			if o.Status.Admission != nil {
				o.Status.Admission.PodSetAssignments = nil
			}
		}
	case *corev1.Node:
		o.Status.Images = nil
	case *corev1.Pod:
		if o.Labels[workloads.ManagedLabel] != "true" {
			state.Reduce(o)
		}
	}
	return object, nil
}
