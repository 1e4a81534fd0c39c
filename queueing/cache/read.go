package cache

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/workload"
)

// CompletePodSpec returns the spec with the defaults of the API server that matter: those of LimitRanges, and the
// overhead, node selector and tolerations of the RuntimeClass. The result shares the rest with spec, and is spec itself
// if nothing is added.
func (s *Cache) CompletePodSpec(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	if spec.RuntimeClassName != nil {
		if class := s.runtimes[*spec.RuntimeClassName]; class != nil {
			spec = workload.ByRuntime(spec, class)
		}
	}
	ns := s.Namespaces[namespace]
	if ns == nil || len(ns.Rules.Container.Default)+len(ns.Rules.Container.DefaultRequest) == 0 {
		return spec
	}
	// A missing request defaults to the limit before any default of a LimitRange.
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

// NewWorkload returns the Workload of an object.
func (s *Cache) NewWorkload(object *kueue.Workload) *Workload {
	w := &Workload{}
	s.read(w, object)
	return w
}

// read updates a Workload to a version of its object. It derives what depends only on the spec once.
func (s *Cache) read(w *Workload, object *kueue.Workload) {
	old := w.Object
	w.Object = object
	w.Priority, w.Since = workload.Priority(object), s.queuedSince(object)
	w.HasTerms, w.Plain = false, isPlain(object)
	for name := range object.Annotations {
		w.HasTerms = w.HasTerms || strings.HasPrefix(name, workload.ParameterPrefix)
	}
	if old == nil || old.UID != object.UID || old.Generation != object.Generation || len(w.Pod) != len(object.Spec.PodSets) {
		w.Pod, w.Requests, w.OnNode, w.Keys, w.refusedClaims, w.sourced = nil, nil, nil, nil, nil, false
		for i := range object.Spec.PodSets {
			spec := s.CompletePodSpec(object.Namespace, &object.Spec.PodSets[i].Template.Spec)
			w.Requests = append(w.Requests, workload.PodRequests(spec))
			requests, why := s.claimed(object.Namespace, &object.Spec.PodSets[i], w.Requests[i])
			if why != "" {
				w.refusedClaims = append(w.refusedClaims, why)
			}
			if len(s.devices.byName) > 0 {
				w.OnNode = append(w.OnNode, s.onNode(object.Namespace, spec, w.Requests[i]))
			}
			w.sourced = w.sourced || len(s.sourcesOf) > 0 && len(spec.ResourceClaims) > 0
			w.Pod = append(w.Pod, s.counted(requests))
			w.Keys = append(w.Keys, fit.SelectedKeys(spec)...)
		}
		if w.OnNode == nil {
			w.OnNode = w.Requests // the common case
		}
		w.Shape = shapeOf(object.Spec.PodSets, w.Pod)
	}
	w.Usage = workload.UsageOf(object)
	w.TopologyUsage = s.topologyUsageOf(w)
}

// queuedSince returns the time that orders the Workload among those of equal priority. An attempt that an admission
// check ended moves it to the back. So does one that ended because its pods were rejected or not ready, unless the
// configuration orders those by creation.
func (s *Settings) queuedSince(w *kueue.Workload) time.Time {
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Status == metav1.ConditionTrue {
		switch evicted.Reason {
		case kueue.WorkloadEvictedByAdmissionCheck:
			return evicted.LastTransitionTime.Time
		case kueue.WorkloadEvictedByPodsReadyTimeout, workload.ReasonPodsRefused:
			if !s.keepsPlace() {
				return evicted.LastTransitionTime.Time
			}
		}
	}
	return workload.WaitsSince(w)
}

// keepsPlace reports whether Workloads whose pods were not ready in time are ordered by creation.
func (s *Settings) keepsPlace() bool {
	c := s.Config.WaitForPodsReady
	return c != nil && c.RequeuingStrategy != nil && c.RequeuingStrategy.Timestamp != nil &&
		*c.RequeuingStrategy.Timestamp == kueueconfig.CreationTimestamp
}
