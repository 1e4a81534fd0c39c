package provisioning

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// trial places a gang in one zone. It owns what it changes; the snapshot stays.
type trial struct {
	*query
	zone string
	pref preference

	// nodes of the zone that the gang may use.
	nodes []trialNode
	// groups of the zone that the policy allows.
	groups []trialGroup
	// market is the least wanted market that launches need so far; -1 without.
	market int
	cost   int64
}

type trialNode struct {
	*Node
	free nodegroups.Resources
	// pods placed by podSet.
	pods []int
}

type trialGroup struct {
	*nodegroups.Group
	rank     int
	shape    nodegroups.Resources
	launched int
	// bins are new machines that have room left.
	bins []bin
}

// bin is a number of like machines with the room that is left on each.
type bin struct {
	left  nodegroups.Resources
	count int
}

func newTrial(q *query, zone string, pref preference) *trial {
	t := &trial{query: q, zone: zone, pref: pref, market: -1}
	for i := range q.snapshot.Nodes {
		n := &q.snapshot.Nodes[i]
		if zone != anyZone && n.zone() != zone || !q.allowsNode(n) {
			continue
		}
		if free, ok := n.availableTo(q.gang); ok {
			t.nodes = append(t.nodes, trialNode{Node: n, free: free, pods: make([]int, len(q.reqs))})
		}
	}
	// What the gang has already comes first, so that a plan made again is the
	// same plan. The sort is stable: within both parts nodes stay in name order.
	slices.SortStableFunc(t.nodes, func(a, b trialNode) int {
		return cmp.Compare(notYet(a.Node, q.gang), notYet(b.Node, q.gang))
	})
	if q.policy.Class == CheckCapacity {
		return t
	}
	for i := range q.snapshot.Groups {
		g := &q.snapshot.Groups[i]
		rank, ok := q.market(g)
		if zone != anyZone && g.Zone != zone || !ok || q.inBackoff(g) {
			continue
		}
		if pref == byPrice {
			rank = 0
		}
		t.groups = append(t.groups, trialGroup{Group: g, rank: rank, shape: shape(g, q.snapshot.DaemonSets)})
	}
	return t
}

// notYet is 0 for nodes that the request has launched or booked, else 1.
func notYet(n *Node, g *Gang) int {
	if _, booked := bookingOf(n, g.UID); booked || launchedFor(n, g) {
		return 0
	}
	return 1
}

// allowsNode says whether the policy lets the gang use the node: nodes of groups
// must be of an allowed market.
func (q *query) allowsNode(n *Node) bool {
	for i := range q.snapshot.Groups {
		if g := &q.snapshot.Groups[i]; g.Name == n.Group {
			_, ok := q.market(g)
			return ok
		}
	}
	return true
}

func (t *trial) placeAll() bool {
	for _, i := range t.placingOrder() {
		if !t.place(i) {
			return false
		}
	}
	return true
}

// place puts all pods of a podSet somewhere, or says that it cannot.
func (t *trial) place(i int) bool {
	if t.policy.Split == v1alpha1.SingleGroup {
		return t.placeInOneGroup(i)
	}
	left := t.fillNodes(i, t.reqs[i].count, anyGroup)
	left = t.fillBins(i, left, anyGroup)
	if left == 0 {
		return true
	}
	for rank := range len(t.policy.CapacityTypes) {
		if g := t.cheapestFor(i, left, rank); g != nil {
			t.launch(g, i, left)
			return true
		}
		if t.launchOver(i, left, rank) {
			return true
		}
	}
	return false
}

// anyGroup lets fillNodes use all nodes and groups.
const anyGroup = "*"

