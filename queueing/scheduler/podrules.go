package scheduler

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/cache"
)

// Why the API server would reject pods, in Kueue's words.
const (
	invalidResources    = "resources validation failed"
	requestsAboveLimits = "requests must not exceed its limits"
	belowContainers     = "must not be less than the requests of all containers"
	unsatisfiedRanges   = "resources didn't satisfy LimitRange constraints"
	aboveMax            = "requests must not be above the limitRange max"
	belowMin            = "requests must not be below the limitRange min"
	aboveRatio          = "limits must not be above the limitRange maxLimitRequestRatio times the requests"
)

// invalidPods returns why the API server would reject the pods of a Workload: a container requests more than its limit,
// a pod requests less than its containers, or a LimitRange is violated.
func (s *Cycle) invalidPods(w *cache.Workload) string {
	var rules cache.PodRules
	if ns := s.cache.Namespaces[w.Object.Namespace]; ns != nil {
		rules = ns.Rules
	}
	var invalid, outside field.ErrorList
	for i := range w.Object.Spec.PodSets {
		spec := fit.WithRequests(s.cache.CompletePodSpec(w.Object.Namespace, &w.Object.Spec.PodSets[i].Template.Spec))
		path := field.NewPath("spec", "podSets").Index(i).Child("template", "spec")
		each := func(r *corev1.ResourceRequirements, at *field.Path) {
			if names := exceeding(r.Requests, r.Limits); len(names) > 0 {
				invalid = append(invalid, field.Invalid(at, names, requestsAboveLimits))
			}
		}
		for j := range spec.InitContainers {
			at := path.Child("initContainers").Index(j)
			each(&spec.InitContainers[j].Resources, at)
			outside = append(outside, violations(&rules.Container, &spec.InitContainers[j].Resources, at)...)
		}
		for j := range spec.Containers {
			at := path.Child("containers").Index(j)
			each(&spec.Containers[j].Resources, at)
			outside = append(outside, violations(&rules.Container, &spec.Containers[j].Resources, at)...)
		}
		if spec.Resources != nil {
			at := path.Child("resources")
			each(spec.Resources, at)
			containers := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
			if names := exceeding(containers, spec.Resources.Requests); len(names) > 0 {
				invalid = append(invalid, field.Invalid(at, names, belowContainers))
			}
		}
		if len(rules.Pod.Max)+len(rules.Pod.Min)+len(rules.Pod.MaxLimitRequestRatio) > 0 {
			outside = append(outside, violations(&rules.Pod, podResources(spec), path)...)
		}
	}
	switch {
	case len(invalid) > 0:
		return fmt.Sprintf("%s: %v; correct the requests or the limits", invalidResources, invalid.ToAggregate())
	case len(outside) > 0:
		return fmt.Sprintf("%s: %v; stay within the LimitRanges of namespace %s, or ask an administrator to change them", unsatisfiedRanges,
			outside.ToAggregate(), w.Object.Namespace)
	}
	return ""
}

// podResources returns the resources of a pod as a LimitRange counts them, without overhead.
func podResources(spec *corev1.PodSpec) *corev1.ResourceRequirements {
	pod, without := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return &corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, without), Limits: resourcehelper.PodLimits(pod, without)}
}

// violations returns the rules of a LimitRange that the resources violate. A resource without a limit exceeds any max,
// and one without a request is below any min.
func violations(rule *corev1.LimitRangeItem, r *corev1.ResourceRequirements, at *field.Path) (out field.ErrorList) {
	note := func(bounds corev1.ResourceList, why string, breaks func(bound, request, limit resource.Quantity, limited bool) bool) {
		var names []corev1.ResourceName
		for _, name := range slices.Sorted(maps.Keys(bounds)) {
			limit, limited := r.Limits[name]
			if breaks(bounds[name], r.Requests[name], limit, limited) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			out = append(out, field.Invalid(at, names, why))
		}
	}
	note(rule.Max, aboveMax, func(most, request, limit resource.Quantity, limited bool) bool {
		return !limited || limit.Cmp(most) > 0 || request.Cmp(most) > 0
	})
	note(rule.Min, belowMin, func(least, request, limit resource.Quantity, limited bool) bool {
		return request.Cmp(least) < 0 || limited && limit.Cmp(least) < 0
	})
	note(rule.MaxLimitRequestRatio, aboveRatio, func(ratio, request, limit resource.Quantity, limited bool) bool {
		return !limited || limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64()
	})
	return out
}

// exceeding returns the resources whose requests exceed the limits.
func exceeding(requests, limits corev1.ResourceList) (out []corev1.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if limit, ok := limits[name]; ok && requests.Name(name, resource.DecimalSI).Cmp(limit) > 0 {
			out = append(out, name)
		}
	}
	return out
}
