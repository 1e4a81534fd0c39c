package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/cost"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// Snapshot returns the model for decisions. The caller owns it and may use it from one goroutine at a time.
func (m *Model) Snapshot(now time.Time) *planner.Snapshot {
	var s planner.Snapshot
	m.read(now, func() { s = m.snapshotAt(now) })
	return &s
}

func (m *Model) snapshotAt(now time.Time) planner.Snapshot {
	if m.snapshot == nil {
		m.snapshot = &planner.Snapshot{
			Nodes: m.nodes.set.Clone(), Groups: m.groups.list, DaemonSets: m.groups.daemons, Upcoming: m.upcoming.list,
			Budgets: m.budgets.Now(), Charges: m.ledger.charges,
		}
	}
	s := *m.snapshot
	s.Answering = m.APIServer.Since(now)
	s.Now, s.Nodes, s.Objects, s.Memo = now, s.Nodes.Clone(), m.claimable.lookup(m.objects.Copy()), planner.NewMemo()
	return s
}

// Due returns the requests that may have to be decided, and clears the list. The order is the order of service: the highest priority
// first, then the oldest, then by UID. The given requests are due, too.
func (m *Model) Due(more []types.UID) (out []Entry) {
	m.read(m.clock.Now(), func() {
		due := map[types.UID]bool{}
		for _, uid := range more {
			due[uid] = true
		}
		for r := range m.dirty[dueView] {
			due[types.UID(r.name)] = true
		}
		if _, all := m.dirty[dueView][everyone]; all {
			maps.Copy(due, m.requests.phases[waiting])
		}
		for uid := range m.losses {
			due[uid] = due[uid] || len(m.losses.Unreported(uid)) > 0
		}
		for uid := range due {
			if e := m.requests.byUID[uid]; due[uid] && m.mayProceed(e) {
				out = append(out, m.entry(e))
			}
		}
		m.dirty[dueView] = nil
	})
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// mayProceed reports whether the request may have a next step. A request that is over has one only if its pods or nodes are lost,
// stranded, or cannot start.
func (m *Model) mayProceed(e *request) bool {
	return e != nil && (e.status != transaction.Over || len(m.losses.Unreported(e.object.UID)) > 0 || len(m.losses.Held(e.object.UID)) > 0 ||
		e.stranded(&m.consumers).Pods > 0 || e.blocked(&m.consumers).Pods > 0 || e.isBlocked())
}

// undecided reports whether a request that waits for capacity is about to be decided: it is due or has a step in flight.
func (m *Model) undecided() bool {
	_, all := m.dirty[dueView][everyone]
	for uid := range m.requests.phases[waiting] {
		_, due := m.dirty[dueView][ref{kind: dueView, name: string(uid)}]
		if _, busy := m.requests.assumed[uid]; busy || all || due {
			return true
		}
	}
	return false
}

// Request returns the request with that UID, if it exists.
func (m *Model) Request(uid types.UID) (e Entry, ok bool) {
	m.read(m.clock.Now(), func() {
		if r := m.requests.byUID[uid]; r != nil {
			e, ok = m.entry(r), true
		}
	})
	return e, ok
}

func (m *Model) entry(e *request) Entry {
	if e.read == nil {
		var labels []string
		e.read, labels = m.specs.read(e)
		m.distinguish(labels)
	}
	return Entry{Request: e.read, Object: e.object}
}

// View returns the inputs of the next step of a request.
func (m *Model) View(s *planner.Snapshot, r *transaction.Request) transaction.View {
	v := transaction.View{Snapshot: s, Hosts: map[string]string{}, Process: m.process}
	m.read(m.clock.Now(), func() {
		for _, token := range r.Attempt.Tokens(r.UID) {
			v.Machines = append(v.Machines, m.machines.ofLaunch(token)...)
		}
		v.Unanswered = maps.Clone(m.unanswered[r.UID])
		for i := range v.Machines {
			v.Hosts[v.Machines[i].ProviderID] = m.machines.nodes[v.Machines[i].ProviderID]
		}
		v.Made, v.Carried = m.machines.bought.Of(r.UID), m.requests.carried.Of(r.Workload)
		v.Active = m.consumers.Active[state.ConsumerKey{Namespace: r.Namespace, Name: r.Name}]
		v.KeyTaken = m.requests.keyTaken(r, m.consumers.Active)
		v.Lost, v.Held = m.losses.Unreported(r.UID), m.losses.Held(r.UID)
		v.Stranded = m.requests.byUID[r.UID].stranded(&m.consumers)
		v.Blocked = m.requests.byUID[r.UID].blocked(&m.consumers)
		for i := range v.Lost {
			v.Lost[i].Settled = m.machines.settledAt(v.Lost[i].ProviderID)
		}
		if r.Policy.RevokeOnLoss && len(v.Lost)+len(v.Held)+v.Stranded.Pods > 0 || r.Lags(v.Machines) {
			f := m.fleetAt(s.Now)
			v.Spared = map[string]bool{}
			for group, doubt := range scaledown.InDoubt(&f) {
				v.Spared[group] = doubt.Spares()
			}
		}
		if v.Limits = m.policies.limitsOf(r.Namespace); len(v.Limits) > 0 {
			v.Has = m.ledger.has(r.Namespace)
		}
	})
	return v
}

// Fleet returns the inputs of scale-down. It takes time in proportion to the number of requests and of machines without a node.
func (m *Model) Fleet(now time.Time) (f scaledown.Fleet) {
	m.read(now, func() {
		f = m.fleetAt(now)
		m.consumers.Forget(now)
	})
	return f
}

func (m *Model) fleetAt(now time.Time) scaledown.Fleet {
	f := scaledown.Fleet{Requests: map[types.UID]bool{}, InFlight: map[string]bool{}}
	s := m.snapshotAt(now)
	f.Snapshot, f.Undecided, f.Unregistered, f.Consumers = &s, m.undecided(), m.machines.withoutNode(), m.consumers.Lookup()
	calls := map[string]transaction.Call{}
	for uid, e := range m.requests.byUID {
		f.Requests[uid] = true
		if a := m.requests.attempt(e); e.status != transaction.Over && a.InFlight() {
			for _, token := range a.Tokens(uid) {
				f.InFlight[token], calls[token] = true, transaction.Call{}
			}
			for _, c := range a.Calls(uid) {
				calls[c.Token] = c
			}
		}
	}
	doubted := func(group string) bool {
		g := s.FindGroup(group)
		return g != nil && scaledown.IsDoubted(g, now)
	}
	f.Missing, f.Halted = m.machines.missingNode(f.Unregistered, calls, doubted), m.machines.stopped(doubted)
	return f
}

// Tidy drops what is no longer needed. Decisions do most of this, but a standby replica makes none.
func (m *Model) Tidy() {
	now := m.clock.Now()
	m.Fleet(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses.Forget(now)
	maps.DeleteFunc(m.claimable.charges, func(uid types.UID, of map[types.NamespacedName]nodegroups.Resources) bool {
		for key := range of {
			if m.claimable.claims[key] != nil {
				return false
			}
		}
		return m.nodes.pods[uid] == nil
	})
	m.requests.carried.Forget(now)
	maps.DeleteFunc(m.unanswered, func(uid types.UID, _ map[transaction.CallKey]transaction.Unanswered) bool {
		return m.requests.byUID[uid] == nil
	})
	m.machines.bought.Forget(func(uid types.UID) bool { return m.requests.byUID[uid] == nil && len(m.machines.launchedFor[uid]) == 0 })
	for _, key := range m.machines.vanished(now) {
		gone := cloudprovider.Machine{Group: key.group, Name: key.name, State: cloudprovider.Gone}
		m.store(ref{machineObject, key.group, key.name}, func() effect { return m.machines.set(gone, m.groups.listed(key), now) })
	}
}

// Launching returns the names of the groups in which attempts in flight launch machines.
func (m *Model) Launching() (names []string) {
	m.read(m.clock.Now(), func() {
		groups := map[string]bool{}
		for uid := range m.requests.phases[launching] {
			for _, l := range m.requests.courses[uid].attempt.Launches {
				groups[l.Group] = true
			}
		}
		names = slices.Sorted(maps.Keys(groups))
	})
	return names
}

// MadeAt is when the last machine of those launches was first seen; zero if there is none.
func (m *Model) MadeAt(tokens []string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines.madeAt(tokens)
}

// Node returns the newest version of a node in the model, or nil.
func (m *Model) Node(name string) *corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes.object(name)
}

// HostOf returns the name of the machine's node, empty if it has none. inUse reports whether a request has booked the node, or it runs
// pods that must not end with the machine.
func (m *Model) HostOf(machine cloudprovider.Machine) (name string, inUse bool) {
	m.read(m.clock.Now(), func() {
		name = m.machines.nodes[machine.ProviderID]
		if n := m.nodes.set.Find(name); n != nil {
			inUse = n.InUse()
		}
	})
	return name, inUse
}

// BoundFor returns the pods bound to a node that consume the capacity of a request with that key; all bound pods if the key is empty.
func (m *Model) BoundFor(name, namespace, key string) (out []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes.byName[name]; n != nil {
		out = n.boundFor(namespace, key)
	}
	return out
}

// Group returns the newest version of a NodeGroup in the model, or nil.
func (m *Model) Group(name string) *v1alpha1.NodeGroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups.objects[name]
}

