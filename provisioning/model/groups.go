package model

import (
	"iter"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model/objects"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// groups are the NodeGroups, and the DaemonSets whose pods run on their machines.
type groups struct {
	objects    map[string]*v1alpha1.NodeGroup
	daemonSets map[types.UID]*appsv1.DaemonSet
	// learned has the outcomes of launches by group, oldest first, until the status of the group has them.
	learned map[string][]v1alpha1.LaunchAttempt

	// read are the groups in the planner's form, without their number of machines.
	read map[string]planner.Group
	// prices are in millionths of a USD per hour. Prices of deleted groups are kept, since their machines still cost money.
	prices map[string]int64
	// list and daemons are part of the snapshot; daemons is nil if it must be derived again.
	list    []planner.Group
	daemons []state.DaemonSet

	// The other inputs of the planner's form of a group.
	claimable *claimable
}

func newGroups(c *claimable) groups {
	return groups{
		objects: map[string]*v1alpha1.NodeGroup{}, daemonSets: map[types.UID]*appsv1.DaemonSet{}, learned: map[string][]v1alpha1.LaunchAttempt{},
		read: map[string]planner.Group{}, prices: map[string]int64{}, claimable: c,
	}
}

func (gs *groups) set(g *v1alpha1.NodeGroup) effect {
	return effectOf(objects.Put(gs.objects, g.Name, g))
}

func (gs *groups) remove(name string) effect { return removed(gs.objects, name) }

func (gs *groups) setDaemonSet(d *appsv1.DaemonSet) effect {
	old := gs.daemonSets[d.UID]
	if !objects.Put(gs.daemonSets, d.UID, d) || old != nil && old.Generation == d.Generation {
		return unchanged
	}
	gs.daemons = nil
	return frees
}

func (gs *groups) removeDaemonSet(uid types.UID) effect {
	if removed(gs.daemonSets, uid) == unchanged {
		return unchanged
	}
	gs.daemons = nil
	return frees
}

// learn adds the outcome of a launch.
func (gs *groups) learn(group string, a v1alpha1.LaunchAttempt) effect {
	gs.learned[group] = append(gs.learned[group], a)
	return changed
}

// status returns the status of the group with all outcomes, and with the taints that nodes from the same source keep.
func (gs *groups) status(group string) v1alpha1.NodeGroupStatus {
	g := gs.objects[group]
	if g == nil {
		return v1alpha1.NodeGroupStatus{}
	}
	status := gs.ownStatus(g)
	for _, name := range slices.Sorted(gs.siblings(group)) {
		o := gs.objects[name]
		others := gs.ownStatus(o)
		taints, seen := nodegroups.KeptTaints(o, &others)
		status = nodegroups.WithTaints(g, status, taints, seen)
	}
	return status
}

// siblings returns the other groups with machines from the same source.
func (gs *groups) siblings(group string) iter.Seq[string] {
	return func(yield func(string) bool) {
		g := gs.objects[group]
		if g == nil || g.Spec.Template.Source == "" {
			return
		}
		for name, o := range gs.objects {
			if name != group && o.Spec.Template.Source == g.Spec.Template.Source && !yield(name) {
				return
			}
		}
	}
}

// ownStatus returns the status of a group with the outcomes of its own launches.
func (gs *groups) ownStatus(g *v1alpha1.NodeGroup) v1alpha1.NodeGroupStatus {
	group := g.Name
	status := *g.Status.DeepCopy()
	gs.learned[group] = slices.DeleteFunc(gs.learned[group], func(a v1alpha1.LaunchAttempt) bool {
		return nodegroups.Recorded(status, a)
	})
	for _, a := range gs.learned[group] {
		status = nodegroups.WithTaints(g, nodegroups.Learn(status, a), a.Taints, a.Time)
	}
	return status
}

// refresh derives a group again. If the group is gone, requests may wait for it in vain.
func (gs *groups) refresh(name string) effect {
	gs.readDaemons()
	old, known := gs.read[name]
	g := gs.objects[name]
	if g == nil {
		delete(gs.read, name)
		return frees
	}
	gs.read[name] = gs.claimable.ofGroup(planner.NewGroup(nodegroups.GroupFrom(g, gs.status(name), 0), gs.daemons), g)
	if known && isSameGroup(old, gs.read[name]) {
		return unchanged
	}
	return frees
}

// isSameGroup reports whether two groups in the planner's form are equal. Their devices are compared by key, because they cache
// allocations that the planner has tried.
func isSameGroup(a, b planner.Group) bool {
	if !isSameDevices(a.Published, b.Published) || !isSameDevices(a.PublishedAtBest, b.PublishedAtBest) {
		return false
	}
	a.Published, b.Published = nil, nil
	a.PublishedAtBest, b.PublishedAtBest = nil, nil
	return reflect.DeepEqual(a, b)
}

func isSameDevices(a, b fit.Devices) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Key() == b.Key()
}

func (gs *groups) readDaemons() {
	if gs.daemons != nil {
		return
	}
	gs.daemons = []state.DaemonSet{}
	for _, uid := range slices.Sorted(maps.Keys(gs.daemonSets)) {
		if d := state.NewDaemonSet(gs.daemonSets[uid]); !d.TakesDevices() {
			gs.daemons = append(gs.daemons, d)
		}
	}
}

// refreshPrice updates the price of the group's machines.
func (gs *groups) refreshPrice(name string) effect {
	g, known := gs.read[name]
	before, priced := gs.prices[name]
	if !known || priced && before == g.MicroUSDPerHour {
		return unchanged
	}
	gs.prices[name] = g.MicroUSDPerHour
	return changed
}

// refreshList updates the number of machines of all groups. It counts the machines that have not ended and the machines that attempts in
// flight have requested; unattributed machines may be among the latter. If a group has fewer machines than before, requests may find room
// in it.
func (gs *groups) refreshList(alive, unattributed, promised map[string]int) effect {
	gs.readDaemons()
	before := map[string]int{}
	for i := range gs.list {
		before[gs.list[i].Name] = gs.list[i].Machines
	}
	out := changed
	gs.list = make([]planner.Group, 0, len(gs.read))
	for _, name := range slices.Sorted(maps.Keys(gs.read)) {
		g := gs.read[name]
		if g.Machines = alive[name] + max(unattributed[name], promised[name]); g.Machines < before[name] {
			out = frees
		}
		gs.list = append(gs.list, g)
	}
	return out
}

// labelsOf returns the labels of the group's machines that distinguish nodes for the planner.
func labelsOf(g *v1alpha1.NodeGroup) []string {
	return slices.Sorted(maps.Keys(g.Spec.Template.Labels))
}
