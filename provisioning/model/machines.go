package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/provisioning/purchases"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// machines are the machines of the clouds. Machine and node are matched by their provider ID.
type machines struct {
	byKey map[machineKey]cloudprovider.Machine
	// launched indexes machines by the token of their launch.
	launched index[string, machineKey]
	// launchedFor indexes machines by the request of their launches.
	launchedFor index[types.UID, machineKey]
	// bought are the machines of each request that were ever seen, including those that are no longer listed.
	bought purchases.Seen
	// made is when each machine was first seen. served has the machines that have had a node since.
	made   map[machineKey]time.Time
	served map[machineKey]bool
	// left is when a machine last lost its node.
	left map[machineKey]time.Time
	// taken are the machines whose termination the cloud has accepted, but not listed yet. They are left alone, and count until a list
	// shows their end.
	taken map[machineKey]bool
	// unwatched are the machines that were only returned by a launch, and since when. The watch of the cloud reports no end of a machine
	// that ended before the watch saw it, or whose end came before the launch returned.
	unwatched map[machineKey]time.Time
	// alive counts the machines of each group that have not ended, without those of launches in flight; unattributed counts the machines
	// that may belong to launches in flight.
	alive, unattributed map[string]int

	// nodes and keys have the node and the machine of each provider ID. If several nodes have the same ID, the youngest is used: after a
	// machine has rejoined under another name, its old Node stays for a while.
	nodes map[string]string
	keys  map[string]machineKey
	// ended has the provider IDs of machines that have ended or were terminated. They count as ended even if the node still seems ready.
	ended map[string]bool
	// wentEarly has the provider IDs of machines that ended before their node was seen, and when. The loss is reported when the node
	// arrives.
	wentEarly map[string]time.Time
	// unregistered indexes the machines that have not ended and have no node by the request of their launch.
	unregistered index[types.UID, machineKey]
	// halted are the machines of launches that their cloud has stopped and not terminated.
	halted map[machineKey]bool
	// borne is the identity of each node; bearers are the nodes of each provider ID.
	borne   map[string]identity
	bearers index[string, string]
}

// identity is the provider ID of a node, and since when the node exists.
type identity struct {
	id      string
	created time.Time
}

type machineKey struct{ group, name string }

func (r ref) machine() machineKey { return machineKey{r.group, r.name} }

func newMachines() machines {
	return machines{
		byKey: map[machineKey]cloudprovider.Machine{}, launched: index[string, machineKey]{}, launchedFor: index[types.UID, machineKey]{},
		bought: purchases.Seen{}, made: map[machineKey]time.Time{}, served: map[machineKey]bool{}, left: map[machineKey]time.Time{},
		taken: map[machineKey]bool{}, unwatched: map[machineKey]time.Time{}, alive: map[string]int{}, unattributed: map[string]int{},
		nodes: map[string]string{}, keys: map[string]machineKey{}, ended: map[string]bool{}, wentEarly: map[string]time.Time{},
		unregistered: index[types.UID, machineKey]{},
		halted:       map[machineKey]bool{}, borne: map[string]identity{}, bearers: index[string, string]{},
	}
}

// set stores a state of a machine. States only advance until the machine is started again, so an old state changes nothing. The launch of
// a machine is kept, since some clouds report it only at first or later. Listed reports whether the NodeGroup exists.
func (ms *machines) set(c cloudprovider.Machine, listed bool, now time.Time) effect {
	key := machineKey{c.Group, c.Name}
	delete(ms.unwatched, key)
	if c.State == cloudprovider.Gone {
		delete(ms.made, key)
		delete(ms.served, key)
		delete(ms.left, key)
		delete(ms.taken, key)
		ms.expectNode(key, listed, now)
		ms.bought.Gone(state.TokenUID(ms.byKey[key].Launch), c.Group, c.Name)
		return ms.remove(key, listed)
	}
	old, known := ms.byKey[key]
	if !known || old.Hold && !c.Hold {
		ms.made[key] = now
	}
	if known {
		c.Launch, c.Hold = cmp.Or(c.Launch, old.Launch), c.Hold && old.Hold
		c.Unattributed = c.Unattributed && c.Launch == ""
		if !c.Restarted(old) {
			if c.State < old.State {
				c.State, c.Kept, c.Billed = old.State, old.Kept, old.Billed
			}
			if c.State == old.State && c.Kept == old.Kept && c.Billed == old.Billed && c.Launch == old.Launch && c.Hold == old.Hold &&
				c.Unattributed == old.Unattributed && c.EndsAt.Equal(old.EndsAt) && !c.Started.After(old.Started) {
				return unchanged
			}
		} else {
			delete(ms.taken, key)
		}
	}
	ms.put(key, c, listed)
	return changed
}

// expectNode records a machine that has ended and had no node yet.
func (ms *machines) expectNode(key machineKey, listed bool, now time.Time) {
	maps.DeleteFunc(ms.wentEarly, func(_ string, at time.Time) bool { return now.Sub(at) > state.LostAfter })
	id := ms.byKey[key].ProviderID
	if _, hasNode := ms.nodes[id]; id != "" && !hasNode && listed {
		ms.wentEarly[id] = now
	}
}

