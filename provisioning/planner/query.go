package planner

import (
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/when"
)

// query is one question to the planner: what the podSets ask for, and what there
// is that could serve them, by region. It is read once and then only looked at.
type query struct {
	*Snapshot
	gang   *state.Gang
	policy state.Policy
	pods   []*fit.Pod
	// ideal asks about the best of days instead of now; patient about now, but for backoffs.
	ideal, patient bool
	// runs is how long the gang runs at most; zero where that is not known. starts is how late it
	// may begin, since it waits for machines that are launched; ending tells that some node may end
	// while it runs.
	runs, starts time.Duration
	ending       bool

	// dims are the resources that the gang asks for; vectors follow their order.
	dims  []corev1.ResourceName
	needs []vector
	// regions in the order of their names: the gang is placed whole in one of them, within domains
	// of it.
	regions []*region
	// single nodes are not looked at by class.
	single map[string]bool
	// apart reports whether all nodes are single, since pods of the gang are Between; gather are the
	// topologies within a domain of which some pods must stay together.
	apart    bool
	gather   []string
	repelled repelled
	// withheld says what keeps pods off the first nodes that have room for them; nil where nothing does.
	withheld []Reason
}

// vector is an amount of each resource that the gang asks for.
type vector []int64

// space is the room for pods of the gang on a node or a new machine.
type space struct {
	amounts vector
	// claimable contains the devices that pods can claim; nil for none.
	claimable fit.Devices
}

// fits returns how many of n pods of the podSet fit.
func (q *query) fits(s space, i, n int) int {
	n = s.amounts.times(q.needs[i], n)
	c := q.pods[i].Claims
	switch {
	case c == nil || n == 0:
	case s.claimable != nil:
		n, _ = s.claimable.Allocate(c, n)
	case len(c.Specs) > 0:
		return 0
	}
	return n
}

// less returns the space with n more pods of the podSet.
func (q *query) less(s space, i, n int) space {
	s.amounts = s.amounts.less(q.needs[i], n)
	if c := q.pods[i].Claims; c != nil && s.claimable != nil {
		_, s.claimable = s.claimable.Allocate(c, n)
	}
	return s
}

// times says how often need fits, at most limit.
func (v vector) times(need vector, limit int) int {
	n := int64(limit)
	for i, need := range need {
		if need > 0 {
			n = min(n, v[i]/need)
		}
	}
	return int(max(0, n))
}

// less is v without n times need.
func (v vector) less(need vector, n int) vector {
	out := slices.Clone(v)
	for i := range out {
		out[i] = nodegroups.Plus(out[i], -nodegroups.Times(need[i], int64(n)))
	}
	return out
}

// region is where a gang may be placed as a whole: a zone, say.
type region struct {
	name string
	// sources in the order of their classes.
	sources []source
	// offers in the order of the names of their groups.
	offers []offer
	// domains that have been looked up.
	domains map[domainKey][]*domain
}

// source is a number of like nodes.
type source struct {
	// class that the nodes are of, or else the one node. nodes are those of them that are meant; nil
	// stands for all that are not looked at otherwise.
	class *nodeset.Class
	node  *state.Node
	nodes []*state.Node
	group string
	count int
	room  space
	// devices are all that are free on a node, those that the gang does not ask for
	// included.
	devices int64
	takes   podSets
	// own nodes have been booked or launched for the gang already.
	own bool
}

// offer is a group that may launch machines for the gang.
type offer struct {
	*Group
	// rank of the group's market in the policy, the most wanted being 0.
	rank  int
	room  space
	takes podSets
	// level is the one that the cloud chooses a domain of for the gang; empty without.
	level string
}

// chance that n machines of the offer come as the gang needs them.
func (o *offer) chance(n int, now time.Time) int { return o.Chance(n, o.level, now) }

// podSets is a set of podSets by their index: those that may run on a node, for
// example. A request has at most 32.
type podSets uint64

func (s podSets) has(i int) bool { return s&(1<<i) != 0 }

// newQuery reads the snapshot for a gang. Nodes are looked at by class, except
// for the few that the gang has to do with.
func newQuery(s *Snapshot, gang *state.Gang, pods []*fit.Pod, policy state.Policy, ideal bool) *query {
	q := &query{Snapshot: s, gang: gang, policy: policy, pods: pods, ideal: ideal, runs: gang.Runs()}
	for _, p := range pods {
		for _, name := range p.Requests.Names() {
			if p.Requests[name] > 0 && !slices.Contains(q.dims, name) {
				q.dims = append(q.dims, name)
			}
		}
	}
	for _, p := range pods {
		q.needs = append(q.needs, q.vector(p.Requests))
	}
	if keys := s.Nodes.Lacks(q.keys()); len(keys) > 0 {
		again := *s
		again.Nodes = s.Memo.withKeys(s.Nodes, keys)
		q.Snapshot = &again
	}
	if q.apart = slices.ContainsFunc(pods, (*fit.Pod).Between); q.apart {
		q.readTopologies()
	}
	if !ideal {
		q.repelled = readRepelled(q.Nodes, gang.Namespace, pods)
	}
	q.collect()
	return q
}

