package model

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning"
)

// accounts follow what machines are for. They cost by what changes.
type accounts struct {
	// book is nil while nobody keeps accounts.
	book *provisioning.Account
	// stale machines may be for something else now.
	stale map[machineKey]span
}

// span is when a machine changed for the first and for the last time since it was
// put down.
type span struct{ first, last time.Time }

// note that a machine changed now.
func note(stale map[machineKey]span, key machineKey, now time.Time) {
	s, before := stale[key]
	if !before {
		s.first = now
	}
	s.last = now
	stale[key] = s
}

func (a *accounts) changed(key machineKey, now time.Time) {
	if a.book != nil {
		note(a.stale, key, now)
	}
}

// OpenAccount begins to add up what machines live for, from nothing. The one who
// decides keeps it: two that add up the same machines would tell twice what they
// cost.
func (m *Model) OpenAccount() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts = accounts{book: provisioning.NewAccount(), stale: map[machineKey]span{}}
	m.nodes.relaunched = map[types.UID]bool{}
	for key := range m.groups.machines {
		m.accounts.changed(key, m.now())
	}
	m.flush()
	m.spending.meterAll(m.now())
}

// CloseAccount ends it.
func (m *Model) CloseAccount() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts, m.nodes.relaunched, m.spending.meters = accounts{}, nil, nil
}

// Amounts are those of the account, if it is open.
func (m *Model) Amounts(now time.Time) map[provisioning.Post]provisioning.Amount {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.accounts.book == nil {
		return nil
	}
	m.flush()
	return m.accounts.book.Amounts(now)
}

// flushAccounts puts down what has changed.
func (m *Model) flushAccounts() {
	if m.accounts.book == nil {
		return
	}
	for uid := range m.nodes.relaunched {
		for key := range m.links.lone[uid] {
			m.accounts.changed(key, m.now())
		}
	}
	for key, s := range m.accounts.stale {
		name := key.group + "/" + key.name
		c, listed := m.groups.machines[key]
		if !listed || !c.Counts() {
			m.accounts.book.Remove(name, s.last)
			continue
		}
		m.accounts.book.Put(name, key.group, m.purpose(c), m.spending.prices[key.group], s.first)
	}
	clear(m.accounts.stale)
	clear(m.nodes.relaunched)
}

func (m *Model) purpose(c cloudprovider.Machine) provisioning.Purpose {
	phase := provisioning.Done
	if _, a, owned := m.owner(c.Launch); owned {
		phase = a.Phase
	}
	return provisioning.PurposeOf(c, phase, m.nodes.set.Find(m.links.nodes[c.ProviderID]))
}
