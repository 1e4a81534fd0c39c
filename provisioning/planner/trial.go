package planner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/state"
)

// trial places a gang in one region. It owns what it changes.
type trial struct {
	*query
	*region
	pref preference

	// used is how many nodes of each source have pods of the gang, launched how many machines of each offer are needed.
	used, launched []int
	// inNew is how many of the launched machines are in each new domain.
	inNew map[*domain]int
	bins  []bin
	// in are the domains that contain podSets that are placed pod after pod.
	in []*domain
	// between is the constraint between pods that could not be met.
	between obstacle
	// capacityType is the rank of the least preferred capacity type of the launches so far; -1 for none.
	capacityType int
	// cost of the launches in millionths of a USD per hour. expected is the cost ÷ the chance that all launches succeed.
	cost, expected int64
}

// preference is the first criterion for groups.
type preference int

const (
	// byCapacityType: the policy's order of capacity types, then price.
	byCapacityType preference = iota
	// byPrice: price alone, without the chance of a launch, which changes with time.
	byPrice
)

// bin is a number of equal nodes or new machines with the same pods of the gang on each.
type bin struct {
	// source or offer is an index in the region; the other one is -1.
	source, offer int
	// first is the index of the first node in the source.
	first, count int
	room         space
	pods         []int
	// in is the new domain of the machines; nil for none.
	in *domain
}

func newTrial(q *query, r *region, pref preference) *trial {
	return &trial{query: q, region: r, pref: pref, capacityType: -1,
		used: make([]int, len(r.sources)), launched: make([]int, len(r.offers)), inNew: map[*domain]int{}}
}

func (t *trial) placeAll() bool {
	if t.apart {
		return t.placeApart()
	}
	return t.placeGang()
}

// joinWithin returns how long the launched machines may take to join.
func (t *trial) joinWithin() (d time.Duration) {
	for k, n := range t.launched {
		if n > 0 {
			d = max(d, t.offers[k].QueueTimeout+t.offers[k].JoinTimeout)
		}
	}
	return d
}

// placingOrder returns the order in which podSets are placed. PodSets that suit the fewest groups come first, since others can use other
// groups; then those that request the most devices, then cpu, then memory, per pod; then their order in the gang.
func (t *trial) placingOrder() []int {
	order := make([]int, len(t.pods))
	choices := make([]int, len(t.pods))
	for i := range order {
		order[i] = i
		for k := range t.offers {
			if t.offers[k].takes.has(i) {
				choices[i]++
			}
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := t.pods[a].Requests, t.pods[b].Requests
		return cmp.Or(
			cmp.Compare(choices[a], choices[b]),
			-cmp.Compare(devices(x), devices(y)),
			-cmp.Compare(x["cpu"], y["cpu"]),
			-cmp.Compare(x["memory"], y["memory"]),
			cmp.Compare(a, b),
		)
	})
	return order
}

// place places all pods of a podSet in the domain, or reports that it cannot.
func (t *trial) place(i int, in *domain, layers []fit.Layer) bool {
	if t.policy.Split == v1alpha1.SingleGroup {
		return t.placeInOneGroup(i, in, layers)
	}
	return t.placeLayers(i, t.pods[i].Count, in, layers, anyGroup)
}

// anyGroup lets fill use all nodes and groups.
const anyGroup = "*"

// placeInOneGroup places all pods on the nodes of one group: the one that needs the most preferred capacity type, then the lowest price,
// then the first by name. Nodes without a group count as one group.
func (t *trial) placeInOneGroup(i int, in *domain, layers []fit.Layer) bool {
	names := []string{}
	for _, k := range in.sources {
		names = append(names, t.sources[k].group)
	}
	for _, k := range in.offers {
		names = append(names, t.offers[k].Name)
	}
	slices.Sort(names)
	var best *trial
	for _, name := range slices.Compact(names) {
		c := t.clone()
		if c.placeLayers(i, c.pods[i].Count, in, layers, name) && (best == nil || c.compare(best) < 0) {
			best = c
		}
	}
	if best == nil {
		return false
	}
	*t = *best
	return true
}

// placeLayers places n pods in domains of the layers, in slices of each layer's size.
func (t *trial) placeLayers(i, n int, in *domain, layers []fit.Layer, group string) bool {
	if len(layers) == 0 {
		return t.placeIn(i, n, in, group)
	}
	for n > 0 {
		size := min(n, layers[0].Size)
		if !t.within(in, layers[0].Level, i, size, func(t *trial, d *domain) bool {
			return t.placeLayers(i, size, d, layers[1:], group)
		}) {
			return false
		}
		n -= size
	}
	return true
}

