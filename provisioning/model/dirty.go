package model

import "time"

// kind of what the model stores, or of a view that is derived from it.
type kind int

const (
	// What is stored: objects by name or UID, and what the process itself knows.

	nodeObject kind = iota
	podObject
	requestObject
	templateObject
	groupObject
	machineObject
	daemonSetObject
	policyObject
	namespaceObject
	// referredObject is a PersistentVolumeClaim, say: an object that pod templates refer to.
	referredObject
	// sliceObject is a ResourceSlice, claimObject a ResourceClaim, classObject a DeviceClass or a DeviceTaintRule.
	sliceObject
	claimObject
	classObject
	// assumption of a request, by UID.
	assumption
	// scaleDown of a node that is about to be given back.
	scaleDown
	// keptRoom on a node for pods that come in place of others, see nodes.replaced.
	keptRoom
	// launchOutcome by group.
	launchOutcome
	// policyStatus of a CapacityPolicy whose spec has not changed.
	policyStatus

	// The views, in the order in which they are derived. Each depends on what is stored and
	// on views before it.

	// requestView is where a request is in its course, by UID.
	requestView
	// specView is what a request asks for, by UID.
	specView
	// groupView is a NodeGroup as plans see it, its number of machines apart.
	groupView
	// priceView is the price of a group's machines.
	priceView
	// nodeView is a node as plans see it.
	nodeView
	// machineView is what a machine is for and which requests pay for it.
	machineView
	// groupsView is the list of all groups with their numbers of machines.
	groupsView
	// budgetListView is which budgets there are.
	budgetListView
	// chargesView is what requests pay.
	chargesView
	// budgetsView is what is left of budgets.
	budgetsView
	// upcomingBaseView is what upcoming nodes go on from: the nodes and groups as they are, and
	// what the gangs of attempts in flight ask for.
	upcomingBaseView
	// upcomingView is the room that there will be without another launch.
	upcomingView
	// snapshotView is the snapshot that is handed out.
	snapshotView
	// dueView has the requests for which there may be something to decide, by UID.
	dueView

	kinds
)

// ref names something of a kind. Only machines have a group, and views of which there is
// one have no name.
type ref struct {
	kind
	group, name string
}

// everyone is due where requests that wait for capacity may find it.
var everyone = ref{kind: dueView}

// effect is what came of a change.
type effect int

const (
	// unchanged: what is derived from it holds.
	unchanged effect = iota
	// changed: what is derived from it has to be derived again.
	changed
	// frees: changed, and requests that wait for capacity may find it now, or wait in vain.
	frees
)

// effectOf says whether there was a change, which frees nothing.
func effectOf(change bool) effect {
	if change {
		return changed
	}
	return unchanged
}

// span is when something changed for the first and for the last time since what is derived
// from it was.
type span struct{ first, last time.Time }

func (s span) and(o span) span {
	if o.first.Before(s.first) {
		s.first = o.first
	}
	if o.last.After(s.last) {
		s.last = o.last
	}
	return s
}

// dirty has the views that have to be derived again.
type dirty [kinds]map[ref]span

func (d *dirty) mark(r ref, when span) {
	if d[r.kind] == nil {
		d[r.kind] = map[ref]span{}
	}
	if before, marked := d[r.kind][r]; marked {
		when = before.and(when)
	}
	d[r.kind][r] = when
}

// take returns the marks of the first kind before the given one that has any, and removes
// them.
func (d *dirty) take(before kind) map[ref]span {
	for k := range before {
		if marks := d[k]; len(marks) > 0 {
			d[k] = nil
			return marks
		}
	}
	return nil
}
