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

// machines are those of the clouds. A machine and its node are found by the provider ID
// that both bear.
type machines struct {
	byKey map[machineKey]cloudprovider.Machine
	// launched finds the machines of a launch, by its token.
	launched index[string, machineKey]
	// launchedFor finds those of all launches of a request.
	launchedFor index[types.UID, machineKey]
	// bought are those that were ever seen of a request: also those that are listed no more.
	bought purchases.Seen
	// made is since when each of them is known; served are those that have had a node since.
	made   map[machineKey]time.Time
	served map[machineKey]bool
	// left is when those that have lost a node last did.
	left map[machineKey]time.Time
	// taken are those that their cloud has accepted to terminate, and still lists as they were:
	// nothing is done with them any more, but they count until lists show their end.
	taken map[machineKey]bool
	// unwatched are those that only the answer of a launch has told of, and since when. One that went
	// before its cloud's watch looked will never be told of, nor one that the watch told of before the answer came.
	unwatched map[machineKey]time.Time
	// alive counts the machines of each group that have not ended, without those that launches under way may have made;
	// unattributed counts the latter.
	alive, unattributed map[string]int

	// nodes and keys of machines, by provider ID. Of several nodes that bear one, the node is the youngest: a machine that has
	// joined by another name leaves the Node of before for a while.
	nodes map[string]string
	keys  map[string]machineKey
	// ended are the IDs of nodes whose machine has ended, or was taken back: that counts before
	// the node itself is seen to be unready.
	ended map[string]bool
	// wentEarly are the IDs of machines that went before their node was heard of, which is told apart, and when.
	wentEarly map[string]time.Time
	// unregistered are the machines that have not ended and have no node, by the request
	// that they were launched for.
	unregistered index[types.UID, machineKey]
	// halted are the machines of launches that their cloud has only stopped.
	halted map[machineKey]bool
	// borne is what each node bears; bearers are the nodes by the ID that they bear.
	borne   map[string]identity
	bearers index[string, string]
}

// identity is the provider ID that a node bears, and since when the node is there.
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

// set stores news of a machine. States only grow until it is started again, so old news changes nothing; nor is
// a launch forgotten, which some clouds tell later than the machine. Listed reports whether
// its NodeGroup is there.
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

// expectNode remembers a machine that has gone and has no node yet.
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

// watchedWithin is how soon the watch of a cloud tells of a machine that exists.
const watchedWithin = 2 * time.Minute

// vanished are the machines that are being deleted and that no watch will show the end of.
func (ms *machines) vanished(now time.Time) (out []machineKey) {
	for key, since := range ms.unwatched {
		if ms.taken[key] && now.Sub(since) > watchedWithin {
			out = append(out, key)
		}
	}
	return out
}

// take notes that a machine is being deleted, unless it is gone already.
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

// count adds a machine to those of its group, or takes it off.
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

// leave follows a node that is gone.
func (ms *machines) leave(name string, listed func(machineKey) bool, now time.Time) {
	if key, ok := ms.ofNode(name); ok {
		ms.left[key] = now
	}
	ms.setNode(name, nil, listed)
}

// setNode follows a node that has changed; nil is one that is gone. Listed reports whether
// the NodeGroup of a machine is there.
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

// choose says which node is that of the machine with the ID.
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

// relink brings up to date what follows from a machine and its node.
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
	// A machine that is not known since its NodeGroup was deleted may run on.
	if hasNode && !alive && (known || listed) {
		ms.ended[c.ProviderID] = true
	}
}

// ofNode is the machine of the node.
func (ms *machines) ofNode(name string) (machineKey, bool) {
	key, ok := ms.keys[ms.borne[name].id]
	return key, ok
}

// nodeOf is the node of the machine.
func (ms *machines) nodeOf(key machineKey) (string, bool) {
	name, ok := ms.nodes[ms.byKey[key].ProviderID]
	return name, ok
}

// withID is the machine of that provider ID, or nil where none is known or it
// has ended.
func (ms *machines) withID(id string) *cloudprovider.Machine {
	key, ok := ms.keys[id]
	if !ok || ms.ended[id] {
		return nil
	}
	c := ms.byKey[key]
	return &c
}

// over reports whether the machine of that provider ID has ended for good, by word of its cloud:
// one that was only stopped may be started again.
func (ms *machines) over(id string) bool {
	c, known := ms.byKey[ms.keys[id]]
	return ms.ended[id] && (!known || c.State == cloudprovider.Terminated && !c.Kept)
}

// madeAt is when the last machine of those launches was first known; zero where none
// is.
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

// ofLaunch are the machines of a launch, by group and name. Those that have been taken back
// have ended as far as their request is concerned.
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

// withoutNode are the machines that have not ended and have no node, by group and name.
func (ms *machines) withoutNode() (out []cloudprovider.Machine) {
	for _, keys := range ms.unregistered {
		for key := range keys {
			out = append(out, ms.byKey[key])
		}
	}
	sortMachines(out)
	return out
}

// stopped are the machines of launches that their cloud may start again, by group and name. Those of a group that is doubted may have
// had a node.
func (ms *machines) stopped(doubted func(group string) bool) (out []scaledown.Halted) {
	for key := range ms.halted {
		out = append(out, scaledown.Halted{Machine: ms.byKey[key], HadNode: ms.served[key] || doubted(key.group)})
	}
	slices.SortFunc(out, func(a, b scaledown.Halted) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// joinsWithin is how long after its start a machine has its node, as far as can be told
// without having seen it: one that was older when it became known may have had one.
const joinsWithin = 10 * time.Minute

// missingNode are those of the machines without a node that have had one, or may have. What an attempt in flight waits for, by its
// calls, is none, unless it is older than them. What others have launched may never have been meant to have one. Those of a group that is
// doubted may have had one.
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

// settledAt is from when on the loss of a node counts whose machine runs; zero where that has ended.
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

// missing are the machines of each group that an attempt has asked for and that have not
// been seen yet.
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