// placeIn places n pods in the domain.
func (t *trial) placeIn(i, n int, in *domain, group string) bool {
	left := t.fill(i, n, in, group)
	if left == 0 {
		return true
	}
	if group != anyGroup {
		at := slices.IndexFunc(in.offers, func(k int) bool { return t.offers[k].Name == group })
		if at < 0 || t.machinesFor(in.offers[at], i, left, in) < 0 {
			return false
		}
		t.launch(in.offers[at], i, left, in)
		return true
	}
	for rank := range len(t.policy.CapacityTypes) {
		if k := t.cheapestFor(i, left, rank, in); k >= 0 {
			t.launch(k, i, left, in)
			return true
		}
		if t.launchOver(i, left, rank, in) {
			return true
		}
	}
	return false
}

// fill places up to n pods on existing nodes of the domain and on machines that other podSets launch there, and returns how many remain.
func (t *trial) fill(i, n int, in *domain, group string) int {
	for b := range len(t.bins) { // bins that are split off meanwhile are full
		if t.binTakes(&t.bins[b], i, in, group) {
			n = t.fillBin(b, i, n)
		}
	}
	if n == 0 {
		return 0
	}
	for _, c := range t.candidates(i, n, in, group) {
		if n == 0 {
			return 0
		}
		k, src := c.source, &t.sources[c.source]
		per := min(c.per, n)
		add := func(per, count int) {
			if per > 0 && count > 0 {
				t.addBin(bin{source: k, offer: -1, first: t.used[k], count: count, room: src.room}, i, per)
				t.used[k] += count
				n -= per * count
			}
		}
		add(per, min(src.count-t.used[k], n/per))
		if t.used[k] < src.count {
			add(min(n, per), 1)
		}
	}
	return n
}

// candidate is a source with the number of pods that fit on each of its nodes.
type candidate struct {
	source, per int
	left        int64
}

// candidates returns the sources for n pods of the podSet. The gang's own nodes come first, so that a repeated plan has the same result;
// then nodes with the fewest remaining devices; then those with room for the most pods; then the order of the classes.
func (t *trial) candidates(i, n int, in *domain, group string) (out []candidate) {
	devices := devices(t.pods[i].Requests)
	for _, k := range in.sources {
		src := &t.sources[k]
		if src.takes.has(i) && t.used[k] < src.count && (group == anyGroup || src.group == group) {
			per := t.perMachine(src.room, i, n)
			if per == 0 {
				continue
			}
			out = append(out, candidate{k, per, src.devices - nodegroups.Times(devices, int64(per))})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		x, y := &t.sources[a.source], &t.sources[b.source]
		return cmp.Or(
			-nodegroups.CompareBools(x.own, y.own),
			cmp.Compare(a.left, b.left),
			-cmp.Compare(a.per, b.per),
			cmp.Compare(a.source, b.source),
		)
	})
	return out
}

// binTakes reports whether pods of the podSet may be added to the bin.
func (t *trial) binTakes(b *bin, i int, in *domain, group string) bool {
	takes, of := podSets(0), ""
	if b.offer >= 0 {
		takes, of = t.offers[b.offer].takes, t.offers[b.offer].Name
	} else {
		takes, of = t.sources[b.source].takes, t.sources[b.source].group
	}
	return takes.has(i) && (group == anyGroup || of == group) && in.has(b)
}

// fillBin adds up to n pods to the bin and returns how many remain. A bin is split if its nodes do not all get the same pods.
func (t *trial) fillBin(at, i, n int) int {
	b := &t.bins[at]
	per := t.perMachine(b.room, i, n)
	if per == 0 {
		return n
	}
	full := min(b.count, n/per)
	rest := 0
	if full < b.count {
		rest = min(per, n-full*per)
	}
	whole := *b
	if full > 0 {
		*b = t.with(whole.part(full), i, per)
		n -= full * per
		whole.first += full
		whole.count -= full
	}
	if rest > 0 {
		one := t.with(whole.part(1), i, rest)
		n -= rest
		whole.first++
		whole.count--
		if full > 0 {
			t.bins = append(t.bins, one)
		} else {
			*b = one
		}
	}
	if whole.count > 0 && full+rest > 0 {
		t.bins = append(t.bins, whole)
	}
	return n
}

// part returns the bin with its first n nodes only.
func (b bin) part(n int) bin {
	b.count = n
	return b
}

// with returns the bin with n more pods of the podSet on each node.
func (t *trial) with(b bin, i, n int) bin {
	b.room = t.less(b.room, i, n)
	pods := make([]int, len(t.pods))
	copy(pods, b.pods)
	pods[i] += n
	b.pods = pods
	return b
}

func (t *trial) addBin(b bin, i, per int) { t.bins = append(t.bins, t.with(b, i, per)) }

