package cache

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fit"
)

// PodRules are what the LimitRanges of a namespace say together of each container and
// of each pod: the strictest bounds, and of the defaults the first by the name of the
// LimitRange, while the API server takes any.
type PodRules struct {
	Container, Pod corev1.LimitRangeItem
}

func rulesOf(ranges map[string]*corev1.LimitRange) (out PodRules) {
	for _, name := range slices.Sorted(maps.Keys(ranges)) {
		for _, item := range ranges[name].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				out.Container = stricter(out.Container, item)
			case corev1.LimitTypePod:
				out.Pod = stricter(out.Pod, item)
			}
		}
	}
	return out
}

func stricter(a, b corev1.LimitRangeItem) corev1.LimitRangeItem {
	return corev1.LimitRangeItem{
		Max: pick(a.Max, b.Max, -1), Min: pick(a.Min, b.Min, +1), MaxLimitRequestRatio: pick(a.MaxLimitRequestRatio, b.MaxLimitRequestRatio, -1),
		Default: withDefaults(a.Default, b.Default), DefaultRequest: withDefaults(a.DefaultRequest, b.DefaultRequest),
	}
}

// pick has the larger amounts of two lists with the sign 1, the smaller with -1.
func pick(a, b corev1.ResourceList, sign int) corev1.ResourceList {
	out := withDefaults(a, b)
	for name, v := range b {
		if have := out[name]; v.Cmp(have) == sign {
			out[name] = v
		}
	}
	return out
}

// CompletePodSpec is a pod's spec with what the API server will add to it that counts: the
// defaults of LimitRanges and the overhead of the RuntimeClass. It shares the rest with
// spec, and is spec itself where nothing is added.
func (s *Cache) CompletePodSpec(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	if spec.RuntimeClassName != nil && spec.Overhead == nil {
		if class := s.Runtimes[*spec.RuntimeClassName]; class != nil && class.Overhead != nil {
			out := *spec
			out.Overhead = class.Overhead.PodFixed
			spec = &out
		}
	}
	ns := s.Namespaces[namespace]
	if ns == nil || len(ns.Rules.Container.Default)+len(ns.Rules.Container.DefaultRequest) == 0 {
		return spec
	}
	// A limit is the request where there is none, before any default is.
	out := *fit.WithRequests(spec)
	out.InitContainers, out.Containers = slices.Clone(out.InitContainers), slices.Clone(out.Containers)
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Limits, r.Requests = withDefaults(r.Limits, ns.Rules.Container.Default), withDefaults(r.Requests, ns.Rules.Container.DefaultRequest)
		}
	}
	return &out
}

// setRuntime takes in a RuntimeClass, and deleteRuntime takes it out.
func (s *Cache) setRuntime(o *nodev1.RuntimeClass) {
	s.Runtimes[o.Name] = o
	s.rereadPods(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func (s *Cache) deleteRuntime(o *nodev1.RuntimeClass) {
	delete(s.Runtimes, o.Name)
	s.rereadPods(func(w *Workload) bool { return runsBy(w, o.Name) })
}

func runsBy(w *Workload, class string) bool {
	return slices.ContainsFunc(w.Object.Spec.PodSets, func(ps kueue.PodSet) bool {
		name := ps.Template.Spec.RuntimeClassName
		return name != nil && *name == class
	})
}

// rereadPods works out again what the pods of Workloads ask for. Those with quota keep what
// they have until they queue again.
func (s *Cache) rereadPods(of func(*Workload) bool) {
	for uid, w := range s.Workloads {
		if !of(w) {
			continue
		}
		s.remove(w)
		w.Pod = nil
		s.read(w, w.Object)
		s.add(w)
		s.Due[uid] = w
	}
}
