package fit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Port is a port of the node that a pod takes for itself.
type Port struct {
	// IP of the node that it listens on; allIPs for every one.
	IP       string
	Protocol corev1.Protocol
	Number   int32
}

// allIPs is how the scheduler knows a port on every IP. The IPv6 wildcard is an IP
// like any other to it.
const allIPs = "0.0.0.0"

func (p Port) String() string { return fmt.Sprintf("%s:%d/%s", p.IP, p.Number, p.Protocol) }

func (p Port) conflicts(q Port) bool {
	return p.Number == q.Number && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == allIPs || q.IP == allIPs)
}

// Ports are the host ports of a pod. One pod may name the same port twice; two pods
// on one node may not, so a pod with ports conflicts with its own kind.
type Ports []Port

// Conflict returns the first port of p that a pod with the ports q keeps it from.
func (p Ports) Conflict(q Ports) (Port, bool) {
	for _, a := range p {
		for _, b := range q {
			if a.conflicts(b) {
				return a, true
			}
		}
	}
	return Port{}, false
}

// hostPorts of the containers that run as long as the pod does. In a pod of the host
// network all container ports are host ports, as the API server will write there.
func hostPorts(spec *corev1.PodSpec) (out Ports) {
	read := func(c *corev1.Container) {
		for _, p := range c.Ports {
			port := Port{IP: p.HostIP, Protocol: p.Protocol, Number: p.HostPort}
			if port.Number == 0 && spec.HostNetwork {
				port.Number = p.ContainerPort
			}
			if port.Number <= 0 {
				continue
			}
			if port.IP == "" {
				port.IP = allIPs
			}
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			out = append(out, port)
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			read(c)
		}
	}
	for i := range spec.Containers {
		read(&spec.Containers[i])
	}
	return out
}
