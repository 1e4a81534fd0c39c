package app

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/state"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// published shares equal lists of devices between ResourceSlices.
var published devices.Reducer

// trim removes fields that Muster does not read before objects are cached: managed fields; the pod sets and assignments of finished
// Workloads, which are most of a Workload and which clusters keep for weeks; the image list of a Node; the containers of pods that
// are not queued; and the identifying attributes of devices in ResourceSlices.
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
	case *resourcev1.ResourceSlice:
		published.Reduce(o)
	case *corev1.Pod:
		if o.Labels[workloads.ManagedLabel] != "true" {
			state.Reduce(o)
		}
	}
	return object, nil
}
