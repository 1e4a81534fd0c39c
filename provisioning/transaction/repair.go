package transaction

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// A gang whose pods a topology places, and that loses machines while it runs, is not stopped if there is room for the lost pods: in
// the domains where they were if it is bound to these, such as a rack, else anywhere. Its booking is reopened for them alone:
//
//	consumed ── a few machines lost, and there is room ─▶ reopened ── booked, launched, opened ─▶ consumed
//	                                                         └─ no room any more, or no time ─▶ CapacityRevoked
//
// While it is reopened the request is one for the lost pods: every step is that of a request that is
// Provisioned and short. The bookings of the nodes that run on are those of a gang that runs, as
// before: only those of this repair, by its number, are promises. No pod that runs is touched.

// mostLostNodes is the maximum number of nodes that a repair replaces. It is the number of nodes that the status of a Workload names.
const mostLostNodes = 8

// mostPodSets is the maximum number of podSets in a plan.
const mostPodSets = 32

// RepairDetail is the key of the record in status.provisioningClassDetails.
const RepairDetail = "muster.dev/repair"

// RepairRecord records the last repair of a running gang. Like the record of an attempt, it is written before anything is done, and stays.
type RepairRecord struct {
	// Number counts the repairs of a request from 1. The bookings of a repair have its number.
	Number int `json:"number"`
	// After is the number of the last attempt before it.
	After int `json:"after,omitempty"`
	// Started is when it was decided.
	Started time.Time `json:"started"`
	// Lost pods, by node.
	Lost []LostPods `json:"lost"`
}

// RepairOf reads the record. If it was edited and cannot be read, it counts as none.
func RepairOf(r *provreq.ProvisioningRequest) (out RepairRecord) {
	if json.Unmarshal([]byte(r.Status.ProvisioningClassDetails[RepairDetail]), &out) != nil {
		return RepairRecord{}
	}
	return out
}

