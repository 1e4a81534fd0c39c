package model

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/provisioning"
)

// holdings are the machines that each namespace has, and what it may have.
type holdings struct {
	// charged is the namespace that each machine counts for.
	charged map[machineKey]string
	// stale machines may count for another one now.
	stale map[machineKey]bool
	// counts of machines by namespace and group; asked are those that attempts in
	// flight have asked for and that have not been seen yet.
	counts, asked map[string]map[string]int

	namespaces map[string]*corev1.Namespace
	// limits by namespace, read when they are asked for; nil where they have to be
	// read again.
	limits map[string][]provisioning.Limit
}

func newHoldings() holdings {
	return holdings{
		charged: map[machineKey]string{}, stale: map[machineKey]bool{},
		counts: map[string]map[string]int{}, asked: map[string]map[string]int{},
		namespaces: map[string]*corev1.Namespace{}, limits: map[string][]provisioning.Limit{},
	}
}

// SetNamespace tells of a Namespace.
func (m *Model) SetNamespace(n *corev1.Namespace) {
	m.update(func() bool {
		old := m.holdings.namespaces[n.Name]
		if !put(m.holdings.namespaces, n.Name, n) {
			return false
		}
		if old == nil || !maps.Equal(old.Labels, n.Labels) {
			delete(m.holdings.limits, n.Name)
			m.budgets.stale = true
			m.rereadAll()
			m.wakeAll()
		}
		return true
	})
}

// DeleteNamespace tells that a Namespace is gone.
func (m *Model) DeleteNamespace(n *corev1.Namespace) {
	m.update(func() bool {
		delete(m.holdings.namespaces, n.Name)
		delete(m.holdings.limits, n.Name)
		m.budgets.stale = true
		return false
	})
}

// limitsOf are the limits of all CapacityPolicies for a namespace, by their names.
func (m *Model) limitsOf(namespace string) []provisioning.Limit {
	if limits, known := m.holdings.limits[namespace]; known {
		return limits
	}
	set := m.labelsOf(namespace)
	var out []provisioning.Limit
	for _, name := range slices.Sorted(maps.Keys(m.policies)) {
		limits := m.policies[name].Spec.Limits
		if limits == nil {
			continue
		}
		if selectorOf(limits.NamespaceSelector).Matches(set) {
			out = append(out, provisioning.LimitFrom(name, limits))
		}
	}
	m.holdings.limits[namespace] = out
	return out
}

// has is what a namespace has and has asked for.
func (m *Model) has(namespace string) (out provisioning.Holdings) {
	for _, counts := range []map[string]int{m.holdings.counts[namespace], m.holdings.asked[namespace]} {
		for group, n := range counts {
			g := m.groups.read[group] // of one that is gone nothing is known but that it has machines
			out.Add(&g.Group, n)
		}
	}
	return out
}

// machineStale notes that something has changed about a machine.
func (m *Model) machineStale(key machineKey) {
	m.accounts.changed(key, m.now())
	m.holdings.stale[key] = true
	note(m.spending.stale, key, m.now())
}

// flushHoldings counts anew what has changed.
func (m *Model) flushHoldings() {
	for key := range m.holdings.stale {
		before, now := m.holdings.charged[key], m.chargedTo(key)
		if before == now {
			continue
		}
		m.holdings.count(before, key.group, -1)
		m.holdings.count(now, key.group, +1)
		if now == "" {
			delete(m.holdings.charged, key)
		} else {
			m.holdings.charged[key] = now
		}
		if before != "" {
			m.wakeAll() // there may be room under a limit
		}
	}
	clear(m.holdings.stale)
}

func (h *holdings) count(namespace, group string, by int) {
	if namespace == "" {
		return
	}
	if h.counts[namespace] == nil {
		h.counts[namespace] = map[string]int{}
	}
	if h.counts[namespace][group] += by; h.counts[namespace][group] == 0 {
		delete(h.counts[namespace], group)
	}
	if len(h.counts[namespace]) == 0 {
		delete(h.counts, namespace)
	}
}

// chargedTo is the namespace that the machine counts for: that of the request that
// it was launched for. Where that is gone, the machine counts as long as it bears
// the booking, and while it joins or goes; a process that has not seen the request
// cannot know of the latter. An idle machine, or one that others have booked,
// counts for nobody then.
func (m *Model) chargedTo(key machineKey) string {
	c, listed := m.groups.machines[key]
	if !listed || !c.Counts() || c.Launch == "" {
		return ""
	}
	uid := provisioning.TokenUID(c.Launch)
	if e := m.requests.byUID[uid]; e != nil {
		return e.object.Namespace
	}
	n := m.nodes.set.Find(m.links.nodes[c.ProviderID])
	if n == nil || n.Cordon == provisioning.Joining || n.Cordon == provisioning.GivingBack {
		return m.holdings.charged[key]
	}
	for i := range n.Labelled {
		if b := &n.Labelled[i]; b.UID == uid {
			return b.Namespace
		}
	}
	return ""
}