// answered stores a machine that a launch has returned.
func (ms *machines) answered(c cloudprovider.Machine, listed bool, now time.Time) effect {
	key := machineKey{c.Group, c.Name}
	since, unwatched := ms.unwatched[key]
	if _, known := ms.byKey[key]; !known {
		since, unwatched = now, true
	}
	e := ms.set(c, listed, now)
	if unwatched {
		ms.unwatched[key] = since
	}
	return e
}

// watchedWithin is how soon the watch of a cloud reports a new machine.
const watchedWithin = 2 * time.Minute

// vanished returns the machines that are being terminated and whose end no watch will report.
func (ms *machines) vanished(now time.Time) (out []machineKey) {
	for key, since := range ms.unwatched {
		if ms.taken[key] && now.Sub(since) > watchedWithin {
			out = append(out, key)
		}
	}
	return out
}

// take records that a machine is being terminated, unless it is gone already.
func (ms *machines) take(key machineKey, listed bool) effect {
	c, known := ms.byKey[key]
	if !known || ms.taken[key] {
		return unchanged
	}
	ms.taken[key] = true
	ms.relink(key, c, listed)
	return changed
}

func (ms *machines) put(key machineKey, c cloudprovider.Machine, listed bool) {
	ms.remove(key, listed)
	ms.byKey[key] = c
	ms.count(c, 1)
	if c.Launch != "" {
		ms.launched.add(c.Launch, key)
		ms.launchedFor.add(state.TokenUID(c.Launch), key)
		if !c.Hold {
			ms.bought.Add(state.TokenUID(c.Launch), c.Launch, c.Group, c.Name, c.Started)
		}
	}
	if c.ProviderID != "" {
		ms.keys[c.ProviderID] = key
		delete(ms.wentEarly, c.ProviderID)
	}
	ms.relink(key, c, listed)
}

// count changes the number of machines of a group.
func (ms *machines) count(c cloudprovider.Machine, by int) {
	switch {
	case !c.Counts():
	case c.Unattributed:
		ms.unattributed[c.Group] += by
	default:
		ms.alive[c.Group] += by
	}
}

func (ms *machines) remove(key machineKey, listed bool) effect {
	c, known := ms.byKey[key]
	if !known {
		return unchanged
	}
	delete(ms.byKey, key)
	ms.count(c, -1)
	ms.launched.remove(c.Launch, key)
	ms.launchedFor.remove(state.TokenUID(c.Launch), key)
	if ms.keys[c.ProviderID] == key {
		delete(ms.keys, c.ProviderID)
	}
	ms.relink(key, c, listed)
	return changed
}

// leave handles a node that is gone.
func (ms *machines) leave(name string, listed func(machineKey) bool, now time.Time) {
	if key, ok := ms.ofNode(name); ok {
		ms.left[key] = now
	}
	ms.setNode(name, nil, listed)
}

// setNode handles a changed node; nil is a node that is gone. Listed reports whether the NodeGroup of a machine exists.
func (ms *machines) setNode(name string, n *corev1.Node, listed func(machineKey) bool) {
	old, is := ms.borne[name], identity{}
	if n != nil && n.Spec.ProviderID != "" {
		is = identity{n.Spec.ProviderID, n.CreationTimestamp.Time}
	}
	if is == old {
		return
	}
	delete(ms.borne, name)
	ms.bearers.remove(old.id, name)
	if is.id != "" {
		ms.borne[name] = is
		ms.bearers.add(is.id, name)
	}
	ms.choose(old.id, listed)
	ms.choose(is.id, listed)
}

// choose selects the node of the machine with the ID.
func (ms *machines) choose(id string, listed func(machineKey) bool) {
	youngest := ""
	for name := range ms.bearers[id] {
		if youngest == "" || cmp.Or(ms.borne[name].created.Compare(ms.borne[youngest].created), cmp.Compare(name, youngest)) > 0 {
			youngest = name
		}
	}
	if youngest == ms.nodes[id] {
		return
	}
	if ms.nodes[id] = youngest; youngest == "" {
		delete(ms.nodes, id)
	}
	ms.relinkNode(id, listed)
}

func (ms *machines) relinkNode(id string, listed func(machineKey) bool) {
	if key, ok := ms.keys[id]; ok {
		ms.relink(key, ms.byKey[key], listed(key))
		return
	}
	switch _, hasNode := ms.nodes[id]; {
	case !hasNode:
		delete(ms.ended, id)
	case !ms.wentEarly[id].IsZero():
		ms.ended[id] = true
	}
}

