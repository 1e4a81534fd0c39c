package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/state"
)

// dependency names the keys of a view that are derived from a stored object or from another view. A change marks the keys that depended on
// the state before it, and those that depend on the state after it.
type dependency struct {
	from, to kind
	keys     func(m *Model, from ref, mark func(ref))
}

// dependencies are all dependencies, except that the snapshot depends on all views.
var dependencies = []dependency{
	{nodeObject, nodeView, itself},
	{nodeObject, nodeView, nodesOfItsMachine},
	{nodeObject, machineView, machineOfNode},
	{podObject, nodeView, nodeOfPod},
	{podObject, dueView, requestOfPod},
	{requestObject, requestView, itself},
	{requestObject, specView, itself},
	{templateObject, specView, requestsUsing},
	{templateObject, chargesView, all},
	{groupObject, groupView, itself},
	{groupObject, groupView, siblings},
	{launchOutcome, groupView, itself},
	{launchOutcome, groupView, siblings},
	{daemonSetObject, groupView, allGroups},
	{daemonSetObject, groupsView, all},
	{daemonSetObject, dueView, launchingRequests},
	{machineObject, machineView, itself},
	{machineObject, nodeView, nodesOfMachine},
	{machineObject, groupsView, all},
	{machineObject, dueView, requestOfMachine},
	{policyObject, specView, allRequests},
	{policyObject, budgetListView, all},
	{policyObject, dueView, all},
	{policyStatus, budgetListView, all},
	{namespaceObject, specView, requestsIn},
	{namespaceObject, budgetListView, all},
	{namespaceObject, dueView, all},
	{referredObject, specView, requestsReferring},
	{sliceObject, nodeView, nodeOfSlice},
	{claimObject, nodeView, nodesOfClaim},
	{claimObject, dueView, requestsOfClaim},
	{classObject, specView, requestsReferring},
	{classObject, nodeView, nodesOfDevices},
	{classObject, groupView, allGroups},
	{assumption, requestView, itself},
	{assumption, dueView, requestItself},
	{assumption, nodeView, nodesAssumed},
	{scaleDown, nodeView, itself},
	{keptRoom, nodeView, itself},

	{requestView, nodeView, nodesOfRequest},
	{requestView, machineView, machinesOfRequest},
	{requestView, groupsView, all},
	{requestView, chargesView, all},
	{requestView, upcomingView, all},
	{requestObject, dueView, requestsOfKey},
	{specView, dueView, requestItself},
	{specView, upcomingBaseView, ifUpcoming},
	{groupView, groupsView, all},
	{groupView, priceView, itself},
	{groupView, upcomingBaseView, all},
	{groupView, dueView, launchingRequests},
	{priceView, machineView, machinesOfGroup},
	{priceView, chargesView, all},
	{nodeView, machineView, machineOfNode},
	{nodeView, upcomingBaseView, all},
	{nodeView, dueView, requestsOnNode},
	{machineView, chargesView, all},
	{machineView, budgetsView, all},
	{budgetListView, chargesView, all},
	{budgetListView, budgetsView, all},
	{chargesView, budgetsView, all},
	{upcomingBaseView, upcomingView, all},
	{upcomingView, dueView, sharingRequests},
}

// dependents has the dependencies by their source.
var dependents = func() (out [kinds][]dependency) {
	for _, d := range dependencies {
		out[d.from] = append(out[d.from], d)
	}
	return out
}()

// change is the only way in which stored objects change. It marks what depends on them, which is derived again before the next read, and
// notifies subscribers.
func (m *Model) change(of ref, apply func() effect) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(of, apply)
}

// store is change for callers that hold the lock.
func (m *Model) store(of ref, apply func() effect) {
	now := m.clock.Now()
	if m.derive(of, span{now, now}, apply) != unchanged {
		m.notify()
	}
}

// derive applies a change and marks what depends on it.
func (m *Model) derive(of ref, when span, apply func() effect) effect {
	m.marks = m.marks[:0]
	m.mark(of)
	e := apply()
	if e == unchanged {
		return e
	}
	m.mark(of)
	for _, r := range m.marks {
		m.dirty.mark(r, when)
	}
	if e == frees {
		m.dirty.mark(everyone, when)
	}
	if of.kind >= requestView && of.kind < snapshotView {
		m.dirty.mark(ref{kind: snapshotView}, when)
	}
	return e
}

// mark collects the keys of all views that depend on something, as it is.
func (m *Model) mark(of ref) {
	for _, d := range dependents[of.kind] {
		d.keys(m, of, func(r ref) {
			r.kind = d.to
			m.marks = append(m.marks, r)
		})
	}
}

// flush derives again what is dirty, and what depends on time.
func (m *Model) flush(now time.Time) {
	m.pass(now)
	for {
		marks := m.dirty.take(dueView)
		if len(marks) == 0 {
			return
		}
		for _, r := range slices.SortedFunc(maps.Keys(marks), func(a, b ref) int {
			return cmp.Or(marks[a].first.Compare(marks[b].first), cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name))
		}) {
			m.derive(r, marks[r], func() effect { return m.refresh(r, marks[r]) })
		}
	}
}

