package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning"
)

// groups are the NodeGroups with their machines.
type groups struct {
	objects  map[string]*v1alpha1.NodeGroup
	machines map[machineKey]cloudprovider.Machine
	// launched finds the machines of a launch.
	launched map[string]map[machineKey]bool
	// made is since when each of them is known.
	made map[machineKey]time.Time
	// alive counts the machines of each group that have not ended.
	alive map[string]int
	// learned outcomes by group, oldest first, until its status has them.
	learned map[string][]v1alpha1.LaunchAttempt

	// changed says that list is out of date; read has the groups as plans see them,
	// their number of machines apart, until they change.
	changed    bool
	read       map[string]provisioning.Group
	list       []provisioning.Group
	daemonSets []provisioning.DaemonSet
}

type machineKey struct{ group, name string }

func newGroups() groups {
	return groups{
		objects: map[string]*v1alpha1.NodeGroup{}, machines: map[machineKey]cloudprovider.Machine{},
		launched: map[string]map[machineKey]bool{}, made: map[machineKey]time.Time{}, alive: map[string]int{},
		learned: map[string][]v1alpha1.LaunchAttempt{}, read: map[string]provisioning.Group{},
	}
}

// forget has all groups read again.
func (gs *groups) forget() {
	clear(gs.read)
	gs.daemonSets = nil
	gs.changed = true
}

// SetGroup tells of a NodeGroup.
func (m *Model) SetGroup(g *v1alpha1.NodeGroup) {
	m.update(func() bool { return m.setGroup(g) })
}

// GroupWritten tells of a group whose status Muster has just written.
func (m *Model) GroupWritten(g *v1alpha1.NodeGroup) {
	m.update(func() bool { return m.groups.objects[g.Name] != nil && m.setGroup(g) })
}

func (m *Model) setGroup(g *v1alpha1.NodeGroup) bool {
	if !put(m.groups.objects, g.Name, g) {
		return false
	}
	m.groupChanged(g.Name)
	m.distinguish(slices.Sorted(maps.Keys(g.Spec.Template.Labels)))
	return true
}

// DeleteGroup tells that a NodeGroup is gone.
func (m *Model) DeleteGroup(name string) {
	m.update(func() bool {
		delete(m.groups.objects, name)
		m.groupChanged(name)
		for uid := range m.requests.live {
			if m.attempt(m.requests.byUID[uid]).Machines(name) > 0 {
				m.touch(uid) // what it waits for will not come
			}
		}
		return true
	})
}

func (m *Model) groupChanged(name string) {
	delete(m.groups.read, name)
	m.groups.changed = true
}

// Learn tells of the outcome of a launch. Plans see it at once.
func (m *Model) Learn(group string, a v1alpha1.LaunchAttempt) {
	m.update(func() bool {
		m.groups.learned[group] = append(m.groups.learned[group], a)
		m.groupChanged(group)
		return true
	})
}

// Learned returns the status of the group with all that has been learned in it.
func (m *Model) Learned(group string) v1alpha1.NodeGroupStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups.status(group)
}

func (gs *groups) status(group string) v1alpha1.NodeGroupStatus {
	g := gs.objects[group]
	if g == nil {
		return v1alpha1.NodeGroupStatus{}
	}
	status := *g.Status.DeepCopy()
	gs.learned[group] = slices.DeleteFunc(gs.learned[group], func(a v1alpha1.LaunchAttempt) bool {
		return nodegroups.Knows(status, a)
	})
	for _, a := range gs.learned[group] {
		status = nodegroups.Learn(status, a)
	}
	return status
}

// SetMachine tells of a machine. States only grow, so old news changes nothing; nor is
// a launch forgotten, which some clouds tell later than the machine.
func (m *Model) SetMachine(c cloudprovider.Machine) {
	m.update(func() bool {
		key := machineKey{c.Group, c.Name}
		if c.State == cloudprovider.Gone {
			delete(m.groups.made, key)
			return m.removeMachine(key)
		}
		old, known := m.groups.machines[key]
		if !known || old.Hold && !c.Hold {
			m.groups.made[key] = m.now()
		}
		if known {
			c.Launch, c.Hold = cmp.Or(c.Launch, old.Launch), c.Hold && old.Hold
			if c.State <= old.State && c.Launch == old.Launch && c.Hold == old.Hold {
				return false
			}
			c.State = max(c.State, old.State)
		}
		m.putMachine(key, c)
		return true
	})
}

// MachineTaken tells that a machine is being deleted, unless it is gone already.
func (m *Model) MachineTaken(c cloudprovider.Machine) {
	m.update(func() bool {
		key := machineKey{c.Group, c.Name}
		known, ok := m.groups.machines[key]
		if ok {
			known.State = cloudprovider.Terminated
			m.putMachine(key, known)
		}
		return ok
	})
}

