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

// Outcome is the result of a plan.
type Outcome int

const (
	// Fits: the gang fits on existing nodes.
	Fits Outcome = iota
	// Launch: the gang fits when machines have joined that are to be launched, or are being launched for others.
	Launch
	// Wait: not now; Until or an event may change it.
	Wait
	// Never: only a change of the gang, the policy or a group may change it.
	Never
)

func (o Outcome) String() string {
	return [...]string{"Fits", "Launch", "Wait", "Never"}[o]
}

// Verdict is a plan with its reasons.
type Verdict struct {
	Outcome Outcome
	// Placement has the number of pods on existing nodes, in the order in which they were chosen. For Fits and Launch.
	Placement []Placement
	// Launches has the number of machines to launch, by group name. For Launch.
	Launches []GroupCount
	// Shares has the number of machines of other requests that the gang will use the remaining room of, by group name. Their owners are
	// getting them, or have them and wait for more. Group is empty for machines without a group. For Launch.
	Shares []GroupCount
	// MicroUSDPerHour is the price of Launches in millionths of a USD per hour, without the groups in Unpriced, whose price is unknown.
	MicroUSDPerHour int64
	Unpriced        []string
	// Runs is how long the gang runs at most, if budgets need it and it is known; zero otherwise.
	Runs time.Duration
	// Chance is the chance that all Launches succeed, in thousandths.
	Chance int
	// Reasons say what is short, by how much and what would change it, the most
	// helpful first. For Wait and Never.
	Reasons []Reason
	// Until is the time of the next plan; zero if only an event helps.
	Until time.Time
	// Gang and Policy are the subject of the plan. For Fits and Launch.
	Gang   *state.Gang
	Policy *state.Policy
}

// Placement is a number of pods of each podSet on an existing node.
type Placement struct {
	Node string
	// Pods by the index of the podSet.
	Pods []int
	// Requests is the sum of the pods' requests.
	Requests nodegroups.Resources
	// Over are the keys of bookings on the node that are over and without pods: no pod of those gangs may return.
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

// ReasonCode classifies reasons.
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
	// CodeBackoff: a launch of the group failed recently, and it is not used for a while.
	CodeBackoff ReasonCode = "Backoff"
	// CodePrice: the machines cost more than the policy allows.
	CodePrice ReasonCode = "Price"
	// CodeLimit: the namespace would exceed a limit of a CapacityPolicy.
	CodeLimit ReasonCode = "Limit"
	// CodeBudget: the namespace or queue would exceed a budget of a CapacityPolicy.
	CodeBudget ReasonCode = "Budget"
	// CodeCapacityType: the policy does not allow the group's capacity type.
	CodeCapacityType ReasonCode = "CapacityType"
	// CodeNoRoom: the existing nodes have no room for the whole gang.
	CodeNoRoom ReasonCode = "NoRoom"
	// CodeApart: constraints between pods of the gang, or with running pods.
	CodeApart ReasonCode = "Apart"
	// CodeSplit: no zone or group alone has room for the whole gang.
	CodeSplit ReasonCode = "Split"
)

// Reason is one cause, about one group or about the existing nodes.
type Reason struct {
	Code ReasonCode
	// Group is empty if the reason is about existing nodes or the gang.
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

// shown is how many reasons are shown that only say that a group is of another kind.
const shown = 3

// Message joins the reasons to one sentence for users. A cluster may have many groups that never suited the gang. If there are other
// reasons, these groups are only counted; otherwise the first few are shown.
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

// GroupCounts converts counts by group to a list in the order of the names.
func GroupCounts(m map[string]int) []GroupCount {
	var out []GroupCount
	for _, g := range slices.Sorted(maps.Keys(m)) {
		if m[g] > 0 {
			out = append(out, GroupCount{Group: g, Count: m[g]})
		}
	}
	return out
}
