package planner

import (
	"maps"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/spend"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/when"
)

// Snapshot is the input of a plan. It is read-only: a plan works on copies.
type Snapshot struct {
	Now time.Time
	// Answering is since when the control plane responds; zero if it was never silent, and Now while it is silent.
	Answering time.Time
	Nodes     *nodeset.Set
	// Groups in the order of their names.
	Groups []Group
	// DaemonSets whose pods will run on new nodes.
	DaemonSets []state.DaemonSet
	// Objects are the objects that pods refer to, for gangs that NewPodSet has not read.
	Objects fit.Objects
	// Alone: the gang has waited in vain for the room on machines of others, and now shares machines only if it cannot launch its own. So
	// sharing costs it at most one such wait.
	Alone bool
	// Upcoming is the room that will exist without another launch; nil if plans must not count on it.
	Upcoming *Upcoming
	// Memo caches plans on this snapshot; nil for none.
	Memo *Memo
	// Budgets are the budgets of all CapacityPolicies, by policy and name, with the costs of requests.
	Budgets []spend.Budget
	Charges []spend.Charge
}

// NewSnapshot returns the snapshot of these nodes, groups in the order of their names, and DaemonSets. It is for one goroutine at a time.
func NewSnapshot(now time.Time, nodes *nodeset.Set, groups []nodegroups.Group, daemonSets []state.DaemonSet) *Snapshot {
	s := &Snapshot{Now: now, Nodes: nodes, DaemonSets: daemonSets, Memo: NewMemo()}
	for _, g := range groups {
		s.Groups = append(s.Groups, NewGroup(g, daemonSets))
	}
	return s
}

// Counting returns the time from which on a bound that started at from counts. While the control plane did not respond, it could not
// report the state of pods, nodes and machines.
func (s *Snapshot) Counting(from time.Time) time.Time { return when.Latest(from, s.Answering) }

// FindGroup returns the group with that name; nil for none.
func (s *Snapshot) FindGroup(name string) *Group {
	i, ok := sort.Find(len(s.Groups), func(i int) int { return strings.Compare(name, s.Groups[i].Name) })
	if !ok {
		return nil
	}
	return &s.Groups[i]
}

// BackoffEnds returns when the first backoff of a group for that gang ends; zero for none. The end of any backoff may let the gang start,
// even if the group has room for a part of it only, or is just cheaper.
func (s *Snapshot) BackoffEnds(gang *state.Gang) (at time.Time) {
	spent := s.vainSpent(gang)
	for i := range s.Groups {
		if s.Groups[i].Unlisted {
			at = when.Earliest(at, s.Now.Add(listedAgain))
		}
		for j := range s.Groups[i].Backoffs {
			switch b := &s.Groups[i].Backoffs[j]; {
			case b.Until.After(s.Now):
				at = when.Earliest(at, b.Until.Time)
			case spent != nil && nodegroups.InVain(b.Class):
				at = when.Earliest(at, when.Earliest(spent.Ends, s.Now.Add(vainAgain)))
			}
		}
	}
	return at
}

// vainAgain is the interval between two plans for a launch that is likely to be in vain: its allowance grows with the other spend.
const vainAgain = 10 * time.Minute

// Group is a group with what pods of a gang can use of one of its new machines.
type Group struct {
	nodegroups.Group
	// Usable is what nodes were seen to offer, without the requests of DaemonSets. UsableAtBest is the same for the template, and for
	// other devices that nodes offer.
	Usable, UsableAtBest nodegroups.Resources
	// Published contains the devices that drivers will publish for a machine, PublishedAtBest those that the template promises; nil
	// for none.
	Published, PublishedAtBest fit.Devices
}

// NewGroup returns the group with these DaemonSets on its nodes.
func NewGroup(g nodegroups.Group, daemonSets []state.DaemonSet) Group {
	out := Group{Group: g, Usable: g.Allocatable.Clone(), UsableAtBest: g.Promised.Clone()}
	for name, v := range g.Allocatable {
		out.UsableAtBest[name] = max(out.UsableAtBest[name], v)
	}
	for i := range daemonSets {
		if d := &daemonSets[i]; d.RunsOn("", g.Labels, g.Taints) {
			out.Usable.Sub(d.Requests, 1)
			out.UsableAtBest.Sub(d.Requests, 1)
		}
	}
	return out
}