// placeInOneGroup puts all pods on the nodes of one group: the one that needs the
// most wanted market, then the lowest price, then the first by name. Nodes that
// belong to no group count as one group.
func (t *trial) placeInOneGroup(i int) bool {
	names := []string{""}
	for k := range t.snapshot.Groups {
		names = append(names, t.snapshot.Groups[k].Name)
	}
	var best *trial
	for _, name := range names {
		c := t.clone()
		left := c.fillNodes(i, c.reqs[i].count, name)
		left = c.fillBins(i, left, name)
		if left > 0 {
			k := slices.IndexFunc(c.groups, func(g trialGroup) bool { return g.Name == name })
			if k < 0 || c.machinesFor(&c.groups[k], i, left) < 0 {
				continue
			}
			c.launch(&c.groups[k], i, left)
		}
		if best == nil || c.compare(best) < 0 {
			best = c
		}
	}
	if best == nil {
		return false
	}
	*t = *best
	return true
}

// fillNodes puts up to n pods on existing nodes and returns how many are left.
func (t *trial) fillNodes(i, n int, group string) int {
	r := &t.reqs[i]
	for k := range t.nodes {
		if n == 0 {
			return 0
		}
		node := &t.nodes[k]
		if group != anyGroup && node.Group != group || r.mismatch(node.Name, node.Labels, node.Taints) != "" {
			continue
		}
		fit := node.free.Times(r.requests, n)
		node.free.Sub(r.requests, fit)
		node.pods[i] += fit
		n -= fit
	}
	return n
}

// fillBins puts up to n pods on machines that other podSets launch.
func (t *trial) fillBins(i, n int, group string) int {
	r := &t.reqs[i]
	for k := range t.groups {
		g := &t.groups[k]
		if group != anyGroup && g.Name != group || r.mismatch("", g.Labels, g.Taints) != "" {
			continue
		}
		var added []bin
		for b := range g.bins {
			per := g.bins[b].left.Times(r.requests, n)
			if per == 0 || n == 0 {
				continue
			}
			full := min(g.bins[b].count, n/per)
			added = append(added, g.bins[b].take(r, per, full)...)
			n -= full * per
			if rest := g.bins[b].left.Times(r.requests, n); rest > 0 && g.bins[b].count > 0 {
				added = append(added, g.bins[b].take(r, rest, 1)...)
				n -= rest
			}
		}
		g.bins = append(g.bins, added...)
	}
	return n
}

// take puts per pods on each of count machines of the bin, which leave it for
// one of their own.
func (b *bin) take(r *requirements, per, count int) []bin {
	if count == 0 {
		return nil
	}
	left := b.left.Clone()
	left.Sub(r.requests, per)
	b.count -= count
	return []bin{{left: left, count: count}}
}

// machinesFor is how many new machines of the group n pods need, or -1 where the
// pods do not suit it or it may not grow so far.
func (t *trial) machinesFor(g *trialGroup, i, n int) int {
	per := t.perMachine(g, i, n)
	if per == 0 {
		return -1
	}
	need := (n + per - 1) / per
	if need > g.room() {
		return -1
	}
	return need
}

// perMachine is how many pods one new machine of the group takes, at most n.
func (t *trial) perMachine(g *trialGroup, i, n int) int {
	r := &t.reqs[i]
	if r.mismatch("", g.Labels, g.Taints) != "" {
		return 0
	}
	return g.shape.Times(r.requests, n)
}

// room is by how many machines the group may still grow.
func (g *trialGroup) room() int { return max(0, g.Max-g.Machines-g.launched) }

// cheapestFor returns the group of the given market that takes n pods alone at
// the lowest price; then fewest machines; then by name.
func (t *trial) cheapestFor(i, n, rank int) *trialGroup {
	var best *trialGroup
	var bestCost, bestNeed int64
	for k := range t.groups {
		g := &t.groups[k]
		if g.rank != rank {
			continue
		}
		need := int64(t.machinesFor(g, i, n))
		if need < 0 {
			continue
		}
		cost := need * g.MicroUSDPerHour
		if best == nil || cmp.Or(cmp.Compare(cost, bestCost), cmp.Compare(need, bestNeed)) < 0 {
			best, bestCost, bestNeed = g, cost, need
		}
	}
	return best
}

