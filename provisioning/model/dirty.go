package model

import "time"

// kind is a kind of stored object, or of a view that is derived.
type kind int

const (
	// Stored: objects by name or UID, and the state of this process.

	nodeObject kind = iota
	podObject
	requestObject
	templateObject
	groupObject
	machineObject
	daemonSetObject
	policyObject
	namespaceObject
	// referredObject is an object that pod templates refer to, such as a PersistentVolumeClaim.
	referredObject
	// sliceObject is a ResourceSlice, claimObject a ResourceClaim, classObject a DeviceClass or a DeviceTaintRule.
	sliceObject
	claimObject
	classObject
	// assumption of a request, by UID.
	assumption
	// scaleDown of a node that is about to be terminated.
	scaleDown
	// keptRoom on a node for pods that replace others, see nodes.replaced.
	keptRoom
	// launchOutcome by group.
	launchOutcome
	// policyStatus of a CapacityPolicy whose spec has not changed.
	policyStatus

	// The views, in the order in which they are derived. Each depends on stored objects and on views before it.

	// requestView is the phase of a request, by UID.
	requestView
	// specView is the demand of a request, by UID.
	specView
	// groupView is a NodeGroup in the planner's form, without its number of machines.
	groupView
	// priceView is the price of a group's machines.
	priceView
	// nodeView is a node in the planner's form.
	nodeView
	// machineView is the purpose of a machine and the requests that pay for it.
	machineView
	// groupsView is the list of all groups with their numbers of machines.
	groupsView
	// budgetListView is the list of budgets.
	budgetListView
	// chargesView has the costs of requests.
	chargesView
	// budgetsView has the remaining amounts of budgets.
	budgetsView
	// upcomingBaseView is the base of upcomingView: the nodes and groups in their current state, and the demand of gangs with an attempt
	// in flight.
	upcomingBaseView
	// upcomingView is the capacity that will exist without another launch.
	upcomingView
	// snapshotView is the snapshot for decisions.
	snapshotView
	// dueView has the requests that may have to be decided, by UID.
	dueView

	kinds
)

// ref names a value of a kind. Only machines have a group. A view that has only one value has no name.
type ref struct {
	kind
	group, name string
}

// everyone marks all requests that wait for capacity as due.
var everyone = ref{kind: dueView}

// effect is the effect of a change.
type effect int

const (
	// unchanged: derived views stay valid.
	unchanged effect = iota
	// changed: derived views must be derived again.
	changed
	// frees: changed, and requests that wait for capacity are due: they may find it now, or wait in vain.
	frees
)

// effectOf returns changed or unchanged.
func effectOf(change bool) effect {
	if change {
		return changed
	}
	return unchanged
}

// span is the time of the first and of the last change since the view was derived.
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

// dirty has the views that must be derived again.
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

// take removes and returns the marks of the first kind before the given one that has marks.
func (d *dirty) take(before kind) map[ref]span {
	for k := range before {
		if marks := d[k]; len(marks) > 0 {
			d[k] = nil
			return marks
		}
	}
	return nil
}