// Encode renders the record.
func (p *RepairRecord) Encode() string {
	out, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a repair cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// nodes is the number of nodes that it replaces.
func (p *RepairRecord) nodes() int {
	names := map[string]bool{}
	for _, l := range p.Lost {
		names[l.Node] = true
	}
	return len(names)
}

// Repairing returns the request for the pods that the repair replaces; ok is false if they cannot be requested.
func (r *Request) Repairing(p RepairRecord, objects fit.Objects) (out *Request, ok bool) {
	again := *r
	again.Repair, again.Whole, again.Pods, again.EquivalenceClass = &p, r.whole(), 0, ""
	again.Gang.PodSets, again.Gang.Launch = nil, ""
	if r.Attempt.Number > p.After {
		again.Gang.Launch = r.Gang.Launch
	}
	parts, ok := p.parts(again.Whole)
	for _, l := range parts {
		again.Pods += l.count
		remake := state.PodSet.Again
		if l.slices {
			remake = state.PodSet.Slices
		}
		again.Gang.PodSets = append(again.Gang.PodSets, remake(again.Whole[l.podSet], r.Namespace, objects, l.count, l.labels))
	}
	return &again, ok && len(parts) > 0 && len(parts) <= mostPodSets
}

// lostPart are lost pods of a podSet that are bound to nodes with the labels. They are whole slices, or a part of some.
type lostPart struct {
	podSet int
	labels map[string]string
	slices bool
	count  int
}

// parts returns the lost pods; ok is false if the gang has no such podSet.
func (p *RepairRecord) parts(whole []state.PodSet) (parts []lostPart, ok bool) {
	for _, l := range p.Lost {
		at := slices.IndexFunc(whole, func(ps state.PodSet) bool { return ps.Name == l.PodSet })
		if at < 0 {
			return parts, false
		}
		labels := maps.Clone(l.Labels)
		for _, layer := range slices.Backward(sliceLayers(&whole[at])) {
			if l.Elsewhere == "" {
				break
			}
			if delete(labels, layer.Level); layer.Level == l.Elsewhere {
				break
			}
		}
		part := lostPart{at, labels, l.Elsewhere != "", l.Count}
		if i := slices.IndexFunc(parts, func(o lostPart) bool {
			return o.podSet == at && maps.Equal(o.labels, labels) && o.slices == part.slices
		}); i >= 0 {
			parts[i].count += l.Count
		} else {
			parts = append(parts, part)
		}
	}
	return parts, true
}

// whole returns the podSets of the request, even while a part of them is repaired.
func (r *Request) whole() []state.PodSet {
	if r.Repair != nil {
		return r.Whole
	}
	return r.Gang.PodSets
}

// bookingSince is since when the booking waits for its pods.
func (r *Request) bookingSince() time.Time {
	if r.Repair != nil {
		return r.Repair.Started
	}
	return r.Provisioned.LastTransitionTime.Time
}

// reopen reopens the booking of a running gang for the pods of these nodes, if there is room for them.
func reopen(r *Request, v View, lost []LostNode) (s Step, ok bool) {
	p, ok := repairFor(r, v, lost)
	if !ok {
		return s, false
	}
	again, ok := r.Repairing(p, v.Objects)
	if !ok {
		return s, false
	}
	switch plan, _ := v.counting(nil).mend(again, again.Gang); plan.Outcome {
	case planner.Fits, planner.Launch:
	default:
		return s, false
	}
	return Step{Do: Reopen, Attempt: r.Attempt, Lost: lost, Repair: &p, Condition: condition(provreq.BookingExpired, metav1.ConditionFalse,
		ReasonMachineLost, LossMessage(lost)+": others are booked for them, and the rest of the gang runs on")}, true
}

// repairFor returns the repair after the loss of these nodes; ok is false if the gang has to be stopped.
func repairFor(r *Request, v View, lost []LostNode) (p RepairRecord, ok bool) {
	g := r.Gang
	g.PodSets = r.whole()
	if !r.Consumed && r.Repair == nil || !isPlaced(r) || len(r.Missing) > 0 {
		return p, false
	}
	if r.Repair != nil {
		p = *r.Repair
		p.Lost = slices.Clone(p.Lost)
	} else {
		p = RepairRecord{Number: r.Repairs + 1, After: r.Attempt.Number, Started: v.Now}
	}
	keys := slices.Concat((&Request{Gang: g, Policy: r.Policy}).common(), g.Levels(&r.Policy))
	pods := func(n *state.Node, ran []nodegroups.Resources) (out []LostPods) {
		labels := map[string]string{}
		for _, key := range keys {
			if value := n.Labels[key]; value != "" && key != corev1.LabelHostname {
				labels[key] = value
			}
		}
		for i, count := range podsOf(&g, v.Objects, n, ran) {
			if count > 0 {
				out = append(out, LostPods{Node: n.Name, PodSet: g.PodSets[i].Name, Count: count, Labels: labels})
			}
		}
		return out
	}
	for _, n := range lost {
		if slices.ContainsFunc(p.Lost, func(l LostPods) bool { return l.Node == n.Name }) {
			continue // it was reported before: the response to that write was lost
		}
		p.Lost = append(p.Lost, pods(&state.Node{Name: n.Name, Labels: n.Labels, Taints: n.Taints}, n.Ran)...)
	}
	var running []LostPods
	survives := false
	for n, b := range runningOn(r, v) {
		if survives = true; b.Repair != p.Number { // pods that this repair has replaced already are among the lost ones
			running = append(running, pods(n, b.Ran)...)
		}
	}
	p.Lost = divided(&g, p.Lost, running)
	return p, survives && len(p.Lost) > 0 && p.nodes() <= mostLostNodes
}

// podsOf returns how many pods of each podSet requested these amounts on the node.
func podsOf(g *state.Gang, objects fit.Objects, n *state.Node, took []nodegroups.Resources) []int {
	left, counts := make([]int, len(g.PodSets)), make([]int, len(g.PodSets))
	for i := range left {
		left[i] = g.PodSets[i].Count
	}
	for _, requests := range took {
		if i := podSetOf(g, objects, left, n, requests); i >= 0 {
			left[i]--
			counts[i]++
		}
	}
	return counts
}

// runningOn returns the nodes on which pods of the gang still run, and their bookings.
func runningOn(r *Request, v View) iter.Seq2[*state.Node, *state.Booking] {
	return func(yield func(*state.Node, *state.Booking) bool) {
		for n := range v.Nodes.BookedBy(r.UID) {
			for i := range n.Labelled {
				if b := &n.Labelled[i]; b.UID == r.UID && b.Running > 0 && n.Ready && !yield(n, b) {
					return
				}
			}
		}
	}
}

// isPlaced reports whether a topology assigns a node to each pod of the gang, so that a recreated pod can be sent to another node. Other
// gangs run as a whole or not at all.
func isPlaced(r *Request) bool {
	return r.Policy.Topology != "" || slices.ContainsFunc(r.whole(), func(ps state.PodSet) bool { return fit.IsPlaced(ps.Template) })
}

// common returns the node labels that all nodes of the gang share.
func (r *Request) common() []string { return newTogether(r).all() }

// missed reports whether a machine was launched in the hope for a domain since the booking was made, and joined another one.
func (r *Request) missed() bool {
	f := r.Attempt.Failure
	return f != nil && f.Class == v1alpha1.Scattered && !r.Attempt.Started.Before(r.bookingSince())
}

// mend plans for the remaining pods of a gang that has started, and for the pods that it has lost while it ran. If only the cloud chooses
// the domain of a machine, it is launched in the hope for the right one, and launched again if it joins another. That is one attempt for
// each domain, and no more. Pods of several domains are replaced one domain after another. The launched machines must join the returned
// domain; it has no level if any will do.
func (v View) mend(r *Request, rest state.Gang) (plan planner.Verdict, in cloudprovider.Domain) {
	plan = v.plan(r, rest)
	if plan.Outcome == planner.Fits || plan.Outcome == planner.Launch || r.missed() {
		return plan, in
	}
	levels := slices.DeleteFunc(rest.Levels(&r.Policy), func(level string) bool { return level == corev1.LabelHostname })
	if len(levels) == 0 {
		return plan, in
	}
	part := *r
	part.EquivalenceClass = "" // what is true of a part is not true of gangs that are equivalent to the whole
	r, level := &part, levels[len(levels)-1]
	var there []planner.Placement // the pods of other domains have room
	var launch *planner.Verdict
	for domain, part := range byDomain(rest, level) {
		own := v.plan(r, part)
		hoped := own.Outcome != planner.Fits && own.Outcome != planner.Launch && domain != ""
		if hoped {
			own = v.hope(r, part, levels)
		}
		switch {
		case own.Outcome == planner.Fits:
			there = append(there, own.Placement...)
		case own.Outcome != planner.Launch:
			return plan, cloudprovider.Domain{}
		case launch == nil && hoped:
			launch, in = &own, cloudprovider.Domain{Level: level, Value: domain}
		case launch == nil:
			launch = &own
		}
	}
	if launch == nil {
		return plan, in
	}
	launch.Placement = append(launch.Placement, there...)
	return *launch, in
}

// byDomain returns the pods by the domain of the level that they are bound to, in order.
func byDomain(g state.Gang, level string) func(yield func(string, state.Gang) bool) {
	parts := map[string]state.Gang{}
	for _, ps := range g.PodSets {
		domain := ""
		if ps.Pod != nil {
			domain = ps.Pod.Selects()[level]
		}
		part, known := parts[domain]
		if !known {
			part = g
			part.PodSets = nil
		}
		part.PodSets = append(part.PodSets, ps)
		parts[domain] = part
	}
	return func(yield func(string, state.Gang) bool) {
		for _, domain := range slices.Sorted(maps.Keys(parts)) {
			if !yield(domain, parts[domain]) {
				return
			}
		}
	}
}

// hope plans new machines for pods that are bound to a domain as if any would do, in groups whose cloud chooses it.
func (v View) hope(r *Request, part state.Gang, levels []string) planner.Verdict {
	s := *v.Snapshot
	s.Nodes = nodeset.New()
	s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g planner.Group) bool { return len(g.LevelsOf(levels)) < len(levels) })
	v.Snapshot = &s
	podSets := part.PodSets
	part.PodSets = nil
	for _, ps := range podSets {
		whole := r.whole()
		of := whole[slices.IndexFunc(whole, func(o state.PodSet) bool { return o.Name == ps.Name })]
		own := map[string]string{}
		if p, _ := of.Read(r.Namespace, v.Objects); p != nil {
			own = p.Selects()
		}
		labels := ps.Pod.Selects()
		maps.DeleteFunc(labels, func(key, _ string) bool { return own[key] != "" || slices.Contains(levels, key) })
		part.PodSets = append(part.PodSets, of.Again(r.Namespace, v.Objects, ps.Count, labels))
	}
	return v.plan(r, part)
}

