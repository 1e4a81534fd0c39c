package placement

import (
	"maps"

	"github.com/muster-dev/muster/nodegroups"
)

// Snapshot simulates changes of usage on top of a Tree, without changing the Tree. It is valid until the Tree changes.
// It copies only the parts that a simulation changes.
type Snapshot struct {
	tree *Tree
	// mode says whether the usage of topology assignments counts.
	mode int
	// usage is added to the usage of the tree, by the ID of the domain. nodeUsage is added to single nodes, by name,
	// in trees whose lowest level has several nodes.
	usage, nodeUsage map[string]nodegroups.Resources
	// leafClasses are the classes of the leaves that a simulation changed; groups are the class groups of their
	// domains.
	leafClasses map[*leaf]*class
	groups      map[*lowestDomain]classGroups
	classes     classes
}

// Snapshot returns a snapshot of the tree.
func (t *Tree) Snapshot() *Snapshot {
	return &Snapshot{tree: t, usage: map[string]nodegroups.Resources{}, nodeUsage: map[string]nodegroups.Resources{},
		leafClasses: map[*leaf]*class{},
		groups:      map[*lowestDomain]classGroups{}, classes: classes{}}
}

// EmptySnapshot returns a snapshot without the usage of topology assignments.
func (t *Tree) EmptySnapshot() *Snapshot {
	v := t.Snapshot()
	v.mode = withoutAssignments
	return v
}

// Clone returns an independent copy.
func (v *Snapshot) Clone() *Snapshot {
	out := *v
	out.usage, out.nodeUsage = cloneAmounts(v.usage), cloneAmounts(v.nodeUsage)
	out.leafClasses, out.groups, out.classes = maps.Clone(v.leafClasses), maps.Clone(v.groups), maps.Clone(v.classes)
	return &out
}

func cloneAmounts(amounts map[string]nodegroups.Resources) map[string]nodegroups.Resources {
	out := make(map[string]nodegroups.Resources, len(amounts))
	for id, v := range amounts {
		out[id] = v.Clone()
	}
	return out
}

// AddUsage adds the usage of these pods n times.
func (v *Snapshot) AddUsage(domains []Domain, pod nodegroups.Resources, n int) {
	ids := v.addTo(v.usage, domains, pod, n)
	if v.tree.hosts {
		v.reclassify(ids)
	}
}

// AddNodeUsage charges pods to the nodes in Placement.Nodes, so that later podSets of the same Workload cannot use the
// same capacity. It does not charge the domains.
func (v *Snapshot) AddNodeUsage(nodes []Domain, pod nodegroups.Resources) {
	v.reclassify(v.addTo(v.nodeUsage, nodes, pod, 1))
}

func (v *Snapshot) addTo(to map[string]nodegroups.Resources, domains []Domain, pod nodegroups.Resources, n int) (ids []string) {
	requests := withPod(pod)
	for _, d := range domains {
		id := v.tree.id(d.Values)
		used := to[id]
		if used == nil {
			used = nodegroups.Resources{}
			to[id] = used
		}
		used.Add(requests, n*int(d.Count))
		ids = append(ids, id)
	}
	return ids
}

// reclassify moves leaves to the class of their current free capacity.
func (v *Snapshot) reclassify(ids []string) {
	for _, id := range ids {
		l := v.tree.leaves[id]
		if l == nil {
			continue
		}
		before, c := v.classOf(l), v.classes.of(l.signature, v.freeCapacity(l))
		if c == before {
			continue
		}
		v.groups[l.parent] = v.groupsOf(l.parent).without(before, l.name).with(c, l.name)
		v.leafClasses[l] = c
	}
}

// Fits reports whether the pods fit in exactly these domains.
func (v *Snapshot) Fits(domains []Domain, pod nodegroups.Resources) bool {
	requests := withPod(pod)
	for _, d := range domains {
		if v.podsFitting(v.tree.id(d.Values), requests) < int64(d.Count) {
			return false
		}
	}
	return true
}

// podsFitting returns how many pods fit into a domain of an assignment.
func (v *Snapshot) podsFitting(id string, requests nodegroups.Resources) (fit int64) {
	if v.tree.hosts {
		l := v.tree.leaves[id]
		if l == nil {
			return 0
		}
		n, _ := countIn(v.freeCapacity(l), requests)
		return int64(n)
	}
	b := v.tree.lowestDomains[id]
	if b == nil {
		return 0
	}
	for _, c := range v.groupsOf(b) {
		n, _ := countIn(c.free, requests)
		fit += int64(n) * int64(len(c.names))
	}
	n, _ := countIn(v.freeInDomain(b), requests)
	return min(fit, int64(n))
}

func (v *Snapshot) freeCapacity(l *leaf) nodegroups.Resources {
	room := v.tree.freeCapacity(l, v.mode)
	if v.tree.hosts {
		room.Sub(v.usage[l.name], 1)
	} else {
		room.Sub(v.nodeUsage[l.name], 1)
	}
	return room
}

// freeInDomain returns the free capacity of a domain with several nodes, less the usage of assignments. kube-scheduler
// chooses the nodes of these pods, so the usage cannot be charged to a node. Kueue does the same.
func (v *Snapshot) freeInDomain(b *lowestDomain) nodegroups.Resources {
	left := b.free.Clone()
	if v.mode == withAssignments {
		left.Sub(v.tree.usage[b.id], 1)
	}
	left.Sub(v.usage[b.id], 1)
	return left
}

func (v *Snapshot) classOf(l *leaf) *class {
	if c := v.leafClasses[l]; c != nil {
		return c
	}
	return l.classes[v.mode]
}

func (v *Snapshot) groupsOf(b *lowestDomain) classGroups {
	if c, ok := v.groups[b]; ok {
		return c
	}
	return b.groups[v.mode]
}
