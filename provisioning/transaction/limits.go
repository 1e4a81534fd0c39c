package transaction

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Holdings are the machines that a namespace has: launched for its requests and not ended, or requested by an attempt in flight.
type Holdings struct {
	Machines int
	// Devices of the machines, such as GPUs, by name.
	Devices nodegroups.Resources
	// MicroUSDPerHour is their price, in millionths of a USD.
	MicroUSDPerHour int64
}

// Add adds so many machines of a group.
func (h *Holdings) Add(g *nodegroups.Group, count int) {
	h.Machines += count
	h.MicroUSDPerHour = nodegroups.Plus(h.MicroUSDPerHour, nodegroups.Times(int64(count), g.MicroUSDPerHour))
	if h.Devices == nil {
		h.Devices = nodegroups.Resources{}
	}
	for name, amount := range g.Promised {
		if nodegroups.Extended(name) {
			h.Devices[name] = nodegroups.Plus(h.Devices[name], nodegroups.Times(int64(count), amount))
		}
	}
}

// Limit is what a CapacityPolicy lets a namespace have.
type Limit struct {
	// Policy by name.
	Policy string
	// Machines; negative without a bound.
	Machines int
	// Devices by name; a missing one has no limit.
	Devices nodegroups.Resources
	// MicroUSDPerHour; negative for no limit.
	MicroUSDPerHour int64
}

// LimitFrom reads the limits of a CapacityPolicy.
func LimitFrom(policy string, l *v1alpha1.CapacityLimits) Limit {
	out := Limit{Policy: policy, Machines: -1, Devices: nodegroups.ResourcesFrom(l.Devices), MicroUSDPerHour: -1}
	if l.Machines != nil {
		out.Machines = int(*l.Machines)
	}
	if l.PricePerHour != nil {
		out.MicroUSDPerHour = nodegroups.MicroUSD(l.PricePerHour)
	}
	return out
}

// NamespacesOf returns the selector of a CapacityPolicy's namespaces. An invalid selector selects all namespaces rather than none.
func NamespacesOf(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything()
	}
	return selector
}