// machinesFor returns how many new machines of the offer n pods need, or -1 if the pods do not suit it or it may not grow so far.
func (t *trial) machinesFor(k, i, n int, in *domain) int {
	o := &t.offers[k]
	per := t.perMachine(o.room, i, n)
	if !o.takes.has(i) || per == 0 {
		return -1
	}
	need := (n + per - 1) / per
	if need > t.mayLaunch(k, in) || t.isBlocked(k, need) {
		return -1
	}
	return need
}

// mayLaunch returns how many more machines the offer may add in the domain.
func (t *trial) mayLaunch(k int, in *domain) int {
	most := t.mayGrow(t.offers[k].Group) - t.launched[k]
	for ; in != nil; in = in.within {
		if in.most > 0 {
			most = min(most, in.most-t.inNew[in])
		}
	}
	return max(0, most)
}

// isBlocked reports whether a backoff of the offer's group stops a launch of n more machines.
func (t *trial) isBlocked(k, n int) bool {
	until, _ := t.blocked(t.offers[k].Group, t.launched[k]+n)
	return !until.IsZero()
}

// rankOf returns the rank of the offer's capacity type.
func (t *trial) rankOf(k int) int {
	if t.pref == byPrice {
		return 0
	}
	return t.offers[k].rank
}

// cheapestFor returns the offer of the given rank that takes n pods alone at the lowest expected price; then the lowest price, fewest
// machines, first name. It is -1 for none.
func (t *trial) cheapestFor(i, n, rank int, in *domain) int {
	best := -1
	var bestExpected, bestCost, bestNeed int64
	for _, k := range in.offers {
		if t.rankOf(k) != rank {
			continue
		}
		need := int64(t.machinesFor(k, i, n, in))
		if need < 0 {
			continue
		}
		cost := nodegroups.Times(need, t.price(k))
		expected := t.expect(k, cost, int(need))
		if best < 0 || cmp.Or(cmp.Compare(expected, bestExpected), cmp.Compare(cost, bestCost), cmp.Compare(need, bestNeed)) < 0 {
			best, bestExpected, bestCost, bestNeed = k, expected, cost, need
		}
	}
	return best
}

// unknownPrice is the price of a machine whose price is unknown: higher than any other, and than any limit.
const unknownPrice = nodegroups.MaxUSD * 1e6

// price returns the price of a machine of the offer. An ideal query assumes that an unknown price is low.
func (t *trial) price(k int) int64 {
	if t.offers[k].PriceUnknown && !t.ideal {
		return unknownPrice
	}
	return t.offers[k].MicroUSDPerHour
}

// expect returns the price ÷ the chance that the offer makes n more machines.
func (t *trial) expect(k int, cost int64, n int) int64 {
	if t.pref == byPrice {
		return cost
	}
	return nodegroups.ExpectedCost(cost, t.offers[k].chance(t.launched[k]+n, t.Now))
}

// launchOver spreads n pods over the offers up to the given rank: the most preferred first, then the lowest price per pod, then by name.
func (t *trial) launchOver(i, n, rank int, in *domain) bool {
	type option struct{ offer, per, most, pods int }
	var options []option
	total := 0
	for _, k := range in.offers {
		per := t.perMachine(t.offers[k].room, i, n)
		most := min(t.mayLaunch(k, in), n)
		if t.rankOf(k) > rank || !t.offers[k].takes.has(i) || per == 0 || most == 0 || t.isBlocked(k, 1) {
			continue
		}
		options = append(options, option{offer: k, per: per, most: most})
		total += per * most
	}
	if total < n {
		return false
	}
	slices.SortStableFunc(options, func(a, b option) int {
		x, y := &t.offers[a.offer], &t.offers[b.offer]
		return cmp.Or(
			cmp.Compare(t.rankOf(a.offer), t.rankOf(b.offer)),
			cmp.Compare(t.expect(a.offer, t.price(a.offer), 1)/int64(a.per), t.expect(b.offer, t.price(b.offer), 1)/int64(b.per)),
			cmp.Compare(x.Name, y.Name),
		)
	})
	for o := range options {
		opt := &options[o]
		take := min(n, opt.per*opt.most)
		for take > 0 && t.isBlocked(opt.offer, (take+opt.per-1)/opt.per) {
			take = max(0, take-opt.per)
		}
		opt.pods = take
		n -= take
	}
	if n > 0 {
		return false
	}
	for _, o := range options {
		if o.pods > 0 {
			t.launch(o.offer, i, o.pods, in)
		}
	}
	return true
}

// launch adds the machines for n pods. The caller has checked that there may be so many.
func (t *trial) launch(k, i, n int, in *domain) {
	o := &t.offers[k]
	per := t.perMachine(o.room, i, n)
	add := func(per, count int) {
		if per > 0 && count > 0 {
			b := bin{source: -1, offer: k, count: count, room: o.room}
			if in.new {
				b.in = in
			}
			t.addBin(b, i, per)
			t.addMachines(k, count, in)
		}
	}
	add(per, n/per)
	add(n%per, 1)
}

