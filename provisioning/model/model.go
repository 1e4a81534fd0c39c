// Package model is the picture of the cluster that decisions are made from. It
// is fed by informers, by the clouds' machines and by what Muster itself has
// written but no informer has told of yet: the newest version of an object wins,
// whoever brings it. It hands out snapshots, which cost by what has changed since
// the last one, and says which requests a change concerns.
package model

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// Model is safe for use by many goroutines.
type Model struct {
	clock  clock.PassiveClock
	served Server

	// deciding serialises decisions, see Decide.
	deciding sync.Mutex

	mu       sync.Mutex
	nodes    nodes
	requests requests
	groups   groups
	objects  objects
	links    links
	holdings holdings
	accounts accounts
	spending spending
	budgets  budgets
	soon     soon
	// daemonSets and policies as they are.
	daemonSets map[types.UID]*appsv1.DaemonSet
	policies   map[string]*v1alpha1.CapacityPolicy
	assumed    map[types.UID]Assumption
	// consumers counts the unfinished pods that consume a request, bound or not.
	consumers map[consumerKey]int
	// ended is when the last consumer, or the request, of a booking key went. What
	// went before began is not remembered.
	ended map[consumerKey]time.Time
	began time.Time

	snapshot    *provisioning.Snapshot
	subscribers []chan struct{}
}

// consumerKey is a request as pods name it, or its booking key.
type consumerKey struct{ namespace, name string }

// keyOf is the booking key of a request.
func keyOf(k consumerKey) consumerKey {
	return consumerKey{k.namespace, provisioning.BookingKey(k.name)}
}

// New returns an empty model of the requests that are served.
func New(c clock.PassiveClock, served Server) *Model {
	return &Model{
		clock:      c,
		served:     served,
		nodes:      newNodes(),
		requests:   newRequests(),
		groups:     newGroups(),
		objects:    newObjects(),
		links:      newLinks(),
		holdings:   newHoldings(),
		spending:   newSpending(),
		soon:       newSoon(),
		daemonSets: map[types.UID]*appsv1.DaemonSet{},
		policies:   map[string]*v1alpha1.CapacityPolicy{},
		assumed:    map[types.UID]Assumption{},
		consumers:  map[consumerKey]int{},
		ended:      map[consumerKey]time.Time{},
		began:      c.Now(),
	}
}

// Changed returns a channel that gets a value soon after each change; changes
// that nobody has read of yet are told as one. Each call is a subscription of
// its own.
func (m *Model) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.subscribers = append(m.subscribers, c)
	return c
}

// update runs f under the lock, then tells subscribers if f reports a change.
func (m *Model) update(f func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f() {
		return
	}
	m.changed()
}

func (m *Model) changed() {
	m.snapshot = nil
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

// Assumption is what has been decided for a request and is being written.
type Assumption struct {
	Bookings []provisioning.Placement
	Attempt  provisioning.Attempt
}

// Assume counts what is decided for a request until Settle.
func (m *Model) Assume(uid types.UID, a Assumption) {
	m.update(func() bool {
		m.assumed[uid] = a
		m.assumptionChanged(uid, a)
		return true
	})
}

// Settle forgets the assumption: its writes have been observed, or have failed.
func (m *Model) Settle(uid types.UID) {
	m.update(func() bool {
		a := m.assumed[uid]
		delete(m.assumed, uid)
		m.assumptionChanged(uid, a)
		return true
	})
}

func (m *Model) assumptionChanged(uid types.UID, a Assumption) {
	for _, p := range a.Bookings {
		m.nodes.assume(p.Node, uid, m.assumed)
	}
	m.touch(uid)
	m.attemptChanged(uid)
	m.nodes.launchChanged(uid)
	m.groups.changed = true
}

// newer says whether the version of an object is at least as new as another's.
func newer(obj, than metav1.Object) bool {
	c, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), than.GetResourceVersion())
	return err != nil || c >= 0
}

// put stores obj under key unless the model has a newer one.
func put[K comparable, T metav1.Object](into map[K]T, key K, obj T) bool {
	if old, ok := into[key]; ok && !newer(obj, old) {
		return false
	}
	into[key] = obj
	return true
}

// SetPolicy tells of a CapacityPolicy. The caller does not change it later; that
// goes for all objects that the model is told of.
func (m *Model) SetPolicy(p *v1alpha1.CapacityPolicy) {
	m.update(func() bool {
		old := m.policies[p.Name]
		if !put(m.policies, p.Name, p) {
			return false
		}
		m.budgets.stale = true
		if old == nil || !equality.Semantic.DeepEqual(old.Spec, p.Spec) {
			m.policiesChanged()
		}
		return true
	})
}

// DeletePolicy tells that a CapacityPolicy is gone.
func (m *Model) DeletePolicy(name string) {
	m.update(func() bool {
		delete(m.policies, name)
		m.budgets.stale = true
		m.policiesChanged()
		return true
	})
}

func (m *Model) policiesChanged() {
	clear(m.holdings.limits)
	m.rereadAll()
}

// SetDaemonSet tells of a DaemonSet.
func (m *Model) SetDaemonSet(d *appsv1.DaemonSet) {
	m.update(func() bool {
		old := m.daemonSets[d.UID]
		if !put(m.daemonSets, d.UID, d) {
			return false
		}
		if old == nil || old.Generation != d.Generation {
			m.groups.forget()
			m.wakeAll()
		}
		return true
	})
}

// DeleteDaemonSet tells that a DaemonSet is gone.
func (m *Model) DeleteDaemonSet(uid types.UID) {
	m.update(func() bool {
		delete(m.daemonSets, uid)
		m.groups.forget()
		m.wakeAll()
		return true
	})
}

// now is the model's time.
func (m *Model) now() time.Time { return m.clock.Now() }

// Snapshot is the model as decisions see it. It is the caller's own.
func (m *Model) Snapshot(now time.Time) *provisioning.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if until := m.soonUntil(); !until.IsZero() && !now.Before(until) {
		m.snapshot, m.soon.stale = nil, true
	}
	if m.nodes.lapsed(now) {
		m.changed()
	}
	if m.snapshot == nil || m.budgets.periodOver(now) {
		flights := m.flights() // which may read requests, and tell nodes apart by more labels
		m.flush()
		m.snapshot = &provisioning.Snapshot{
			Nodes: m.nodes.set.Clone(), Groups: m.groups.list, DaemonSets: m.groups.daemonSets,
		}
		m.snapshot.Soon = m.soonOn(m.snapshot, flights)
		if m.snapshot.Budgets = m.budgetsNow(); m.snapshot.Budgets != nil {
			m.snapshot.Charges = m.chargesNow()
		}
	}
	s := *m.snapshot
	s.Now, s.Nodes, s.Objects = now, s.Nodes.Clone(), m.lookup()
	return &s
}

// flush works off what has changed.
func (m *Model) flush() {
	m.flushGroups()
	m.flushNodes()
	m.flushHoldings()
	m.flushAccounts()
	m.flushSpending()
	m.flushBudgets()
}
