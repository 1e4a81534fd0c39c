package provisioning

import (
	"fmt"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Holdings are the machines that a namespace has: launched for its requests and not
// ended, or asked for by an attempt that is under way.
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
	// Devices by name; one that is missing has no bound.
	Devices nodegroups.Resources
	// MicroUSDPerHour; negative without a bound.
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

// plan for the pods that are left of a request's gang, within what its namespace
// may have: over a limit of price there may be a cheaper way.
func (v *View) plan(r *Request, rest Gang) Verdict {
	plan := v.Memo.plan(v.Snapshot, r, rest)
	over := v.over(r, plan)
	if len(over) == 0 {
		return plan
	}
	within := r.Policy
	for _, l := range v.Limits {
		if left := max(0, l.MicroUSDPerHour-v.Has.MicroUSDPerHour); l.MicroUSDPerHour >= 0 && (within.MaxMicroUSDPerHour < 0 || left < within.MaxMicroUSDPerHour) {
			within.MaxMicroUSDPerHour = left
		}
	}
	if plan.MicroUSDPerHour > within.MaxMicroUSDPerHour && within.MaxMicroUSDPerHour >= 0 {
		cheaper := Plan(v.Snapshot, rest, within)
		if (cheaper.Outcome == Launch || cheaper.Outcome == Fits) && len(v.over(r, cheaper)) == 0 {
			return cheaper
		}
	}
	return Verdict{Outcome: Wait, Reasons: over}
}

// over says which limits the launches of a plan would break.
func (v *View) over(r *Request, plan Verdict) (out []Reason) {
	if len(plan.Launches) == 0 || len(v.Limits) == 0 {
		return nil
	}
	var asks Holdings
	for _, l := range plan.Launches {
		if g := v.findGroup(l.Group); g != nil {
			asks.Add(&g.Group, l.Count)
		}
	}
	for _, l := range v.Limits {
		tell := func(field, what string, has, asks, most int64, show func(int64) string) {
			if most >= 0 && nodegroups.Plus(has, asks) > most {
				out = append(out, Reason{Code: CodeLimit, Message: fmt.Sprintf(
					"namespace %s has %s of the %s %s that CapacityPolicy %s lets it have (%s) and the gang needs %s more, %s too many: "+
						"it changes when machines of the namespace are given back, or when an admin raises the field",
					r.Namespace, show(has), show(most), what, l.Policy, field, show(asks), show(nodegroups.Plus(has, asks)-most))})
			}
		}
		tell("spec.limits.machines", "machines", int64(v.Has.Machines), int64(asks.Machines), int64(l.Machines), func(n int64) string { return fmt.Sprint(n) })
		for _, name := range l.Devices.Names() {
			tell(fmt.Sprintf("spec.limits.devices[%q]", name), string(name), v.Has.Devices[name], asks.Devices[name], l.Devices[name],
				func(n int64) string { return nodegroups.Quantity(name, n) })
		}
		tell("spec.limits.pricePerHour", "USD per hour", v.Has.MicroUSDPerHour, asks.MicroUSDPerHour, l.MicroUSDPerHour, USD)
	}
	return out
}
