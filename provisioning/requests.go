package provisioning

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/muster-dev/muster/nodegroups"
)

// PodRequests is the room that an existing pod takes on its node, itself as one of
// the node's pods included.
func PodRequests(pod *corev1.Pod) nodegroups.Resources {
	r := nodegroups.ResourcesFrom(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r[corev1.ResourcePods]++
	return r
}

// TemplateRequests is the room that a pod of the template's spec will take.
func TemplateRequests(spec *corev1.PodSpec) nodegroups.Resources {
	return PodRequests(&corev1.Pod{Spec: *WithRequests(spec)})
}

// WithRequests is the spec with the requests that the API server will fill in from
// the limits when it creates a pod; it does not in a template.
func WithRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	spec = spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for name, limit := range r.Limits {
				if _, ok := r.Requests[name]; !ok {
					if r.Requests == nil {
						r.Requests = corev1.ResourceList{}
					}
					r.Requests[name] = limit
				}
			}
		}
	}
	if spec.Resources != nil && len(spec.Resources.Limits) > 0 {
		podLevelRequests(spec)
	}
	return spec
}

// podLevelRequests are for those resources that the pod as a whole has a limit
// for: what its containers ask for, and the limit where they ask for nothing.
func podLevelRequests(spec *corev1.PodSpec) {
	containers := resource.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
	if spec.Resources.Requests == nil {
		spec.Resources.Requests = corev1.ResourceList{}
	}
	for name, limit := range spec.Resources.Limits {
		_, set := spec.Resources.Requests[name]
		switch asked, ok := containers[name]; {
		case set || !resource.IsSupportedPodLevelResource(name):
		case ok && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			spec.Resources.Requests[name] = asked
		default:
			spec.Resources.Requests[name] = limit
		}
	}
}
