package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/muster-dev/muster/nodegroups"
)

// PodRequests is the room that an existing pod takes on its node, itself as one of
// the node's pods included. A pod that is being resized takes the larger of what it
// has and what it is to get, until the resize is done or given up.
func PodRequests(pod *corev1.Pod) nodegroups.Resources {
	r := nodegroups.ResourcesFrom(resource.PodRequests(pod, resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	r[corev1.ResourcePods]++
	return r
}

// TemplateRequests is the room that a pod of the template's spec will take.
func TemplateRequests(spec *corev1.PodSpec) nodegroups.Resources {
	return PodRequests(&corev1.Pod{Spec: *WithRequests(spec)})
}

// WithRequests is the spec with the requests that the API server will fill in from
// the limits when it creates a pod; it does not in a template. The result shares
// with spec all that it does not change, and is spec itself where nothing is missing.
func WithRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	podLevel := spec.Resources != nil && len(spec.Resources.Limits) > 0
	if !podLevel && !slices.ContainsFunc(spec.Containers, lacksRequests) && !slices.ContainsFunc(spec.InitContainers, lacksRequests) {
		return spec
	}
	out := *spec
	out.Containers = containersWithRequests(spec.Containers)
	out.InitContainers = containersWithRequests(spec.InitContainers)
	if podLevel {
		out.Resources = podLevelRequests(&out)
	}
	return &out
}

// lacksRequests reports whether a limit of the container has no request beside it.
func lacksRequests(c corev1.Container) bool {
	for name := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			return true
		}
	}
	return false
}

func containersWithRequests(containers []corev1.Container) []corev1.Container {
	out := slices.Clone(containers)
	for i := range out {
		if !lacksRequests(out[i]) {
			continue
		}
		r := &out[i].Resources
		requests := make(corev1.ResourceList, len(r.Limits))
		for name, limit := range r.Limits {
			requests[name] = limit
		}
		for name, request := range r.Requests {
			requests[name] = request
		}
		r.Requests = requests
	}
	return out
}

// podLevelRequests are for those resources that the pod as a whole has a limit
// for: what its containers request, and the limit where they request nothing.
func podLevelRequests(spec *corev1.PodSpec) *corev1.ResourceRequirements {
	containers := resource.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
	out := *spec.Resources
	out.Requests = make(corev1.ResourceList, len(out.Limits))
	for name, limit := range out.Limits {
		switch requested, ok := containers[name]; {
		case !resource.IsSupportedPodLevelResource(name):
		case ok && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			out.Requests[name] = requested
		default:
			out.Requests[name] = limit
		}
	}
	for name, request := range spec.Resources.Requests {
		out.Requests[name] = request
	}
	return &out
}
