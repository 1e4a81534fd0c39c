// Package model holds the state of the cluster for decisions. Its sources are informers, the clouds' lists of machines, and Muster's own
// writes that no informer has delivered yet. The newest version of an object wins, whatever its source. The model hands out snapshots, in
// time proportional to the changes since the last one, and lists the requests that a change concerns.
//
// Stored objects change only through Model.change. Everything else is a view, derived from stored objects and from other views. The list
// of dependencies says from which. A change marks the views that depend on it, and the next read derives them again.
package model

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/model/consumers"
	"github.com/muster-dev/muster/provisioning/model/liveness"
	"github.com/muster-dev/muster/provisioning/model/losses"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Model is safe for use by many goroutines.
type Model struct {
	clock   clock.PassiveClock
	served  transaction.Server
	process string // identified by its start time
	// APIServer is since when the control plane answers.
	APIServer *liveness.APIServer

	// deciding serialises decisions, see Decide.
	deciding sync.Mutex

	mu sync.Mutex
	// Stored objects and views.
	objects   objects.Objects
	claimable claimable
	policies  policies
	specs     specs
	requests  requests
	consumers consumers.Consumers
	losses    losses.Losses
	machines  machines
	// unanswered has the calls of each request that its cloud has neither carried out nor refused.
	unanswered map[types.UID]map[transaction.CallKey]transaction.Unanswered
	nodes      nodes
	groups     groups
	ledger     ledger
	budgets    cost.Budgets
	upcoming   upcomingNodes
	snapshot   *planner.Snapshot

	dirty dirty
	// marks are the marks of the current change.
	marks       []ref
	subscribers []chan struct{}
}

// New returns an empty model for the requests that are served.
func New(c clock.PassiveClock, served transaction.Server) *Model {
	m := &Model{
		clock: c, served: served, process: strconv.FormatInt(c.Now().UnixNano(), 36),
		policies: newPolicies(), requests: newRequests(), consumers: consumers.New(c.Now()), losses: losses.Losses{},
		machines: newMachines(), unanswered: map[types.UID]map[transaction.CallKey]transaction.Unanswered{},
		claimable: newClaimable(), APIServer: liveness.New(c),
	}
	m.groups = newGroups(&m.claimable)
	m.specs = newSpecs(m.lookup, &m.objects, &m.policies)
	m.nodes = newNodes(&m.requests, &m.machines, &m.claimable, m.lookup)
	m.ledger = newLedger(&m.requests, &m.machines, &m.nodes, &m.groups)
	m.budgets = cost.NewBudgets(m.ledger.Ledger, m.ledger.paidSince)
	m.dirty.mark(ref{kind: upcomingView}, span{})
	return m
}

// Changed returns a channel that receives a value soon after each change. Changes that have not been received yet are merged. Each call is
// a separate subscription.
func (m *Model) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.subscribers = append(m.subscribers, c)
	return c
}

func (m *Model) notify() {
	for _, c := range m.subscribers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Decide runs f while no other decision runs. Before it returns, f must record its decisions with Assume or SetLeaving, so that the next
// decision takes them into account.
func (m *Model) Decide(f func()) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	f()
}

// Assume records what is decided for a request until Settle.
func (m *Model) Assume(uid types.UID, a Assumption) { m.assume(uid, &a) }

// Settle drops the assumption: its writes have been observed, or have failed.
func (m *Model) Settle(uid types.UID) { m.assume(uid, nil) }

func (m *Model) assume(uid types.UID, a *Assumption) {
	m.change(ref{kind: assumption, name: string(uid)}, func() effect {
		before := m.requests.assumed[uid].Bookings
		if a == nil {
			delete(m.requests.assumed, uid)
			m.nodes.assume(uid, before, nil, m.clock.Now())
		} else {
			m.requests.assumed[uid] = *a
			m.nodes.assume(uid, before, a.Bookings, m.clock.Now())
		}
		return changed
	})
}

// read runs f on up-to-date views.
func (m *Model) read(now time.Time, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush(now)
	f()
}
