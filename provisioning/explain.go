package provisioning

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// explain says what stands between the gang and its room. over is the cheapest
// option where only the price is too high; nil otherwise.
func (q *query) explain(over *trial) []Reason {
	if over != nil {
		return []Reason{{Code: CodePrice, Message: fmt.Sprintf(
			"the cheapest way costs %s USD per hour and the policy allows %s: raise spec.maxPricePerHour of the CapacityPolicy or ask for less",
			USD(over.cost), USD(q.policy.MaxMicroUSDPerHour))}}
	}
	var out []Reason
	if q.policy.Class == AtomicScaleUp {
		for i := range q.snapshot.Groups {
			out = append(out, q.explainGroup(&q.snapshot.Groups[i])...)
		}
		if len(q.snapshot.Groups) == 0 {
			out = append(out, Reason{Code: CodeMaxNodes, Message: "there is no NodeGroup to launch machines in: create one"})
		}
	}
	out = append(out, q.explainNodes()...)
	if wider := q.withSplit(v1alpha1.AnyZone); q.policy.Split != v1alpha1.AnyZone && wider.possible() {
		out = append(out, Reason{Code: CodeSplit, Message: q.splitMessage()})
	}
	if len(out) == 0 {
		out = append(out, Reason{Code: CodeNoRoom, Message: fmt.Sprintf(
			"there is room for each of the %d podSets alone and not for all together; it changes when pods end, nodes join or a group may grow further", len(q.reqs))})
	}
	slices.SortStableFunc(out, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(usefulness(a.Code), usefulness(b.Code)), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// usefulness orders reasons for people: what passes by itself first, what never
// had a chance last.
func usefulness(c ReasonCode) int {
	return slices.Index([]ReasonCode{
		CodeBackoff, CodePrice, CodeSplit, CodeMaxNodes, CodeNoRoom,
		CodeTooSmall, CodeMarket, CodeConstraint, CodeUnsupported,
	}, c)
}

// withSplit is the same question under another split rule.
func (q *query) withSplit(s v1alpha1.Split) *query {
	out := *q
	out.policy.Split = s
	return &out
}

func (q *query) splitMessage() string {
	if q.policy.Split == v1alpha1.SingleGroup {
		return "no single group has room for all pods of a podSet; several have: a CapacityPolicy with split SingleZone or AnyZone would allow it"
	}
	return "no single zone has room for the whole gang; several have: a CapacityPolicy with split AnyZone would allow it"
}

// explainGroup gives for each podSet the first thing that keeps it off the group,
// if any. A cause that all podSets share is given once.
func (q *query) explainGroup(g *nodegroups.Group) []Reason {
	if _, ok := q.market(g); !ok {
		return []Reason{{Code: CodeMarket, Group: g.Name, Message: fmt.Sprintf("the policy does not allow %s machines", g.CapacityType)}}
	}
	var out []Reason
	need := 0
	usable := nodegroups.Resources(nil)
	for i := range q.reqs {
		r := &q.reqs[i]
		if why := r.mismatch("", g.Labels, g.Taints); why != "" {
			out = append(out, Reason{Code: CodeConstraint, Group: g.Name, Message: why})
			continue
		}
		if usable == nil {
			usable = shape(g, q.snapshot.DaemonSets)
		}
		if name, by, short := usable.Short(r.requests); short {
			out = append(out, Reason{Code: CodeTooSmall, Group: g.Name, Message: fmt.Sprintf(
				"one pod of podSet %s needs %s %s, a machine has %s for pods (%s short)",
				r.name, nodegroups.Quantity(name, r.requests[name]), name,
				nodegroups.Quantity(name, max(0, usable[name])), nodegroups.Quantity(name, by))})
			continue
		}
		per := usable.Times(r.requests, r.count)
		need += (r.count + per - 1) / per
	}
	switch room := max(0, g.Max-g.Machines); {
	case need == 0:
	case q.inBackoff(g):
		out = append(out, Reason{Code: CodeBackoff, Group: g.Name, Message: fmt.Sprintf(
			"%s; tried again at %s", cmp.Or(g.LastFailure, "the last launch failed"),
			g.BackoffUntil.UTC().Format(time.RFC3339))})
	case need > room:
		out = append(out, Reason{Code: CodeMaxNodes, Group: g.Name, Message: fmt.Sprintf(
			"%s needed, it %smay have %d (spec.maxNodes): %d short",
			machines(need), has(g.Machines), g.Max, need-room)})
	}
	return out
}

func has(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("has %d and ", n)
}

// explainNodes says how many pods the existing nodes have room for.
func (q *query) explainNodes() []Reason {
	look := *q
	look.policy.Class = CheckCapacity
	var out []Reason
	for i := range q.reqs {
		fit := 0
		for _, zone := range q.zones() {
			t := newTrial(&look, zone, byMarket)
			fit = max(fit, q.reqs[i].count-t.fillNodes(i, q.reqs[i].count, anyGroup))
		}
		// To somebody who may launch, nodes without any room are no news.
		if fit < q.reqs[i].count && (fit > 0 || q.policy.Class == CheckCapacity) {
			out = append(out, Reason{Code: CodeNoRoom, Message: fmt.Sprintf(
				"existing nodes have room for %d of the %d pods of podSet %s, %d short; it changes when pods end or nodes join",
				fit, q.reqs[i].count, q.reqs[i].name, q.reqs[i].count-fit)})
		}
	}
	return out
}

// USD renders millionths of a USD with as many digits as it takes, two at least.
func USD(micro int64) string {
	s := fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
	for len(s) > 0 && s[len(s)-1] == '0' && s[len(s)-3] != '.' {
		s = s[:len(s)-1]
	}
	return s
}
