package pool

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// deal says in which domains the machines of a launch are, one for each machine, in their
// order. There are fewer than count where the domains have no room for more.
func (p Pool) deal(state State, count int, now time.Time) []string {
	type domain struct {
		name string
		room int
	}
	var open []domain
	for _, d := range p.Script.Domains.Of {
		if room := int(d.Machines) - state.InDomain[d.Name]; room > 0 && !p.isLost(d.Name, now) {
			open = append(open, domain{d.Name, room})
		}
	}
	out := make([]string, 0, count)
	if len(open) == 0 {
		return out
	}
	emptiestFirst := func(a, b domain) int { return b.room - a.room }
	switch p.Script.Domains.Placement {
	case v1alpha1.PlacedScattered:
		for i := state.Next; len(out) < count && len(open) > 0; i++ {
			at := int(i % int64(len(open)))
			out = append(out, open[at].name)
			if open[at].room--; open[at].room == 0 {
				open = slices.Delete(open, at, at+1)
			}
		}
	case v1alpha1.PlacedOverflow:
		slices.SortStableFunc(open, emptiestFirst)
		for _, d := range open {
			out = append(out, slices.Repeat([]string{d.name}, min(d.room, count-len(out)))...)
		}
	default:
		at := slices.IndexFunc(open, func(d domain) bool { return d.room >= count })
		if at < 0 {
			slices.SortStableFunc(open, emptiestFirst)
			at = 0
		}
		out = append(out, slices.Repeat([]string{open[at].name}, min(open[at].room, count))...)
	}
	return out
}

// isLost reports whether the domain has been lost and is not back yet.
func (p Pool) isLost(domain string, now time.Time) bool {
	return slices.ContainsFunc(p.Script.Faults, func(f v1alpha1.KwokFault) bool {
		return f.Type == v1alpha1.FaultDomainLoss && slices.Contains(f.Domains, domain) && p.active(f, now)
	})
}

// loseDomain ends the machine, launched at now in a pool of that age, when its domain is lost.
func (m *Machine) loseDomain(fault v1alpha1.KwokFault, created, now time.Time) {
	if !slices.Contains(fault.Domains, m.Domain) || fault.From == nil {
		return
	}
	switch left := created.Add(fault.From.Duration).Sub(now); {
	case left <= 0: // it was launched after the loss
	case left < m.BootDelay:
		m.DieAfter = earlier(m.DieAfter, left)
	default:
		m.ReclaimAfter = earlier(m.ReclaimAfter, left-m.BootDelay)
	}
}

// Label sets the domain on the Machine. Its node has it in its labels.
func (m *Machine) Label(o *kwokv1alpha1.Machine) {
	if m.Domain == "" {
		return
	}
	o.Spec.Domain = m.Domain
	if m.LabelDelay > 0 {
		o.Spec.Node.LateLabels = &kwokv1alpha1.LateLabels{
			Labels: maps.Clone(m.DomainLabels), After: metav1.Duration{Duration: m.LabelDelay},
		}
		return
	}
	maps.Copy(o.Spec.Node.Labels, m.DomainLabels)
}
