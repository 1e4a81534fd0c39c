package queueing

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fit"
)

// podRules are what the LimitRanges of a namespace say together of each container and
// of each pod: the strictest bounds, and of the defaults the first by the name of the
// LimitRange, while the API server takes any.
type podRules struct {
	container, pod corev1.LimitRangeItem
}

func rulesOf(ranges map[string]*corev1.LimitRange) (out podRules) {
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		for _, item := range ranges[name].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				out.container = tightened(out.container, item)
			case corev1.LimitTypePod:
				out.pod = tightened(out.pod, item)
			}
		}
	}
	return out
}

func tightened(a, b corev1.LimitRangeItem) corev1.LimitRangeItem {
	return corev1.LimitRangeItem{
		Max: extreme(a.Max, b.Max, -1), Min: extreme(a.Min, b.Min, +1), MaxLimitRequestRatio: extreme(a.MaxLimitRequestRatio, b.MaxLimitRequestRatio, -1),
		Default: withDefaults(a.Default, b.Default), DefaultRequest: withDefaults(a.DefaultRequest, b.DefaultRequest),
	}
}

// extreme has the larger amounts of two lists with the sign 1, the smaller with -1.
func extreme(a, b corev1.ResourceList, sign int) corev1.ResourceList {
	out := withDefaults(a, b)
	for name, v := range b {
		if have := out[name]; v.Cmp(have) == sign {
			out[name] = v
		}
	}
	return out
}

// complete is a pod's spec with what the API server will add to it that counts: the
// defaults of LimitRanges and the overhead of the RuntimeClass. It shares the rest with
// spec, and is spec itself where nothing is added.
func (s *Cache) complete(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	if spec.RuntimeClassName != nil && spec.Overhead == nil {
		if class := s.runtimes[*spec.RuntimeClassName]; class != nil && class.Overhead != nil {
			out := *spec
			out.Overhead = class.Overhead.PodFixed
			spec = &out
		}
	}
	ns := s.namespaces[namespace]
	if ns == nil || len(ns.rules.container.Default)+len(ns.rules.container.DefaultRequest) == 0 {
		return spec
	}
	// A limit is the request where there is none, before any default is.
	out := *fit.WithRequests(spec)
	out.InitContainers, out.Containers = slices.Clone(out.InitContainers), slices.Clone(out.Containers)
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Limits, r.Requests = withDefaults(r.Limits, ns.rules.container.Default), withDefaults(r.Requests, ns.rules.container.DefaultRequest)
		}
	}
	return &out
}

// What the API server would say of pods, in Kueue's words.
const (
	invalidResources    = "resources validation failed"
	requestsAboveLimits = "requests must not exceed its limits"
	unsatisfiedRanges   = "resources didn't satisfy LimitRange constraints"
	aboveMax            = "requests must not be above the limitRange max"
	belowMin            = "requests must not be below the limitRange min"
	aboveRatio          = "limits must not be above the limitRange maxLimitRequestRatio times the requests"
)

// refusedPods says why the API server would create no pod of a Workload: containers
// that ask for more than their own limits, or that break a LimitRange.
func (s *Cache) refusedPods(w *Workload) string {
	var rules podRules
	if ns := s.namespaces[w.Object.Namespace]; ns != nil {
		rules = ns.rules
	}
	var invalid, outside field.ErrorList
	for i := range w.Object.Spec.PodSets {
		spec := fit.WithRequests(s.complete(w.Object.Namespace, &w.Object.Spec.PodSets[i].Template.Spec))
		path := field.NewPath("spec", "podSets").Index(i).Child("template", "spec")
		each := func(r *corev1.ResourceRequirements, at *field.Path) {
			if names := exceeding(r.Requests, r.Limits); len(names) > 0 {
				invalid = append(invalid, field.Invalid(at, names, requestsAboveLimits))
			}
		}
		for j := range spec.InitContainers {
			at := path.Child("initContainers").Index(j)
			each(&spec.InitContainers[j].Resources, at)
			outside = append(outside, broken(&rules.container, &spec.InitContainers[j].Resources, at)...)
		}
		for j := range spec.Containers {
			at := path.Child("containers").Index(j)
			each(&spec.Containers[j].Resources, at)
			outside = append(outside, broken(&rules.container, &spec.Containers[j].Resources, at)...)
		}
		if spec.Resources != nil {
			each(spec.Resources, path.Child("resources"))
		}
		if len(rules.pod.Max)+len(rules.pod.Min)+len(rules.pod.MaxLimitRequestRatio) > 0 {
			outside = append(outside, broken(&rules.pod, podResources(spec), path)...)
		}
	}
	switch {
	case len(invalid) > 0:
		return fmt.Sprintf("%s: %v; correct the requests or the limits", invalidResources, invalid.ToAggregate())
	case len(outside) > 0:
		return fmt.Sprintf("%s: %v; keep within the LimitRanges of namespace %s, or have them changed", unsatisfiedRanges, outside.ToAggregate(), w.Object.Namespace)
	}
	return ""
}

// podResources are those of a whole pod as a LimitRange counts them, without overhead.
func podResources(spec *corev1.PodSpec) *corev1.ResourceRequirements {
	pod, without := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return &corev1.ResourceRequirements{Requests: resourcehelper.PodRequests(pod, without), Limits: resourcehelper.PodLimits(pod, without)}
}

// broken are the rules that resources break. What has no limit is above any max, and
// what has no request below any min.
func broken(rule *corev1.LimitRangeItem, r *corev1.ResourceRequirements, at *field.Path) (out field.ErrorList) {
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

// exceeding are the resources of which more is requested than the limit.
func exceeding(requests, limits corev1.ResourceList) (out []corev1.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if limit, ok := limits[name]; ok && requests.Name(name, resource.DecimalSI).Cmp(limit) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// setRuntime takes in a RuntimeClass, and deleteRuntime takes it out.
func (s *Cache) setRuntime(o *nodev1.RuntimeClass) {
	s.runtimes[o.Name] = o
	s.reread(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func (s *Cache) deleteRuntime(o *nodev1.RuntimeClass) {
	delete(s.runtimes, o.Name)
	s.reread(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func runsBy(w *Workload, class string) bool {
	return slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
		name := ps.Template.Spec.RuntimeClassName
		return name != nil && *name == class
	})
}

// reread works out again what the pods of Workloads ask for. Those with quota keep what
// they have until they queue again.
func (s *Cache) reread(of func(*Workload) bool) {
	for uid, w := range s.workloads {
		if !of(w) {
			continue
		}
		s.leave(w)
		w.Pod = nil
		s.read(w, w.Object)
		s.enter(w)
		s.due[uid] = w
	}
}