// launchOver spreads n pods over the groups up to the given market: the most
// wanted first, then the lowest price per pod, then by name.
func (t *trial) launchOver(i, n, rank int) bool {
	type option struct{ index, per, room int }
	var options []option
	total := 0
	for k := range t.groups {
		g := &t.groups[k]
		if per := t.perMachine(g, i, n); g.rank <= rank && per > 0 && g.room() > 0 {
			options = append(options, option{k, per, g.room()})
			total += per * g.room()
		}
	}
	if total < n {
		return false
	}
	slices.SortStableFunc(options, func(a, b option) int {
		x, y := &t.groups[a.index], &t.groups[b.index]
		return cmp.Or(
			cmp.Compare(x.rank, y.rank),
			// price ÷ pods, multiplied out
			cmp.Compare(x.MicroUSDPerHour*int64(b.per), y.MicroUSDPerHour*int64(a.per)),
			cmp.Compare(x.Name, y.Name),
		)
	})
	for _, o := range options {
		take := min(n, o.per*o.room)
		if take > 0 {
			t.launch(&t.groups[o.index], i, take)
		}
		n -= take
	}
	return true
}

// launch adds the machines for n pods; the caller has seen that there is room.
func (t *trial) launch(g *trialGroup, i, n int) {
	r := &t.reqs[i]
	per := t.perMachine(g, i, n)
	full, rest := n/per, n%per
	add := func(pods, count int) {
		if count == 0 {
			return
		}
		left := g.shape.Clone()
		left.Sub(r.requests, pods)
		g.bins = append(g.bins, bin{left: left, count: count})
		g.launched += count
		t.cost += int64(count) * g.MicroUSDPerHour
	}
	add(per, full)
	if rest > 0 {
		add(rest, 1)
	}
	t.market = max(t.market, g.rank)
}

func (t *trial) clone() *trial {
	c := *t
	c.nodes = slices.Clone(t.nodes)
	for i := range c.nodes {
		c.nodes[i].free = c.nodes[i].free.Clone()
		c.nodes[i].pods = slices.Clone(c.nodes[i].pods)
	}
	c.groups = slices.Clone(t.groups)
	for i := range c.groups {
		c.groups[i].bins = slices.Clone(c.groups[i].bins)
	}
	return &c
}

// machines that would be launched.
func (t *trial) machines() (n int) {
	for i := range t.groups {
		n += t.groups[i].launched
	}
	return n
}

func (t *trial) compare(o *trial) int {
	return cmp.Or(
		cmp.Compare(t.market, o.market),
		cmp.Compare(t.cost, o.cost),
		cmp.Compare(t.machines(), o.machines()),
		cmp.Compare(t.zone, o.zone),
	)
}

func (t *trial) overPrice() bool {
	return t.policy.MaxMicroUSDPerHour >= 0 && t.cost > t.policy.MaxMicroUSDPerHour
}

func (t *trial) verdict() Verdict {
	v := Verdict{Outcome: Fits, MicroUSDPerHour: t.cost}
	for i := range t.nodes {
		n := &t.nodes[i]
		used, total := nodegroups.Resources{}, 0
		for k, pods := range n.pods {
			used.Add(t.reqs[k].requests, pods)
			total += pods
		}
		if total > 0 {
			v.Placement = append(v.Placement, Placement{Node: n.Name, Pods: n.pods, Requests: used, Whole: n.aloneOn(t.gang)})
		}
	}
	counts := map[string]int{}
	for i := range t.groups {
		counts[t.groups[i].Name] = t.groups[i].launched
	}
	if v.Launches = groupCounts(counts); len(v.Launches) > 0 {
		v.Outcome = Launch
	}
	return v
}

// Place puts a gang on the given nodes alone, launching nothing: how a launch
// whose nodes have all joined is turned into bookings.
func Place(nodes []Node, gang Gang) (Verdict, bool) {
	p := DefaultPolicy(CheckCapacity)
	p.Split = v1alpha1.AnyZone
	v := Plan(&Snapshot{Nodes: nodes}, gang, p)
	return v, v.Outcome == Fits
}
