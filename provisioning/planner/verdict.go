package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// Outcome is what a plan comes to.
type Outcome int

const (
	// Fits: the gang fits on existing nodes.
	Fits Outcome = iota
	// Launch: the gang fits once machines have joined that are to be launched, or are being
	// launched for others.
	Launch
	// Wait: not now; Until or an event will change it.
	Wait
	// Never: no state of the groups helps; only a change of the gang, the
	// policy or a group does.
	Never
)

func (o Outcome) String() string {
	return [...]string{"Fits", "Launch", "Wait", "Never"}[o]
}

// Verdict is a plan with its reasons.
type Verdict struct {
	Outcome Outcome
	// Placement says which existing nodes take how many pods, in the order in
	// which they were chosen. For Fits and Launch.
	Placement []Placement
	// Launches says which groups grow by how many machines, by group name. For
	// Launch.
	Launches []GroupCount
	// Shares says of how many machines of which groups, by name, the gang will use what those leave
	// that are getting them now, or have them and wait for more; Group is empty for machines of no group. For Launch.
	Shares []GroupCount
	// MicroUSDPerHour is the price of Launches, in millionths of a USD per hour, as far as it
	// is known. Unpriced are their groups whose price is not.
	MicroUSDPerHour int64
	Unpriced        []string
	// Runs is how long the gang runs at most, where budgets ask for it and it is known;
	// zero otherwise.
	Runs time.Duration
	// Chance is that of all Launches together, in thousandths.
	Chance int
	// Reasons say what is short, by how much and what would change it, the most
	// helpful first. For Wait and Never.
	Reasons []Reason
	// Until is when it is worth to plan again; zero if only an event helps.
	Until time.Time
	// Gang and Policy are what the plan is for. For Fits and Launch.
	Gang   *state.Gang
	Policy *state.Policy
}

// Placement is a number of pods of each podSet on an existing node.
type Placement struct {
	Node string
	// Pods by the index of the podSet.
	Pods []int
	// Requests is the room that the pods take.
	Requests nodegroups.Resources
	// Over are the keys of bookings on the node that are over and of which no pod is
	// left there: no pod of those gangs may come back.
	Over []string
	// Whole: no other gang runs on the node or has booked it, so that
	// the booking takes it whole and cordons it.
	Whole bool
}

// GroupCount is a number of machines of a group.
type GroupCount struct {
	Group string `json:"group"`
	Count int    `json:"count"`
}

// ReasonCode tells reasons apart.
type ReasonCode string

// Codes of the reasons why a gang is not placed.
const (
	// CodeUnsupported: a feature of the pods that Muster cannot judge.
	CodeUnsupported ReasonCode = "Unsupported"
	// CodeUnready: an object that the pods refer to is missing or not ready.
	CodeUnready ReasonCode = "Unready"
	// CodeTaint: a taint rules the group out, and nothing else of its nodes.
	CodeTaint ReasonCode = "Taint"
	// CodeConstraint: a selector or an affinity rules the group out.
	CodeConstraint ReasonCode = "Constraint"
	// CodeUndeclared: no group declares a label or a resource that nodes may get later.
	CodeUndeclared ReasonCode = "Undeclared"
	// CodeTooSmall: one pod does not fit on a machine of the group.
	CodeTooSmall ReasonCode = "TooSmall"
	// CodeMaxNodes: the group may not grow so far.
	CodeMaxNodes ReasonCode = "MaxNodes"
	// CodePerLaunch: the gang needs more machines than one launch of the group makes.
	CodePerLaunch ReasonCode = "PerLaunch"
	// CodeForeign: not Muster but a cluster-autoscaler launches machines in the group.
	CodeForeign ReasonCode = "Foreign"
	// CodeEnds: the cloud ends the group's machines before the gang's run could end.
	CodeEnds ReasonCode = "Ends"
	// CodeBackoff: the group failed lately and is left alone for a while.
	CodeBackoff ReasonCode = "Backoff"
	// CodePrice: the machines cost more than the policy allows.
	CodePrice ReasonCode = "Price"
	// CodeLimit: the namespace would have more than a CapacityPolicy lets it have.
	CodeLimit ReasonCode = "Limit"
	// CodeBudget: the namespace or queue would spend more than a CapacityPolicy lets it spend.
	CodeBudget ReasonCode = "Budget"
	// CodeCapacityType: the policy does not allow the group's capacity type.
	CodeCapacityType ReasonCode = "CapacityType"
	// CodeNoRoom: the existing nodes have no room for the whole gang.
	CodeNoRoom ReasonCode = "NoRoom"
	// CodeApart: what pods ask of one another, or of pods that run already.
	CodeApart ReasonCode = "Apart"
	// CodeSplit: no zone or group alone has all of it.
	CodeSplit ReasonCode = "Split"
)

// Reason is one cause, about one group or about the existing nodes.
type Reason struct {
	Code ReasonCode
	// Group is empty where the reason is about existing nodes or the gang.
	Group string
	// Message is a sentence part with amounts and units, and what would help.
	Message string
	// Until is when the cause passes by itself; zero if it does not.
	Until time.Time
}

func (r Reason) String() string {
	if r.Group == "" {
		return r.Message
	}
	return fmt.Sprintf("group %s: %s", r.Group, r.Message)
}

// shown is how many reasons a message gives of those that say nothing but that a
// group is of another kind.
const shown = 3

// Message joins the reasons to one sentence for people. A cluster may have many
// groups that never suited the gang: where there is more to say they are only
// counted, and where there is not, the first few are given.
func (v Verdict) Message() string {
	var parts, misfits []string
	groups := map[string]bool{}
	for _, r := range v.Reasons {
		switch {
		case !r.misfit():
			parts = append(parts, r.String())
		case len(parts) == 0 && len(misfits) < shown: // better reasons come first
			misfits = append(misfits, r.String())
		default:
			groups[r.Group] = true
		}
	}
	parts = append(parts, misfits...)
	if len(groups) > 0 {
		parts = append(parts, text.Plural(len(groups), "other group")+" cannot run such pods (labels, taints, size or capacity type)")
	}
	return strings.Join(parts, "; ")
}

// misfit reports whether the group is of another kind than the gang needs.
func (r Reason) misfit() bool {
	return r.Code == CodeTooSmall || r.Code == CodeCapacityType || r.Code == CodeTaint || r.Code == CodeConstraint
}

// GroupCounts turns counts by group into a list in the order of the names.
func GroupCounts(m map[string]int) []GroupCount {
	var out []GroupCount
	for _, g := range slices.Sorted(maps.Keys(m)) {
		if m[g] > 0 {
			out = append(out, GroupCount{Group: g, Count: m[g]})
		}
	}
	return out
}