// pass marks what depends on time and is due.
func (m *Model) pass(now time.Time) {
	at := span{now, now}
	lapsed := m.nodes.lapsed(now)
	for _, name := range lapsed {
		m.dirty.mark(ref{kind: nodeView, name: name}, at)
	}
	if len(lapsed) > 0 {
		m.notify()
	}
	if until := m.upcoming.until(); !until.IsZero() && !now.Before(until) {
		m.dirty.mark(ref{kind: upcomingBaseView}, at)
	}
	if m.budgets.PeriodOver(now) {
		m.dirty.mark(ref{kind: budgetsView}, at)
	}
}

// refresh derives a view again.
func (m *Model) refresh(r ref, when span) effect {
	now := m.clock.Now()
	switch r.kind {
	case requestView:
		return m.requests.refresh(types.UID(r.name))
	case specView:
		return m.requests.reread(types.UID(r.name))
	case groupView:
		return m.groups.refresh(r.name)
	case priceView:
		return m.groups.refreshPrice(r.name)
	case nodeView:
		return m.nodes.refresh(r.name, m.losses, now)
	case machineView:
		return m.ledger.refresh(r.machine(), when, m.budgets.Any())
	case groupsView:
		return m.groups.refreshList(m.machines.alive, m.machines.unattributed, m.ledger.refreshRequested())
	case budgetListView:
		m.budgets.Set(m.policies.sorted(), m.policies.labels())
		return changed
	case chargesView:
		return m.ledger.refreshCharges(&m.specs, m.budgets.Any())
	case budgetsView:
		if m.budgets.Refresh(now) {
			return frees
		}
		return changed
	case upcomingBaseView:
		return m.upcoming.restart()
	case upcomingView:
		return m.refreshUpcoming()
	default:
		m.snapshot = nil
		return unchanged
	}
}

// The functions below return the keys of dependencies.

// all marks a view that has only one value.
func all(_ *Model, _ ref, mark func(ref)) { mark(ref{}) }

// itself marks the same key.
func itself(_ *Model, from ref, mark func(ref)) { mark(from) }

// mark marks a request if it exists.
func (rs *requests) mark(uid types.UID, mark func(ref)) {
	if rs.byUID[uid] != nil {
		mark(ref{name: string(uid)})
	}
}

func requestItself(m *Model, from ref, mark func(ref)) { m.requests.mark(types.UID(from.name), mark) }

func machineOfNode(m *Model, from ref, mark func(ref)) {
	if key, ok := m.machines.ofNode(from.name); ok {
		mark(ref{group: key.group, name: key.name})
	}
}

func nodesOfMachine(m *Model, from ref, mark func(ref)) {
	m.machines.markNodes(m.machines.byKey[from.machine()].ProviderID, mark)
}

// nodesOfItsMachine marks the nodes with the same provider ID as a node.
func nodesOfItsMachine(m *Model, from ref, mark func(ref)) {
	m.machines.markNodes(m.machines.borne[from.name].id, mark)
}

func (ms *machines) markNodes(providerID string, mark func(ref)) {
	for name := range ms.bearers[providerID] {
		mark(ref{name: name})
	}
}

func requestOfMachine(m *Model, from ref, mark func(ref)) {
	if c, ok := m.machines.byKey[from.machine()]; ok && c.Launch != "" {
		m.requests.mark(state.TokenUID(c.Launch), mark)
	}
}

func nodeOfPod(m *Model, from ref, mark func(ref)) {
	uid := types.UID(from.name)
	switch p := m.nodes.pods[uid]; {
	case p == nil:
	case p.Node != "":
		mark(ref{name: p.Node})
	default:
		for key := range m.claimable.ofPod[uid] {
			nodesAllocated(m, m.claimable.claims[key], mark)
		}
	}
}

func requestOfPod(m *Model, from ref, mark func(ref)) {
	if p := m.nodes.pods[types.UID(from.name)]; p != nil && p.Consumes.Name != "" {
		m.requests.mark(m.requests.named[p.Consumes], mark)
		if len(p.Consumes.Name) >= state.CutKey {
			m.requests.markKey(state.BookingKey(p.Consumes.Name), mark)
		}
	}
}

func requestsUsing(m *Model, from ref, mark func(ref)) {
	for uid := range m.requests.using[types.NamespacedName{Namespace: from.group, Name: from.name}] {
		mark(ref{name: string(uid)})
	}
}

func allGroups(m *Model, _ ref, mark func(ref)) {
	for name := range m.groups.objects {
		mark(ref{name: name})
	}
}

func siblings(m *Model, from ref, mark func(ref)) {
	for name := range m.groups.siblings(from.name) {
		mark(ref{name: name})
	}
}

func launchingRequests(m *Model, _ ref, mark func(ref)) {
	for uid := range m.requests.phases[launching] {
		m.requests.mark(uid, mark)
	}
}

