package state

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
)

// Reduce removes what is not used of a pod: it keeps one container with the requests of all, and the end of the last one. Most of a cached
// pod is the spec and status of its containers.
func Reduce(p *corev1.Pod) {
	requests := fit.PodRequests(p)
	if !maps.Equal(requests, fit.PodRequests(&corev1.Pod{Spec: p.Spec})) {
		return // it is being resized: its requests differ from those of its replacement
	}
	end := EndOf(p)
	requests[corev1.ResourcePods]--
	for name, amount := range nodegroups.ResourcesFrom(p.Spec.Overhead) {
		requests[name] -= amount
	}
	one := corev1.Container{Name: "all"}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			one.Ports = append(one.Ports, c.Ports...)
		}
	}
	for i := range p.Spec.Containers {
		one.Ports = append(one.Ports, p.Spec.Containers[i].Ports...)
	}
	one.Ports = slices.DeleteFunc(one.Ports, func(c corev1.ContainerPort) bool { return c.HostPort == 0 && !p.Spec.HostNetwork })
	one.Resources.Requests = requests.List()
	for name, q := range one.Resources.Requests {
		if q.IsZero() {
			delete(one.Resources.Requests, name)
		}
	}
	p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers, p.Spec.Resources = []corev1.Container{one}, nil, nil, nil
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
	})
	p.Spec.Volumes = slices.Clip(p.Spec.Volumes)
	p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses, p.Status.ContainerStatuses = nil, nil, nil
	if end.After(p.CreationTimestamp.Time) {
		last := corev1.ContainerStatus{Name: one.Name}
		last.State.Terminated = &corev1.ContainerStateTerminated{}
		last.State.Terminated.FinishedAt.Time = end
		p.Status.ContainerStatuses = []corev1.ContainerStatus{last}
	}
}