// keys are the labels that nodes must be told apart by for this gang.
func (q *query) keys() (keys []string) {
	for _, p := range q.pods {
		keys = append(keys, p.Keys()...)
	}
	if q.policy.Topology != "" {
		keys = append(keys, q.policy.Topology)
	}
	return keys
}

// levels are the node labels of the domains that pods must be within.
func (q *query) levels() (keys []string) {
	if q.policy.Topology != "" {
		keys = append(keys, q.policy.Topology)
	}
	for _, p := range q.pods {
		for _, key := range p.Levels() {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (q *query) vector(r nodegroups.Resources) vector {
	out := make(vector, len(q.dims))
	for i, name := range q.dims {
		out[i] = r[name]
	}
	return out
}

// collect finds the sources and offers of all regions.
func (q *query) collect() {
	regions := map[string]*region{}
	in := func(name string) *region {
		r := regions[name]
		if r == nil {
			r = &region{name: name, domains: map[domainKey][]*domain{}}
			regions[name] = r
			q.regions = append(q.regions, r)
		}
		return r
	}
	singles := q.singles()
	q.single, q.withheld = singles.is, nil
	for _, within := range q.bounds() {
		clear(regions) // one without a zone, or of an empty value, has the name of another way's
		for _, n := range singles.own {
			q.addNode(in, within, n, own)
		}
		if q.apart {
			for n := range q.Nodes.All() {
				if q.single[n.Name] || q.ideal && q.countsAsNew(n.Group) {
					continue
				}
				q.addNode(in, within, n, !own)
			}
		} else {
			q.addClasses(in, within, singles)
		}
		for _, n := range singles.named {
			q.addNode(in, within, n, !own)
		}
		if q.policy.Class == state.AtomicScaleUp {
			q.addOffers(in, within)
		}
	}
	slices.SortStableFunc(q.regions, func(a, b *region) int { return strings.Compare(a.name, b.name) })
}

// singles are the nodes that a gang has to do with by name, so that they are not
// looked at by class.
type singles struct {
	// own nodes have been booked or launched for the gang.
	own []*state.Node
	// named nodes are those that a podSet asks for, and those that bear the label
	// of another request by the same key.
	named []*state.Node
	// of is how many of them each class has, exceptions what else of a class is not like the rest.
	of         map[*nodeset.Class]int
	exceptions map[*nodeset.Class][]exception
	is         map[string]bool
}

func (q *query) singles() *singles {
	out := &singles{of: map[*nodeset.Class]int{}, is: map[string]bool{}}
	take := func(nodes iter.Seq[*state.Node], list *[]*state.Node) {
		for n := range nodes {
			if out.is[n.Name] {
				continue
			}
			out.is[n.Name] = true
			if c := q.Nodes.ClassOf(n.Name, q.ideal); c != nil {
				out.of[c]++
			}
			*list = append(*list, n)
		}
	}
	if !q.ideal {
		if q.gang.UID != "" {
			take(q.Nodes.BookedBy(q.gang.UID), &out.own)
		}
		if q.gang.Launch != "" {
			take(q.Nodes.LaunchedBy(q.gang.Launch), &out.own)
		}
		if q.gang.Key != "" {
			take(q.Nodes.OwnedBy(nodeset.KeyedBy(q.gang.Key)), &out.named)
		}
	}
	for _, p := range q.pods {
		names, _ := p.Names()
		for _, name := range names {
			take(q.Nodes.OwnedBy(nodeset.HostNamed(name)), &out.named)
		}
	}
	slices.SortFunc(out.own, func(a, b *state.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.named, func(a, b *state.Node) int { return strings.Compare(a.Name, b.Name) })
	if !q.apart {
		out.exceptions = q.exceptions(out.is)
	}
	return out
}

// own nodes come before others.
const own = true

func (q *query) addNode(in func(string) *region, within []string, n *state.Node, own bool) {
	free, ok := n.AvailableTo(q.gang)
	claimable := n.Claimable
	if q.ideal {
		free, claimable, ok = n.Allocatable, n.Published, true
	}
	name, inRegion := regionOf(within, n.Labels)
	if !ok || !inRegion || !q.allowsGroup(n.Group) || !own && q.nodeEnds(n.Group, n.EndsAt()) {
		return
	}
	src := source{node: n, group: n.Group, count: 1, room: space{q.vector(free), claimable}, devices: devices(free), own: own}
	for i, p := range q.pods {
		if p.Matches(n.Name, n.Labels, n.Taints) && q.fits(src.room, i, 1) > 0 {
			src.takes |= 1 << i
		}
	}
	if src.takes = q.allowed(src.takes, q.repelled.from(n.Labels), n.Labels); src.takes != 0 {
		in(name).add(src)
	}
}

// addClasses adds the nodes by class. On the best of days those of a group have not
// been launched yet; where the topology of its new machines is not known, they stay.
func (q *query) addClasses(in func(string) *region, within []string, singles *singles) {
	// What holds for a kind holds for all classes of it.
	type judged struct {
		takes, off podSets
		region     *region
	}
	kinds := make(map[*nodeset.Kind]judged, len(q.Groups))
	judge := func(k *nodeset.Kind) (j judged) {
		name, ok := regionOf(within, k.Labels)
		if !ok || !q.allowsGroup(k.Group) || q.nodeEnds(k.Group, k.EndsAt) || q.ideal && q.countsAsNew(k.Group) {
			return j
		}
		for i, p := range q.pods {
			if _, only := p.Names(); !only && p.Matches("", k.Labels, k.Taints) {
				j.takes |= 1 << i
			}
		}
		j.off = q.repelled.from(k.Labels)
		if j.takes != 0 {
			j.region = in(name)
		}
		return j
	}
	// Where each of the gang's resources stands in the rooms of classes.
	at := make([]int, len(q.dims))
	for i, name := range q.dims {
		at[i] = -1
		if k, ok := q.Nodes.Index(name); ok {
			at[i] = k
		}
	}
	var amounts []int64
	for c, count := range q.Nodes.Classes(q.ideal) {
		j, ok := kinds[c.Kind]
		if !ok {
			j = judge(c.Kind)
			kinds[c.Kind] = j
		}
		if j.takes == 0 {
			continue
		}
		start := len(amounts)
		for _, k := range at {
			if k >= 0 {
				amounts = append(amounts, c.Room(k))
			} else {
				amounts = append(amounts, 0)
			}
		}
		src := source{class: c, group: c.Group, count: count - singles.of[c],
			room: space{amounts[start:len(amounts):len(amounts)], c.Claimable}, devices: c.Devices}
		for i := range q.pods {
			if j.takes.has(i) && q.fits(src.room, i, 1) > 0 {
				src.takes |= 1 << i
			}
		}
		if src.takes == 0 {
			amounts = amounts[:start]
			continue
		}
		for _, e := range singles.exceptions[c] {
			src.count -= len(e.nodes)
			other := src
			other.nodes, other.count, other.takes = e.nodes, len(e.nodes), q.allowed(src.takes, e.off, e.nodes[0].Labels)
			j.region.add(other)
		}
		src.takes = q.allowed(src.takes, j.off, c.Labels)
		j.region.add(src)
	}
}

// add adds nodes, if any of them may have pods.
func (r *region) add(src source) {
	if src.takes != 0 && src.count > 0 {
		r.sources = append(r.sources, src)
	}
}

func (q *query) addOffers(in func(string) *region, within []string) {
	for k := range q.Groups {
		g := &q.Groups[k]
		rank, ok := q.market(g)
		name, inRegion := regionOf(within, g.Labels)
		if !ok || !inRegion || g.Foreign && !q.ideal || q.ends(q.launchedEnd(g), q.launchedUntil(g)) {
			continue
		}
		o := offer{Group: g, rank: rank, room: q.spaceOf(g), level: q.level(g)}
		for i, p := range q.pods {
			if p.Matches("", g.Labels, g.Taints) && q.fits(o.room, i, 1) > 0 {
				o.takes |= 1 << i
			}
		}
		if o.takes &^= q.repelled.from(g.Labels); o.takes != 0 {
			r := in(name)
			r.offers = append(r.offers, o)
		}
	}
}

// bounds are the sets of labels, the gang being placed within one value of each of
// a set: the zone; and, as a second way, a domain of what holds its pods together, too.
func (q *query) bounds() [][]string {
	var base []string
	if q.policy.Split != v1alpha1.AnyZone {
		base = append(base, corev1.LabelTopologyZone)
	}
	if len(q.gather) == 0 {
		return [][]string{base}
	}
	return [][]string{base, slices.Concat(base, q.gather)}
}

// regionOf is the region of nodes with these labels, told apart by those of within;
// ok is false for nodes that are in none: outside of every domain. Nodes without
// a zone are in a zone of their own.
func regionOf(within []string, labels map[string]string) (name string, ok bool) {
	for i, key := range within {
		value, has := labels[key]
		if !has && key != corev1.LabelTopologyZone {
			return "", false
		}
		if i > 0 {
			name += "/"
		}
		name += value
	}
	return name, true
}

// countsAsNew reports whether an offer stands for the nodes of the group.
func (q *query) countsAsNew(group string) bool {
	g := q.FindGroup(group)
	if g == nil || q.policy.Class != state.AtomicScaleUp {
		return false
	}
	_, ok := regionOf(slices.Concat(q.bounds()[0], q.levels()), g.Labels)
	return ok
}

// market is the rank of the group's capacity type in the policy, the most wanted
// being 0; ok is false where the policy does not allow it.
func (q *query) market(g *Group) (rank int, ok bool) {
	rank = slices.Index(q.policy.CapacityTypes, g.CapacityType)
	return rank, rank >= 0
}

// allowsGroup reports whether the policy lets the gang use nodes of the group. Nodes
// of no group, or of one that is gone, may be used.
func (q *query) allowsGroup(name string) bool {
	g := q.FindGroup(name)
	if g == nil {
		return true
	}
	_, ok := q.market(g)
	return ok
}

// ends reports whether a machine that ends at that time would end a gang that may run for that
// long. On the best of days the end is put off.
func (q *query) ends(at, until time.Time) bool {
	return !q.ideal && q.runs > 0 && !at.IsZero() && at.Before(until)
}

// nodeEnds reports whether a node of the group would end the gang. What is the gang's own
// already stays so, however late its pods come.
func (q *query) nodeEnds(group string, at time.Time) bool {
	if g := q.FindGroup(group); g != nil {
		at = when.Earliest(at, g.EndsAt)
	}
	q.ending = q.ending || q.runs > 0 && !at.IsZero()
	return q.ends(at, q.Now.Add(q.starts+q.runs))
}

// launchedUntil is how long the gang may run on machines of the group that are launched now.
func (q *query) launchedUntil(g *Group) time.Time {
	return q.Now.Add(g.QueueTimeout + g.JoinTimeout + q.runs)
}

// launchedEnd is when the cloud ends machines of the group that are launched now, and that wait
// in its queue for as long as they may; zero where it does not.
func (q *query) launchedEnd(g *Group) time.Time {
	if g.Lifetime == 0 {
		return g.EndsAt
	}
	return when.Earliest(g.EndsAt, q.Now.Add(g.QueueTimeout+g.Lifetime))
}

// blocked says until when and why the group may not launch n machines; the time is
// zero where it may.
func (q *query) blocked(g *Group, n int) (until time.Time, why string) {
	if q.ideal || q.patient {
		return time.Time{}, ""
	}
	if until, why = g.BlockedUntil(n, q.level(g)); until.After(q.Now) {
		return until, why + "; next attempt at " + until.UTC().Format(time.RFC3339)
	}
	if b := q.vainSpent(q.gang); b != nil {
		if why = g.LastInVain(n, q.level(g)); why != "" {
			return b.Ends, sayVain(b, why, q.Now)
		}
	}
	if g.Unlisted {
		// Without the time, which is another one with each plan.
		return q.Now.Add(listedAgain), "its cloud does not list its machines (condition Listed), so nothing is launched there until it does"
	}
	return time.Time{}, ""
}

// listedAgain is how soon a plan considers a group again whose cloud does not list its machines.
const listedAgain = time.Minute

// usable is what pods can use of a new machine of the group. Nodes that offer less
// than their template promises may be repaired: that gives no gang up.
func (q *query) usable(g *Group) nodegroups.Resources {
	if q.ideal {
		return g.UsableAtBest
	}
	return g.Usable
}

// spaceOf returns the space of a new machine of the group.
func (q *query) spaceOf(g *Group) space {
	if q.ideal {
		return space{q.vector(g.UsableAtBest), g.PublishedAtBest}
	}
	return space{q.vector(g.Usable), g.Published}
}

// perMachine is how many of n pods of the podSet an empty room takes. Those that must be on one
// node are not divided.
func (q *query) perMachine(room space, i, n int) int {
	if len(q.pods[i].Ports) > 0 {
		n = min(n, 1)
	}
	per := q.fits(room, i, n)
	return per - per%max(1, min(n, q.pods[i].PerNode))
}

// mayGrow is by how many machines the group may still grow in one launch.
func (q *query) mayGrow(g *Group) int {
	room := g.Max
	if !q.ideal {
		room = max(0, g.Max-g.Machines)
	}
	if g.PerLaunch > 0 {
		room = min(room, g.PerLaunch)
	}
	return room
}

// devices is the number of extended resources, such as GPUs.
func devices(r nodegroups.Resources) (n int64) {
	for name, v := range r {
		if nodegroups.Extended(name) {
			n = nodegroups.Plus(n, v)
		}
	}
	return n
}