// sharingRequests marks the requests that count on capacity of other requests' launches.
func sharingRequests(m *Model, _ ref, mark func(ref)) {
	for uid := range m.requests.phases[launching] {
		if len(m.requests.courses[uid].flight.Shares) > 0 {
			m.requests.mark(uid, mark)
		}
	}
}

func allRequests(m *Model, _ ref, mark func(ref)) {
	for uid := range m.requests.byUID {
		mark(ref{name: string(uid)})
	}
}

func requestsIn(m *Model, from ref, mark func(ref)) {
	for uid, e := range m.requests.byUID {
		if e.object.Namespace == from.name {
			mark(ref{name: string(uid)})
		}
	}
}

// requestsReferring marks the requests whose pods refer to objects such as PersistentVolumeClaims.
func requestsReferring(m *Model, _ ref, mark func(ref)) {
	for uid, e := range m.requests.byUID {
		if e.looksUp {
			mark(ref{name: string(uid)})
		}
	}
}

func nodeOfSlice(m *Model, from ref, mark func(ref)) {
	if s := m.claimable.slices[from.name]; s != nil && s.Spec.NodeName != nil {
		mark(ref{name: *s.Spec.NodeName})
	}
}

// nodesOfClaim marks the nodes of the claim's devices and of its pods.
func nodesOfClaim(m *Model, from ref, mark func(ref)) {
	o := m.claimable.claims[types.NamespacedName{Namespace: from.group, Name: from.name}]
	if o == nil {
		return
	}
	nodesAllocated(m, o, mark)
	for _, uid := range podsOf(o) {
		nodeOfPod(m, ref{name: string(uid)}, mark)
	}
}

// nodesAllocated marks the nodes of a claim's devices.
func nodesAllocated(m *Model, o *resourcev1.ResourceClaim, mark func(ref)) {
	for _, r := range resultsOf(o) {
		if name := m.claimable.nodeOf[devices.Pool{Driver: r.Driver, Name: r.Pool}]; name != "" {
			mark(ref{name: name})
		}
	}
}

func requestsOfClaim(m *Model, from ref, mark func(ref)) {
	if o := m.claimable.claims[types.NamespacedName{Namespace: from.group, Name: from.name}]; o != nil {
		for _, uid := range podsOf(o) {
			requestOfPod(m, ref{name: string(uid)}, mark)
		}
	}
}

// nodesOfDevices marks the nodes with published devices, and the nodes of pods with claims.
func nodesOfDevices(m *Model, _ ref, mark func(ref)) {
	for name := range m.claimable.onNode {
		mark(ref{name: name})
	}
	for uid := range m.claimable.charges {
		nodeOfPod(m, ref{name: string(uid)}, mark)
	}
}

func nodesAssumed(m *Model, from ref, mark func(ref)) {
	for _, p := range m.requests.assumed[types.UID(from.name)].Bookings {
		mark(ref{name: p.Node})
	}
}

// nodesOfRequest marks the nodes with a booking of the request, even if it has ended, and the nodes of its launches.
func nodesOfRequest(m *Model, from ref, mark func(ref)) {
	for n := range m.nodes.set.BookedBy(types.UID(from.name)) {
		mark(ref{name: n.Name})
	}
	for n := range m.nodes.set.LaunchedFor(types.UID(from.name)) {
		mark(ref{name: n.Name})
	}
}

// machinesOfRequest marks the machines of its launches, even if their nodes do not name it.
func machinesOfRequest(m *Model, from ref, mark func(ref)) {
	for key := range m.machines.launchedFor[types.UID(from.name)] {
		mark(ref{group: key.group, name: key.name})
	}
}

func machinesOfGroup(m *Model, from ref, mark func(ref)) {
	for key := range m.machines.byKey {
		if key.group == from.name {
			mark(ref{group: key.group, name: key.name})
		}
	}
}

func requestsOfKey(m *Model, from ref, mark func(ref)) {
	if e := m.requests.byUID[types.UID(from.name)]; e != nil {
		m.requests.markKey(state.BookingKey(e.object.Name), mark)
	}
}

func (rs *requests) markKey(key string, mark func(ref)) {
	for uid := range rs.keyed[key] {
		rs.mark(uid, mark)
	}
}

// requestsOnNode marks the requests with the keys of the node's bookings, and the request that launched the node.
func requestsOnNode(m *Model, from ref, mark func(ref)) {
	n := m.nodes.set.Find(from.name)
	if n == nil {
		return
	}
	for i := range n.Labelled {
		m.requests.mark(n.Labelled[i].UID, mark)
		m.requests.markKey(n.Labelled[i].Key, mark)
	}
	if n.Launch != "" {
		m.requests.mark(state.TokenUID(n.Launch), mark)
	}
}

func ifUpcoming(m *Model, from ref, mark func(ref)) {
	if m.requests.phases[upcoming][types.UID(from.name)] {
		mark(ref{})
	}
}