// addMachines adds n machines of the offer to the launches in the domain.
func (t *trial) addMachines(k, n int, in *domain) {
	t.launched[k] += n
	for ; in != nil && in.new; in = in.within {
		t.inNew[in] += n
	}
	t.cost = nodegroups.Plus(t.cost, nodegroups.Times(int64(n), t.price(k)))
	t.capacityType = max(t.capacityType, t.rankOf(k))
	t.expected = t.expectAll()
}

// expectAll returns the price of all launches ÷ the chance that they all succeed.
func (t *trial) expectAll() int64 {
	if t.pref == byPrice {
		return t.cost
	}
	cost := t.cost
	for k, n := range t.launched {
		if n > 0 {
			cost = nodegroups.ExpectedCost(cost, t.offers[k].chance(n, t.Now))
		}
	}
	return cost
}

func (t *trial) clone() *trial {
	c := *t
	c.used, c.launched, c.bins = slices.Clone(t.used), slices.Clone(t.launched), slices.Clone(t.bins)
	c.inNew, c.in = maps.Clone(t.inNew), slices.Clone(t.in)
	return &c
}

// machines returns the number of machines to launch.
func (t *trial) machines() (n int) {
	for _, l := range t.launched {
		n += l
	}
	return n
}

// own returns how many of the used nodes are the gang's own.
func (t *trial) own() (n int) {
	for k, used := range t.used {
		if t.sources[k].own {
			n += used
		}
	}
	return n
}

// compare orders options by the least preferred capacity type that they need, then expected price, then price, then number of machines,
// then by how much of what they use is the gang's own, then region. So the order of regions is total, and domains within a region keep
// their order.
func (t *trial) compare(o *trial) int {
	return cmp.Or(
		cmp.Compare(t.capacityType, o.capacityType),
		cmp.Compare(t.expected, o.expected),
		cmp.Compare(t.cost, o.cost),
		cmp.Compare(t.machines(), o.machines()),
		-cmp.Compare(t.own(), o.own()),
		cmp.Compare(t.name, o.name),
	)
}

func (t *trial) overPrice() bool {
	return t.policy.MaxMicroUSDPerHour >= 0 && t.cost > t.policy.MaxMicroUSDPerHour
}

func (t *trial) verdict() Verdict {
	policy := t.policy
	v := Verdict{Outcome: Fits, Placement: t.placement(), Gang: t.gang, Policy: &policy}
	counts := map[string]int{}
	chance := int64(full)
	for k, n := range t.launched {
		if n > 0 {
			counts[t.offers[k].Name] = n
			v.MicroUSDPerHour = nodegroups.Plus(v.MicroUSDPerHour, nodegroups.Times(int64(n), t.offers[k].MicroUSDPerHour))
			if t.offers[k].PriceUnknown {
				v.Unpriced = append(v.Unpriced, t.offers[k].Name)
			}
			chance = chance * int64(t.offers[k].chance(n, t.Now)) / full
		}
	}
	v.Chance = int(max(1, chance))
	slices.Sort(v.Unpriced)
	if v.Launches = GroupCounts(counts); len(v.Launches) > 0 {
		v.Outcome = Launch
	}
	return v
}

// full is a chance of one, in thousandths.
const full = 1000

// placement names the nodes of the bins. The nodes of a source are used in the order of their names.
func (t *trial) placement() (out []Placement) {
	nodes := map[int][]*state.Node{}
	for _, b := range t.bins {
		if b.source < 0 {
			continue
		}
		if nodes[b.source] == nil {
			nodes[b.source] = t.nodesOf(b.source)
		}
		for _, n := range nodes[b.source][b.first : b.first+b.count] {
			used := nodegroups.Resources{}
			for i, pods := range b.pods {
				used.Add(t.pods[i].Requests, pods)
			}
			out = append(out, Placement{Node: n.Name, Pods: b.pods, Requests: used, Over: n.Over(), Whole: n.AloneOn(t.gang)})
		}
	}
	slices.SortFunc(out, func(a, b Placement) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// nodesOf returns the first nodes of the source, as many as are used.
func (t *trial) nodesOf(k int) []*state.Node {
	src := &t.sources[k]
	switch {
	case src.node != nil:
		return []*state.Node{src.node}
	case src.nodes != nil:
		return src.nodes[:t.used[k]]
	}
	out := make([]*state.Node, 0, t.used[k])
	for n := range t.Nodes.Members(src.class, t.ideal) {
		if !t.single[n.Name] {
			out = append(out, n)
		}
		if len(out) == t.used[k] {
			break
		}
	}
	return out
}
