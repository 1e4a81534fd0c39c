package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// explain returns the reasons why the gang is not placed. over is the cheapest option if only its price is too high; nil otherwise.
func (q *query) explain(over *trial) []Reason {
	out, launches := q.explainBackoffs()
	if over != nil {
		return append(out, q.explainPrice(over))
	}
	if q.policy.Class == state.AtomicScaleUp {
		for i := range q.Groups {
			if g := &q.Groups[i]; launches[g.Name] == 0 {
				out = append(out, q.explainGroup(g)...)
			}
		}
		if len(q.Groups) == 0 {
			out = append(out, Reason{Code: CodeMaxNodes, Message: "there is no NodeGroup to launch machines in: create one"})
		}
	}
	for i := range q.Groups {
		g, until := &q.Groups[i], q.Now.Add(q.runs)
		if q.policy.Class == state.CheckCapacity && g.Machines > 0 && q.allowsGroup(g.Name) && q.ends(g.EndsAt, until) {
			out = append(out, explainEnd(g, until, ""))
		}
	}
	if q.starts > 0 {
		out = append(out, Reason{Code: CodeEnds, Message: fmt.Sprintf("nodes whose machine ends before %s are left out: the gang begins once "+
			"its new machines have joined, and may run until then", q.Now.Add(q.starts+q.runs).UTC().Format(time.RFC3339))})
	}
	out = append(out, q.explainApart()...)
	out = append(out, q.explainNodes()...)
	if wider := q.unbounded(); wider != nil && wider.possible() {
		out = append(out, Reason{Code: CodeSplit, Message: q.splitMessage()})
	}
	if len(out) == 0 {
		out = append(out, Reason{Code: CodeNoRoom, Message: fmt.Sprintf(
			"there is room for each of the %d podSets alone and not for all together; it changes when pods end, nodes join or a group may grow "+
				"further", len(q.pods))})
	}
	slices.SortStableFunc(out, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(usefulness(a.Code), usefulness(b.Code)), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// explainBackoffs names the groups whose backoffs alone delay the gang. launches are the machines of each group that it needs without
// them, beside existing nodes.
func (q *query) explainBackoffs() (out []Reason, launches map[string]int) {
	if q.ideal || q.policy.Class != state.AtomicScaleUp || q.BackoffEnds(q.gang).IsZero() {
		return nil, nil
	}
	later := *q
	later.patient = true
	best := later.search()
	if best == nil || best.overPrice() {
		return nil, nil
	}
	launches = map[string]int{}
	for k, n := range best.launched {
		if n > 0 {
			g := best.offers[k].Group
			launches[g.Name] = n
			out = append(out, q.explainBackoff(g, n)...)
		}
	}
	return out, launches
}

func (q *query) explainBackoff(g *Group, n int) []Reason {
	until, why := q.blocked(g, n)
	if until.IsZero() {
		return nil
	}
	return []Reason{{Code: CodeBackoff, Group: g.Name, Until: until, Message: why}}
}

// explainPrice says by how much the price of the cheapest option exceeds the limit.
func (q *query) explainPrice(over *trial) Reason {
	if unpriced := over.verdict().Unpriced; len(unpriced) > 0 {
		return Reason{Code: CodePrice, Message: fmt.Sprintf("at most %s USD per hour are allowed and the price of %s: "+
			"set spec.pricePerHour of the NodeGroup, or wait until the cloud tells it",
			text.USD(q.policy.MaxMicroUSDPerHour), SayUnpriced(unpriced))}
	}
	return Reason{Code: CodePrice, Message: fmt.Sprintf(
		"the cheapest option costs %s USD per hour and the CapacityPolicy allows %s: raise its spec.maxPricePerHour or request less",
		text.USD(over.cost), text.USD(q.policy.MaxMicroUSDPerHour))}
}

// usefulness orders reasons for users: first what passes by itself, last what never had a chance.
func usefulness(c ReasonCode) int {
	return slices.Index([]ReasonCode{
		CodeBackoff, CodePrice, CodeApart, CodeSplit, CodeMaxNodes, CodePerLaunch, CodeForeign, CodeEnds, CodeNoRoom,
		CodeUndeclared, CodeTaint, CodeTooSmall, CodeCapacityType, CodeConstraint, CodeUnready, CodeUnsupported,
	}, c)
}

// unbounded returns the query without domains; nil if it has none.
func (q *query) unbounded() *query {
	p := q.policy
	if p.Split == v1alpha1.AnyZone && p.Topology == "" && !slices.ContainsFunc(q.pods, (*fit.Pod).IsBound) {
		return nil
	}
	p.Split, p.Topology = v1alpha1.AnyZone, ""
	pods := make([]*fit.Pod, len(q.pods))
	for i := range pods {
		pods[i] = q.pods[i].Unbound()
	}
	return newQuery(q.Snapshot, q.gang, pods, p, q.ideal)
}

func (q *query) splitMessage() string {
	switch {
	case q.policy.Topology != "":
		return fmt.Sprintf("no single domain of %s has room for the whole gang; several have: a CapacityPolicy without that requiredTopology "+
			"would allow it", q.policy.Topology)
	case slices.ContainsFunc(q.pods, (*fit.Pod).IsBound):
		return "no domains have room for pods that the annotations kueue.x-k8s.io/podset-* of their templates keep together; without them " +
			"there would be room"
	case q.policy.Split == v1alpha1.SingleGroup:
		return "no single NodeGroup has room for all pods of a podSet, but several together have: a CapacityPolicy with split SingleZone or " +
			"AnyZone would allow it"
	default:
		return "no single zone has room for the whole gang, but several together have: a CapacityPolicy with split AnyZone would allow it"
	}
}

// takenByDaemons says how much of a resource of the group's machines DaemonSets request, and which requests most; empty if none does.
func (q *query) takenByDaemons(g *Group, name corev1.ResourceName) string {
	var most *state.DaemonSet
	var sum int64
	for i := range q.DaemonSets {
		d := &q.DaemonSets[i]
		if d.Requests[name] == 0 || !d.RunsOn("", g.Labels, g.Taints) {
			continue
		}
		sum = nodegroups.Plus(sum, d.Requests[name])
		if most == nil || d.Requests[name] > most.Requests[name] {
			most = d
		}
	}
	if most == nil {
		return ""
	}
	return fmt.Sprintf(" beside %s of DaemonSets, of which %s takes most", nodegroups.Quantity(name, sum), most.Name)
}

// explainGroup returns for each podSet the first reason that rules the group out, if any. A reason that all podSets share is returned
// once.
func (q *query) explainGroup(g *Group) []Reason {
	if _, ok := q.capacityTypeRank(g); !ok {
		return []Reason{{Code: CodeCapacityType, Group: g.Name, Message: fmt.Sprintf("the policy does not allow %s machines", g.CapacityType)}}
	}
	var out, small []Reason
	need := 0
	usable := q.usable(g)
	if why := q.lacksLevel(g, q.policy.Topology); why != "" {
		return []Reason{{Code: CodeConstraint, Group: g.Name, Message: fmt.Sprintf(why, "the CapacityPolicy's requiredTopology")}}
	}
	for i, p := range q.pods {
		lacks := func(level string) bool { return q.lacksLevel(g, level) != "" }
		if at := slices.IndexFunc(p.Levels(), lacks); at >= 0 {
			out = append(out, Reason{Code: CodeConstraint, Group: g.Name, Message: fmt.Sprintf(
				q.lacksLevel(g, p.Levels()[at]), "which an annotation of podSet "+p.Name+" requires")})
			continue
		}
		if why := p.Mismatch("", g.Labels, g.Taints); why != "" {
			if p.Mismatch("", g.Labels, g.Taints[:len(g.Taints)-len(g.KeptTaints)]) == "" {
				why += ", which its nodes have and its NodeGroup does not declare"
			}
			code := CodeConstraint
			if p.Mismatch("", g.Labels, nil) == "" {
				code = CodeTaint
			}
			out = append(out, Reason{Code: code, Group: g.Name, Message: why})
			continue
		}
		if q.repelled.from(g.Labels).has(i) {
			out = append(out, Reason{Code: CodeApart, Group: g.Name, Message: q.explainRepelled(i, g.Labels)})
			continue
		}
		if name, by, short := usable.Short(p.Requests); short {
			out = append(out, Reason{Code: CodeTooSmall, Group: g.Name, Message: fmt.Sprintf(
				"a pod of podSet %s requests %s %s, a machine has %s for pods (%s short)%s",
				p.Name, nodegroups.Quantity(name, p.Requests[name]), name,
				nodegroups.Quantity(name, max(0, usable[name])), nodegroups.Quantity(name, by), q.takenByDaemons(g, name))})
			continue
		}
		per := q.perMachine(q.spaceOf(g), i, p.Count)
		if per == 0 {
			out = append(out, Reason{Code: CodeTooSmall, Group: g.Name, Message: q.explainClaims(g, i)})
			continue
		}
		need += (p.Count + per - 1) / per
		for _, l := range p.Layers {
			small = append(small, q.explainDomain(g, l.Level, (min(l.Size, p.Count)+per-1)/per)...)
		}
	}
	if need == 0 {
		return out
	}
	if g.Foreign && need <= g.Max {
		return append(out, Reason{Code: CodeForeign, Group: g.Name, Message: fmt.Sprintf("%s needed, and a cluster-autoscaler scales it "+
			"(spec.scaledBy): this changes when it launches nodes for pending pods", text.Machines(need))})
	}
	until := q.launchedUntil(g)
	if q.ends(g.EndsAt, until) {
		return append(out, explainEnd(g, until, " if its machines take as long to join as they may (spec.joinTimeout)"))
	}
	if q.ends(q.launchedEnd(g), until) {
		return append(out, Reason{Code: CodeEnds, Group: g.Name, Message: fmt.Sprintf("its cloud ends machines after %s, and the gang may run "+
			"for %s if they take as long to join as they may (spec.joinTimeout)", g.Lifetime, g.JoinTimeout+q.runs)})
	}
	if small = append(small, q.explainDomain(g, q.policy.Topology, need)...); len(small) > 0 {
		return append(out, small...)
	}
	if need <= g.Max { // its machines may belong to the failed attempt, and are being terminated
		out = append(out, q.explainBackoff(g, need)...)
	}
	if g.PerLaunch > 0 && need > g.PerLaunch {
		return append(out, Reason{Code: CodePerLaunch, Group: g.Name, Message: fmt.Sprintf("%s needed, and one launch makes at most %d by its "+
			"launch method: %d short", text.Machines(need), g.PerLaunch, need-g.PerLaunch)})
	}
	if room := q.mayGrow(g); need > room {
		out = append(out, Reason{Code: CodeMaxNodes, Group: g.Name, Message: fmt.Sprintf(
			"%s needed, it %smay have %d (spec.maxNodes): %d short",
			text.Machines(need), has(g.Machines), g.Max, need-room)})
	}
	return out
}

// explainClaims explains why the claims of a podSet cannot be allocated on a machine of the group.
func (q *query) explainClaims(g *Group, i int) string {
	published := q.spaceOf(g).claimable
	if published == nil {
		return fmt.Sprintf("a pod of podSet %s claims devices, and spec.template.devices declares none for its machines, nor has a node of it "+
			"published any", q.pods[i].Name)
	}
	return fmt.Sprintf("the claims of a pod of podSet %s cannot be allocated on one of its machines: %s", q.pods[i].Name,
		published.Obstacle(q.pods[i].Claims))
}

// lacksLevel says that machines of the group are in no domain of the level, if that is so.
func (q *query) lacksLevel(g *Group, level string) string {
	_, told := g.Labels[level]
	if _, promised := g.promises(level); level == "" || told || promised {
		return ""
	}
	return "its machines lack the label " + level + ", %s: if all have the same value, it belongs in spec.template.labels, and if the cloud " +
		"or an agent sets it on nodes, in spec.topology"
}

// explainDomain says that a domain of the level has too little room for so many machines, if that is so.
func (q *query) explainDomain(g *Group, level string, need int) []Reason {
	most, _ := g.promises(level)
	if most == 0 || need <= most {
		return nil
	}
	return []Reason{{Code: CodeMaxNodes, Group: g.Name, Message: fmt.Sprintf(
		"%s needed, one domain of %s takes %d (spec.topology): %d short", text.Machines(need), level, most, need-most)}}
}

func explainEnd(g *Group, until time.Time, unless string) Reason {
	return Reason{Code: CodeEnds, Group: g.Name, Message: fmt.Sprintf("it ends at %s (spec.endsAt), and the gang may run until %s%s",
		g.EndsAt.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), unless)}
}

func has(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("has %d and ", n)
}

// explainNodes says for how many pods the existing nodes have room.
func (q *query) explainNodes() []Reason {
	var out []Reason
	beside := ""
	if q.Upcoming != nil && len(q.Upcoming.Forecast(q.Memo).kept) > 0 {
		beside = " beside what is kept for requests whose machines are on their way"
	}
	for i, p := range q.pods {
		fits, in := 0, ""
		for _, r := range q.regions {
			t := newTrial(q, r, byCapacityType)
			for _, d := range t.domainsOf(i) {
				if n := p.Count - t.clone().fill(i, p.Count, d, anyGroup); n > fits {
					fits, in = n, d.name
				}
			}
		}
		where := ""
		if levels := q.bound(i); len(levels) > 0 && fits > 0 {
			where = fmt.Sprintf(" within one domain of %s, most in %s", levels[len(levels)-1], in)
		}
		// If the gang may launch, nodes without any room are not mentioned.
		if fits < p.Count && (fits > 0 || q.policy.Class == state.CheckCapacity) {
			out = append(out, Reason{Code: CodeNoRoom, Message: fmt.Sprintf(
				"existing nodes have room for %d of the %d pods of podSet %s%s%s, %d short; this changes when pods end or nodes join",
				fits, p.Count, p.Name, where, beside, p.Count-fits)})
		}
	}
	return out
}