// together returns the domain that machines of a call must be in.
func (r *Request) together(c Call, level string) Call {
	if level != "" && c.Together.Level == "" && isWhole(r, level) {
		c.Together.Level = level
	}
	return c
}

// giveUp stops a gang whose lost pods have no room.
func giveUp(r *Request, why string) Step {
	var lost []LostNode
	for _, l := range r.Repair.Lost {
		if n := len(lost); n > 0 && lost[n-1].Name == l.Node {
			lost[n-1].Pods += l.Count
		} else {
			lost = append(lost, LostNode{Name: l.Node, Pods: l.Count})
		}
	}
	return Step{Do: ReportLoss, Attempt: r.Attempt, Condition: condition(provreq.CapacityRevoked, metav1.ConditionTrue, ReasonMachineLost,
		fmt.Sprintf("%s, and they have no others: %s", LossMessage(lost), why))}
}

// outOfTime ends a repair. If there is room, the pods were not recreated in time, and still have room if they arrive later.
func outOfTime(r *Request, v View, rest state.Gang, came int, after time.Duration) Step {
	own, _ := ownNodes(r, v)
	if r.Attempt.InFlight() || len(r.Missing) == 0 && !suffice(v, own, rest) {
		return giveUp(r, fmt.Sprintf("machines were not there within %s", after))
	}
	return Step{Do: Consume, Attempt: r.Attempt, Unbook: bookedNodes(r, v), KeepLabels: true, Condition: over(ReasonBookingConsumed,
		fmt.Sprintf("%d of %s were made again within %s", came, text.Pods(r.Pods), after))}
}

// isUnready reports whether the plan lacks an input.
func isUnready(plan *planner.Verdict) bool {
	return len(plan.Reasons) > 0 && plan.Reasons[0].Code == planner.CodeUnready
}

// lostInUse returns the lost nodes on which the gang ran before the current repair, if there is one.
func lostInUse(r *Request, lost []LostNode) []LostNode {
	return slices.DeleteFunc(slices.Clone(lost), func(l LostNode) bool {
		return l.Pods == 0 || r.Repair != nil && l.Repair == r.Repair.Number
	})
}
