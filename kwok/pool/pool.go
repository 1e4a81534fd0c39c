// Package pool is the engine of simulated pools of machines: what a launch gets, when the cloud refuses, and what becomes of each
// machine. It is a function of its input: no clock, no client, no shared randomness.
//
// A pool has a script and provides machines. The ordinal of a machine is its place among all machines that the pool ever provided. A
// domain is, for example, a rack that some of them are in. A fault is scripted. The fate of a machine depends on the script, its ordinal
// and its domain alone, so that neither the order nor the size of calls changes it. Its domain depends on the free capacity.
package pool

import (
	"fmt"
	"time"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Pool is where machines come from.
type Pool struct {
	// Script says what the pool holds and what goes wrong.
	Script v1alpha1.KwokPool
	// Created is the time from which the times of faults count.
	Created time.Time
	// MaxMachines is the number of live machines that the owner allows.
	MaxMachines int
}

// State is what a pool has given so far.
type State struct {
	// Live is the number of machines that are booting or running.
	Live int
	// Next is the ordinal of the next machine.
	Next int64
	// InDomain counts the live machines in each domain of the pool.
	InDomain map[string]int
}

// Machine is what a launch gets, with its fate.
type Machine struct {
	Ordinal int64
	// Domain that the machine is in, shown by the DomainLabels of its node; empty where the pool has none.
	Domain       string
	DomainLabels map[string]string
	// LabelDelay is the time from the registration of its node to the labels of its domain.
	LabelDelay time.Duration
	// BootDelay is the time from the launch to the registration of its node.
	BootDelay time.Duration
	// DieAfter is the time from the launch to its death while it boots; nil
	// machines live to register their node.
	DieAfter *time.Duration
	// DeviceDelay is the time from the start of the device plugin's pod to its
	// extended resources.
	DeviceDelay time.Duration
	// Vanishes is when its extended resources are not there for a while; nil machines keep
	// them.
	Vanishes *kwokv1alpha1.DeviceGap
	// ReclaimAfter is the time from registration to its being taken away; nil
	// machines stay.
	ReclaimAfter *time.Duration
}

// Codes of the refusals that a pool makes up itself.
const (
	CodeNoCapacity  = "InsufficientCapacity"
	CodeMaxMachines = "MaxNodesExceeded"
)

// Launch requests count machines at the time now. It returns the machines that the pool provides, in the order of their ordinals from
// state.Next on, and a refusal when they are fewer than count. A pool that runs out provides some and refuses the rest; all other
// refusals provide none.
func (p Pool) Launch(state State, count int, now time.Time) ([]Machine, *v1alpha1.KwokError) {
	if refusal := p.refuse(state, count, now); refusal != nil {
		return nil, refusal
	}
	holds := p.holds(now)
	got := max(0, min(count, holds-state.Live))
	var domains []string
	if p.Script.Domains != nil {
		domains = p.deal(state, got, now)
		got = len(domains)
	}
	machines := make([]Machine, 0, got)
	for i := range got {
		domain := ""
		if domains != nil {
			domain = domains[i]
		}
		machines = append(machines, p.machine(state.Next+int64(i), domain, now))
	}
	if got < count && got < holds-state.Live {
		return machines, &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
			Message: fmt.Sprintf("the domains of the pool have room for %d of %d machines (placement %s)", got, count, p.Script.Domains.Placement)}
	}
	if got < count {
		return machines, &v1alpha1.KwokError{Class: v1alpha1.Stockout, Code: CodeNoCapacity,
			Message: fmt.Sprintf("the pool holds %d machines and %d are in use: asked for %d, got %d", holds, state.Live, count, got)}
	}
	return machines, nil
}

// refuse returns why the launch fails as a whole. As in a cloud, that is checked before the stock, and the owner's own limit first of
// all.
func (p Pool) refuse(state State, count int, now time.Time) *v1alpha1.KwokError {
	if state.Live+count > p.MaxMachines {
		return &v1alpha1.KwokError{Class: v1alpha1.Quota, Code: CodeMaxMachines,
			Message: fmt.Sprintf("asked for %d machines beside the %d that exist, and the group may have %d: raise spec.maxNodes",
				count, state.Live, p.MaxMachines)}
	}
	for _, fault := range p.Script.Faults {
		if fault.Type == v1alpha1.FaultLaunchError && fault.Error != nil && p.active(fault, now) {
			refusal := *fault.Error
			return &refusal
		}
	}
	return nil
}

// holds is how many machines the pool has now, including those in use. More may be in use: a
// drought does not terminate machines.
func (p Pool) holds(now time.Time) int {
	holds := p.MaxMachines
	if p.Script.Holds != nil {
		holds = min(holds, int(*p.Script.Holds))
	}
	for _, fault := range p.Script.Faults {
		if fault.Type == v1alpha1.FaultDry && p.active(fault, now) {
			holds = min(holds, int(fault.Holds))
		}
	}
	return holds
}

// active says whether now is in the time of the fault: from, but not until.
func (p Pool) active(fault v1alpha1.KwokFault, now time.Time) bool {
	age := now.Sub(p.Created)
	return (fault.From == nil || age >= fault.From.Duration) &&
		(fault.Until == nil || age < fault.Until.Duration)
}