func (m *Model) putMachine(key machineKey, c cloudprovider.Machine) {
	m.removeMachine(key)
	gs := &m.groups
	gs.machines[key] = c
	if c.Counts() {
		gs.alive[key.group]++
	}
	m.linkMachine(key, c)
	if c.Launch != "" {
		if gs.launched[c.Launch] == nil {
			gs.launched[c.Launch] = map[machineKey]bool{}
		}
		gs.launched[c.Launch][key] = true
	}
	m.machineChanged(c)
}

func (m *Model) removeMachine(key machineKey) bool {
	gs := &m.groups
	c, known := gs.machines[key]
	if !known {
		return false
	}
	delete(gs.machines, key)
	if c.Counts() {
		gs.alive[key.group]--
	}
	if delete(gs.launched[c.Launch], key); len(gs.launched[c.Launch]) == 0 {
		delete(gs.launched, c.Launch)
	}
	m.unlinkMachine(key, c)
	m.machineChanged(c)
	return true
}

func (m *Model) machineChanged(c cloudprovider.Machine) {
	m.groups.changed = true
	if c.Launch != "" {
		m.touch(provisioning.TokenUID(c.Launch))
	}
}

// MadeAt is when the last machine of those launches was first known; zero where none
// is.
func (m *Model) MadeAt(tokens []string) (last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, token := range tokens {
		for key := range m.groups.launched[token] {
			if at := m.groups.made[key]; at.After(last) && !m.groups.machines[key].Hold {
				last = at
			}
		}
	}
	return last
}

// machinesOf are the machines of a launch, by group and name.
func (gs *groups) machinesOf(token string) (out []cloudprovider.Machine) {
	for key := range gs.launched[token] {
		out = append(out, gs.machines[key])
	}
	sortMachines(out)
	return out
}

func sortMachines(list []cloudprovider.Machine) {
	slices.SortFunc(list, func(a, b cloudprovider.Machine) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
}

// Group returns the newest version of a NodeGroup that the model knows, or nil.
func (m *Model) Group(name string) *v1alpha1.NodeGroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups.objects[name]
}

// flushGroups brings the list up to date. Whoever waits is woken where a group has
// changed other than by growing.
func (m *Model) flushGroups() {
	gs := &m.groups
	if !gs.changed {
		return
	}
	gs.changed, m.spending.changed = false, true
	if gs.daemonSets == nil {
		gs.daemonSets = []provisioning.DaemonSet{}
		for _, uid := range slices.Sorted(maps.Keys(m.daemonSets)) {
			gs.daemonSets = append(gs.daemonSets, provisioning.NewDaemonSet(m.daemonSets[uid]))
		}
	}
	before := map[string]int{}
	for i := range gs.list {
		before[gs.list[i].Name] = gs.list[i].Machines
	}
	for name := range before {
		if gs.objects[name] == nil {
			m.wakeAll() // who waits for it waits in vain
			m.soon.stale = true
		}
	}
	promised := m.promised()
	list := make([]provisioning.Group, 0, len(gs.objects))
	for _, name := range slices.Sorted(maps.Keys(gs.objects)) {
		g, known := gs.read[name]
		if !known {
			g = provisioning.NewGroup(nodegroups.GroupFrom(gs.objects[name], gs.status(name), 0), gs.daemonSets)
			gs.read[name] = g
			m.soon.stale = true
			m.repriced(name, g.MicroUSDPerHour)
			m.wakeAll()
		}
		g.Machines = gs.alive[name] + promised[name]
		if g.Machines < before[name] {
			m.wakeAll()
		}
		list = append(list, g)
	}
	gs.list = list
}

// promised is the number of machines of each group that attempts in flight have
// asked for and that have not been seen yet.
func (m *Model) promised() map[string]int {
	out := map[string]int{}
	clear(m.holdings.asked)
	for uid := range m.requests.launching {
		e := m.requests.byUID[uid]
		for group, count := range m.missing(e) {
			out[group] += count
			if m.holdings.asked[e.object.Namespace] == nil {
				m.holdings.asked[e.object.Namespace] = map[string]int{}
			}
			m.holdings.asked[e.object.Namespace][group] += count
		}
	}
	return out
}

// Launching are the groups in which attempts in flight launch machines, by name.
func (m *Model) Launching() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	groups := map[string]bool{}
	for uid := range m.requests.launching {
		for _, l := range m.attempt(m.requests.byUID[uid]).Launches {
			groups[l.Group] = true
		}
	}
	return slices.Sorted(maps.Keys(groups))
}

// missing are the machines of each group that the launching attempt of the request has
// asked for and that have not been seen yet.
func (m *Model) missing(e *request) map[string]int {
	a, out := m.attempt(e), map[string]int{}
	for _, c := range a.Calls(e.object.UID) {
		made := 0
		for key := range m.groups.launched[c.Token] {
			if key.group == c.Group && !m.groups.machines[key].Hold {
				made++
			}
		}
		out[c.Group] += max(0, c.Count-made)
	}
	return out
}
