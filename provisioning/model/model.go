// Package model is the picture of the cluster that decisions are made from. It
// is fed by informers, by the clouds' machines and by what Muster itself has
// written but no informer has told of yet: the newest version of an object wins,
// whatever brings it. It hands out snapshots, which cost by what has changed since
// the last one, and says which requests a change concerns.
//
// What is stored changes through one door, see Model.change. Everything else is a view that
// is derived from what is stored and from other views: the list of dependencies
// says from what, a change marks what depends on it, and the next look derives that
// again.
package model

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/model/consumers"
	"github.com/muster-dev/muster/provisioning/model/losses"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/model/pulse"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Model is safe for use by many goroutines.
type Model struct {
	clock   clock.PassiveClock
	served  transaction.Server
	process string // identified by when it began
	// Pulse is that of the control plane.
	Pulse *pulse.Pulse

	// deciding serialises decisions, see Decide.
	deciding sync.Mutex

	mu sync.Mutex
	// What is stored, and the views of it.
	objects   objects.Objects
	claimable claimable
	policies  policies
	specs     specs
	requests  requests
	consumers consumers.Consumers
	losses    losses.Losses
	machines  machines
	// unanswered are the calls of each request that its cloud has neither carried out nor refused.
	unanswered map[types.UID]map[transaction.CallKey]transaction.Unanswered
	nodes      nodes
	groups     groups
	ledger     ledger
	budgets    cost.Budgets
	upcoming   upcomingNodes
	snapshot   *planner.Snapshot

	dirty dirty
	// marks are those of the change that is being made.
	marks       []ref
	subscribers []chan struct{}
}

// New returns an empty model of the requests that are served.
func New(c clock.PassiveClock, served transaction.Server) *Model {
	m := &Model{
		clock: c, served: served, process: strconv.FormatInt(c.Now().UnixNano(), 36),
		policies: newPolicies(), requests: newRequests(), consumers: consumers.New(c.Now()), losses: losses.Losses{},
		machines: newMachines(), unanswered: map[types.UID]map[transaction.CallKey]transaction.Unanswered{},
		claimable: newClaimable(), Pulse: pulse.New(c),
	}
	m.groups = newGroups(&m.claimable)
	m.specs = newSpecs(m.lookup, &m.objects, &m.policies)
	m.nodes = newNodes(&m.requests, &m.machines, &m.claimable, m.lookup)
	m.ledger = newLedger(&m.requests, &m.machines, &m.nodes, &m.groups)
	m.budgets = cost.NewBudgets(m.ledger.Ledger, m.ledger.paidSince)
	m.dirty.mark(ref{kind: upcomingView}, span{})
	return m
}

// Changed returns a channel that gets a value soon after each change; changes that have not been read of yet are told as one. Each
// call is a subscription of its own.
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

// Decide runs f alone among all deciders: what f decides it must record with
// Assume or SetLeaving before it returns, so that the next decider sees it.
func (m *Model) Decide(f func()) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	f()
}

// Assume counts what is decided for a request until Settle.
func (m *Model) Assume(uid types.UID, a Assumption) { m.assume(uid, &a) }

// Settle forgets the assumption: its writes have been observed, or have failed.
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

// look runs f on views that are up to date.
func (m *Model) look(now time.Time, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush(now)
	f()
}
