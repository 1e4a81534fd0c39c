package pool

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// machine is the fate of the machine with the given ordinal, launched at now in the domain.
// Where several faults hit it, the earliest death and the earliest reclaim count,
// the delays of devices add up, and the first in the script makes them vanish.
func (p Pool) machine(ordinal int64, domain string, now time.Time) Machine {
	script := p.Script
	m := Machine{
		Ordinal:     ordinal,
		Domain:      domain,
		BootDelay:   script.BootDelay.Duration + p.draw(ordinal, wholePool, "boot jitter").upTo(script.BootJitter.Duration),
		DeviceDelay: script.DeviceDelay.Duration,
	}
	if all := script.Domains; all != nil {
		m.LabelDelay = all.LabelDelay.Duration
		if i := slices.IndexFunc(all.Of, func(d v1alpha1.KwokDomain) bool { return d.Name == domain }); i >= 0 {
			m.DomainLabels = all.Of[i].NodeLabels(all.NodeLabel)
		}
	}
	for i, fault := range script.Faults {
		if fault.Type == v1alpha1.FaultDomainLoss {
			m.loseDomain(fault, p.Created, now)
			continue
		}
		if !p.active(fault, now) || !p.hits(fault, i, ordinal) {
			continue
		}
		switch fault.Type {
		case v1alpha1.FaultBootDeath:
			after := m.BootDelay / 2
			if fault.After != nil {
				after = fault.After.Duration
			}
			m.DieAfter = earlier(m.DieAfter, after)
		case v1alpha1.FaultReclaim:
			if fault.After != nil {
				m.ReclaimAfter = earlier(m.ReclaimAfter, fault.After.Duration)
			}
		case v1alpha1.FaultDevicesVanish:
			if m.Vanishes == nil {
				m.Vanishes = &kwokv1alpha1.DeviceGap{After: orZero(fault.After), For: orZero(fault.For)}
			}
		case v1alpha1.FaultLateDevices:
			if fault.After != nil {
				m.DeviceDelay += fault.After.Duration
			}
		}
	}
	return m
}

// hits says whether the fault, the index-th of the script, is for this machine.
func (p Pool) hits(fault v1alpha1.KwokFault, index int, ordinal int64) bool {
	switch {
	case len(fault.Machines) > 0:
		return slices.Contains(fault.Machines, ordinal)
	case fault.Percent != nil:
		return p.draw(ordinal, index, "percent").percent() < int(*fault.Percent)
	default:
		return true
	}
}

func orZero(d *metav1.Duration) metav1.Duration {
	if d == nil {
		return metav1.Duration{}
	}
	return *d
}

func earlier(a *time.Duration, b time.Duration) *time.Duration {
	if a != nil && *a < b {
		return a
	}
	return &b
}
