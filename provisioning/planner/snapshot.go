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

// Snapshot is all that a plan sees. It is read-only: a plan works on copies.
type Snapshot struct {
	Now time.Time
	// Answering is since when the control plane answers; zero where it was never silent. It is Now while it is silent.
	Answering time.Time
	Nodes     *nodeset.Set
	// Groups in the order of their names.
	Groups []Group
	// DaemonSets whose pods will take room on new nodes.
	DaemonSets []state.DaemonSet
	// Objects looks up what pods refer to, for gangs that NewPodSet has not read.
	Objects fit.Objects
	// Alone: the gang that is planned has waited in vain for the room that others were to leave, and shares machines only where it cannot
	// launch its own. So sharing costs it no more than one such wait.
	Alone bool
	// Upcoming is the room that there will be without another launch; nil where plans must not
	// count on it.
	Upcoming *Upcoming
	// Memo of plans on this snapshot; nil where none is kept.
	Memo *Memo
	// Budgets of all CapacityPolicies, by policy and name, and what requests pay for
	// their machines.
	Budgets []spend.Budget
	Charges []spend.Charge
}

// NewSnapshot is the snapshot of these nodes, groups in the order of their names,
// and DaemonSets. It is for one goroutine at a time.
func NewSnapshot(now time.Time, nodes *nodeset.Set, groups []nodegroups.Group, daemonSets []state.DaemonSet) *Snapshot {
	s := &Snapshot{Now: now, Nodes: nodes, DaemonSets: daemonSets, Memo: NewMemo()}
	for _, g := range groups {
		s.Groups = append(s.Groups, NewGroup(g, daemonSets))
	}
	return s
}

// Counting is from when on a bound counts that began at that time: not before the control plane answers, since it could not say what has
// become of pods, nodes and machines.
func (s *Snapshot) Counting(from time.Time) time.Time { return when.Latest(from, s.Answering) }

// FindGroup is the group of that name; nil if there is none.
func (s *Snapshot) FindGroup(name string) *Group {
	i, ok := sort.Find(len(s.Groups), func(i int) int { return strings.Compare(name, s.Groups[i].Name) })
	if !ok {
		return nil
	}
	return &s.Groups[i]
}

// BackoffEnds is when the first backoff ends that a group is in, for that gang; zero where none is. Any may
// let a gang begin that waits, also as the rest of what other groups and existing nodes have
// room for, or as the cheaper way.
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

// vainAgain is how soon a launch is planned again that is likely to be in vain: what such launches may cost grows with what is spent.
const vainAgain = 10 * time.Minute

// Group is a group with what pods of a gang can use of one of its new machines.
type Group struct {
	nodegroups.Group
	// Usable is what nodes were seen to offer, less what DaemonSets will take;
	// UsableAtBest the same of what the template promises, and of other devices that nodes offer.
	Usable, UsableAtBest nodegroups.Resources
	// Published contains the devices that drivers will publish for a machine, PublishedAtBest those that the template promises; nil
	// for none.
	Published, PublishedAtBest fit.Devices
}

// NewGroup is the group where these DaemonSets run.
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

// Memo remembers what plans have come to, for one goroutine that makes many of them. A nil
// Memo remembers nothing.
//
// It has the gangs that could not be placed, by equivalence class, so that those that ask
// for the same need not be planned again. That holds while requests are decided one after
// another: what a decision leaves to others, such as a share of upcoming nodes, has them
// decided again once it is on record.
type Memo struct {
	inadmissible map[string]Verdict
	forecasts    map[*Upcoming]forecast
	told         map[toldApart]*nodeset.Set
}

// toldApart are nodes that are told apart by more labels: few gangs select on such, and each that does would tell them again.
type toldApart struct {
	nodes   *nodeset.Set
	changes int
	keys    string
}

// UpcomingAttempt is an attempt in flight, or one that is about to begin.
type UpcomingAttempt struct {
	Gang     state.Gang
	Policy   state.Policy
	Launches []GroupCount
	// Shares: the gang counts on room that others leave. It is kept for it from when it is there.
	Shares bool
	// Held: the gang's pods are created as soon as its machines are there. When those of
	// others come is not known, so no other gang may count on what they leave.
	Held bool
}

// Upcoming is the room that there will be without another launch: once the machines have
// joined that are being launched, and the pods have come that nodes are booked for. Gangs
// that are smaller than a machine share machines that way from the start.
//
// It is a list of attempts: those that have booked all that they need already, then all
// others, each in the order in which they began. Each takes its part of what those before
// it leave, so no two count on the same room. What is
// not asked for is not worked out, and a Memo keeps what has been.
type Upcoming struct {
	// before is the list without its last attempt; nil where there is none.
	before  *Upcoming
	attempt UpcomingAttempt
	// shares reports whether any attempt of the list does.
	shares bool
	*root
}

// forecast is what an Upcoming comes to.
type forecast struct {
	// nodes with the room that is left.
	nodes *nodeset.Set
	// Fits reports whether the gang of the last attempt has room once all this is there; placement is where.
	Fits      bool
	placement []Placement
	// kept is what attempts that share machines will take of nodes that are there, by node. They
	// have not booked it: others could book nothing there until the machines of such an attempt have
	// joined, too, and its pods have come.
	kept map[string]nodegroups.Resources
}

// root is what the attempts of a list have in common.
type root struct {
	// now has the nodes and groups as they are.
	now *Snapshot
	// flying are the requests of the attempts that the list was made with. They take what
	// they have booked when it is their turn.
	flying map[types.UID]bool
	// begun are the requests whose first pods have come, of those whose pods are about to.
	begun map[types.UID]bool
	// until is when the first of the bookings that are counted on is too old for that;
	// zero where none is.
	until time.Time
}

// NewMemo knows nothing yet.
func NewMemo() *Memo {
	return &Memo{inadmissible: map[string]Verdict{}, forecasts: map[*Upcoming]forecast{}, told: map[toldApart]*nodeset.Set{}}
}

// withKeys are the nodes told apart by more labels.
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