// Learned returns the status of the group with the outcomes of all launches.
func (m *Model) Learned(group string) v1alpha1.NodeGroupStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups.status(group)
}

// Policies returns the CapacityPolicies that have budgets in their spec or status, by name.
func (m *Model) Policies() []*v1alpha1.CapacityPolicy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.policies.withBudgets()
}

// Reports returns the reports on the policy's budgets, in their order.
func (m *Model) Reports(p *v1alpha1.CapacityPolicy, now time.Time) (out []spend.Report) {
	m.read(m.clock.Now(), func() { out = m.budgets.Reports(p, now) })
	return out
}

// OpenAccount starts to add up the costs of machines from zero. Only the process that decides keeps an account: two processes would count
// the same costs twice.
func (m *Model) OpenAccount() {
	now := m.clock.Now()
	m.read(now, func() { m.ledger.Open(now) })
}

// CloseAccount ends the account.
func (m *Model) CloseAccount() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Close()
}

// Amounts returns the amounts of the account, if it is open.
func (m *Model) Amounts(now time.Time) (out map[cost.Post]cost.Amount) {
	m.read(m.clock.Now(), func() { out = m.ledger.Amounts(now) })
	return out
}

// TakeSpent returns the spend since its last call; nil while the account is closed.
func (m *Model) TakeSpent(now time.Time) (out []cost.Spent) {
	m.read(m.clock.Now(), func() { out = m.ledger.TakeSpent(now) })
	return out
}

// TakeLines returns the costs since its last call, by day, purpose and payer; nil while the account is closed.
func (m *Model) TakeLines(now time.Time) (out map[cost.Line]cost.Entry) {
	m.read(m.clock.Now(), func() { out = m.ledger.TakeLines(now) })
	return out
}

// Standing is the class of a request and its last true condition.
type Standing struct {
	Class string
	// Condition is the last true condition, or None.
	Condition string
}

// Census counts the requests, and those that launch nothing for now because they have launched too much.
func (m *Model) Census(now time.Time) (out map[Standing]int, stopped int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out = map[Standing]int{}
	for _, e := range m.requests.byUID {
		if e.status != transaction.Over && now.Before(e.purchases.Until) {
			stopped++
		}
		out[Standing{Class: e.object.Spec.ProvisioningClassName, Condition: transaction.LastCondition(e.object)}]++
	}
	return out, stopped
}