// Publish returns the group with these devices on its machines, as learned and as promised; nil for none.
func (g Group) Publish(devices, best fit.Devices) Group {
	g.Published, g.PublishedAtBest = devices, best
	if best == nil {
		g.PublishedAtBest = devices
	}
	if devices != nil {
		g.Allocatable, g.Usable = g.Allocatable.Clone(), g.Usable.Clone()
		maps.Copy(g.Allocatable, devices.Amounts())
		maps.Copy(g.Usable, devices.Amounts())
	}
	if best = g.PublishedAtBest; best != nil {
		g.Promised, g.UsableAtBest = g.Promised.Clone(), g.UsableAtBest.Clone()
		maps.Copy(g.Promised, best.Amounts())
		maps.Copy(g.UsableAtBest, best.Amounts())
	}
	return g
}

// Memo caches the results of plans, for one goroutine that makes many of them. A nil Memo caches nothing.
//
// It has the gangs that could not be placed, by equivalence class, so that equivalent gangs need no plan. This is valid while requests are
// decided one after another: if a decision affects others, such as by a share of upcoming nodes, they are decided again when it has been
// recorded.
type Memo struct {
	inadmissible map[string]Verdict
	forecasts    map[*Upcoming]forecast
	told         map[toldApart]*nodeset.Set
}

// toldApart are nodes that are distinguished by more labels: few gangs select on such labels, and each of them would have to distinguish
// the nodes again.
type toldApart struct {
	nodes   *nodeset.Set
	changes int
	keys    string
}

// UpcomingAttempt is an attempt in flight, or one that is about to start.
type UpcomingAttempt struct {
	Gang     state.Gang
	Policy   state.Policy
	Launches []GroupCount
	// Shares: the gang counts on room on machines of others. The room is kept for it as soon as it exists.
	Shares bool
	// Held: the gang's pods are created as soon as its machines have joined. If a gang is not held, it is unknown when its pods arrive,
	// so no other gang may count on its remaining room.
	Held bool
}

// Upcoming is the room that will exist without another launch: when the machines that are being launched have joined, and the pods of
// bookings have arrived. With it, gangs that are smaller than a machine share machines from the start.
//
// It is a list of attempts: first those that have booked all that they need, then the others in the order of their start. Each uses what
// the attempts before it leave, so no two count on the same room. Forecasts are computed when they are needed, and a Memo caches them.
type Upcoming struct {
	// before is the list without its last attempt; nil for an empty list.
	before  *Upcoming
	attempt UpcomingAttempt
	// shares reports whether any attempt of the list shares machines.
	shares bool
	*root
}

// forecast is the result of an Upcoming.
type forecast struct {
	// nodes with their remaining room.
	nodes *nodeset.Set
	// Fits reports whether the gang of the last attempt has room at the end; placement is its place.
	Fits      bool
	placement []Placement
	// kept is what attempts that share machines will use of existing nodes, by node. They have not booked it: a booking would block the
	// node for others until the machines of the attempt have joined and its pods have arrived.
	kept map[string]nodegroups.Resources
}

// root is what the attempts of a list share.
type root struct {
	// now has the current nodes and groups.
	now *Snapshot
	// flying are the requests of the initial attempts of the list. They consume their bookings in their turn.
	flying map[types.UID]bool
	// comesBy is until when the pods of each other request are expected that a queue admits.
	comesBy map[types.UID]time.Time
	// until is when the first booking becomes too old to count on; zero for none.
	until time.Time
}

// NewMemo returns an empty Memo.
func NewMemo() *Memo {
	return &Memo{inadmissible: map[string]Verdict{}, forecasts: map[*Upcoming]forecast{}, told: map[toldApart]*nodeset.Set{}}
}

// withKeys returns the nodes, distinguished by more labels.
func (m *Memo) withKeys(nodes *nodeset.Set, keys []string) *nodeset.Set {
	if m == nil {
		return nodes.WithKeys(keys)
	}
	k := toldApart{nodes, nodes.Changes(), strings.Join(keys, "\n")}
	if m.told[k] == nil {
		m.told[k] = nodes.WithKeys(keys)
	}
	return m.told[k]
}

func (m *Memo) forecastOf(u *Upcoming) (f forecast, known bool) {
	if m != nil {
		f, known = m.forecasts[u]
	}
	return f, known
}

func (m *Memo) keep(u *Upcoming, f forecast) {
	if m != nil {
		m.forecasts[u] = f
	}
}