// relink updates what is derived from a machine and its node.
func (ms *machines) relink(key machineKey, c cloudprovider.Machine, listed bool) {
	_, known := ms.byKey[key]
	alive := known && c.State < cloudprovider.Terminated && !ms.taken[key]
	_, hasNode := ms.nodes[c.ProviderID]
	if known && hasNode {
		ms.served[key] = true
	}
	ms.unregistered.set(state.TokenUID(c.Launch), key, alive && !hasNode)
	if delete(ms.halted, key); known && c.State == cloudprovider.Terminated && c.Kept && c.Launch != "" && !ms.taken[key] {
		ms.halted[key] = true
	}
	if other, ok := ms.keys[c.ProviderID]; ok && other != key {
		return // another NodeGroup lists it now
	}
	delete(ms.ended, c.ProviderID)
	// A machine that was dropped with its NodeGroup may still run.
	if hasNode && !alive && (known || listed) {
		ms.ended[c.ProviderID] = true
	}
}

// ofNode returns the machine of the node.
func (ms *machines) ofNode(name string) (machineKey, bool) {
	key, ok := ms.keys[ms.borne[name].id]
	return key, ok
}

// nodeOf returns the node of the machine.
func (ms *machines) nodeOf(key machineKey) (string, bool) {
	name, ok := ms.nodes[ms.byKey[key].ProviderID]
	return name, ok
}

// withID returns the machine with that provider ID; nil if it is unknown or has ended.
func (ms *machines) withID(id string) *cloudprovider.Machine {
	key, ok := ms.keys[id]
	if !ok || ms.ended[id] {
		return nil
	}
	c := ms.byKey[key]
	return &c
}

// over reports whether the cloud has listed the machine with that provider ID as ended for good. A stopped machine may be started again.
func (ms *machines) over(id string) bool {
	c, known := ms.byKey[ms.keys[id]]
	return ms.ended[id] && (!known || c.State == cloudprovider.Terminated && !c.Kept)
}

// madeAt is when the last machine of those launches was first seen; zero if there is none.
func (ms *machines) madeAt(tokens []string) (last time.Time) {
	for _, token := range tokens {
		for key := range ms.launched[token] {
			if at := ms.made[key]; at.After(last) && !ms.byKey[key].Hold {
				last = at
			}
		}
	}
	return last
}

// ofLaunch returns the machines of a launch, by group and name. For the request, terminated machines have ended.
func (ms *machines) ofLaunch(token string) (out []cloudprovider.Machine) {
	for key := range ms.launched[token] {
		c := ms.byKey[key]
		if ms.taken[key] {
			c.State = cloudprovider.Terminated
		}
		out = append(out, c)
	}
	sortMachines(out)
	return out
}

// withoutNode returns the machines that have not ended and have no node, by group and name.
func (ms *machines) withoutNode() (out []cloudprovider.Machine) {
	for _, keys := range ms.unregistered {
		for key := range keys {
			out = append(out, ms.byKey[key])
		}
	}
	sortMachines(out)
	return out
}

// stopped returns the machines of launches that their cloud has stopped and may start again, by group and name. In a doubted group, each
// of them may have had a node.
func (ms *machines) stopped(doubted func(group string) bool) (out []scaledown.Halted) {
	for key := range ms.halted {
		out = append(out, scaledown.Halted{Machine: ms.byKey[key], HadNode: ms.served[key] || doubted(key.group)})
	}
	slices.SortFunc(out, func(a, b scaledown.Halted) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// joinsWithin is how long after its start a machine is assumed to have its node. A machine that was older when it was first seen may have
// had a node before.
const joinsWithin = 10 * time.Minute

// missingNode returns the machines without a node that have had one, or may have had one. A machine that an attempt in flight waits for is
// not among them, unless it is older than the attempt's calls. A machine that others have launched may never get a node, so it does not
// count either. In a doubted group, each machine may have had a node.
func (ms *machines) missingNode(list []cloudprovider.Machine, inFlight map[string]transaction.Call,
	doubted func(group string) bool) (out []scaledown.Missing) {
	for _, m := range list {
		key := machineKey{m.Group, m.Name}
		mayHave := m.Launch != "" && (!ms.made[key].Before(m.Started.Add(joinsWithin)) || doubted(m.Group))
		c, waited := inFlight[m.Launch]
		if m.State == cloudprovider.Running && (waited && c.Lags(m) || !waited && (ms.served[key] || mayHave)) {
			out = append(out, scaledown.Missing{Machine: m, Since: ms.left[key]})
		}
	}
	return out
}

// settledAt is the time from which on the loss of the node of a running machine counts; zero if the machine has ended.
func (ms *machines) settledAt(providerID string) time.Time {
	key, ok := ms.keys[providerID]
	since, left := ms.left[key]
	if m := ms.byKey[key]; !ok || !left || m.State != cloudprovider.Running || ms.taken[key] {
		return time.Time{}
	}
	return scaledown.Missing{Since: since}.SettledAt()
}

func sortMachines(list []cloudprovider.Machine) {
	slices.SortFunc(list, func(a, b cloudprovider.Machine) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
}

// missing counts by group the machines that an attempt has requested and that have not been seen yet.
func (ms *machines) missing(uid types.UID, a transaction.Attempt) map[string]int {
	out := map[string]int{}
	for _, c := range a.Calls(uid) {
		made := 0
		for key := range ms.launched[c.Token] {
			if key.group == c.Group && !ms.byKey[key].Hold {
				made++
			}
		}
		out[c.Group] += max(0, c.Count-made)
	}
	return out
}
