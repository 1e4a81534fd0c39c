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

// query is one question to the planner: the demand of the podSets, and the nodes and groups that could serve it, by region. It is built
// once and then only read.
type query struct {
	*Snapshot
	gang   *state.Gang
	policy state.Policy
	pods   []*fit.Pod
	// ideal assumes that all groups and nodes are empty and willing. patient ignores backoffs.
	ideal, patient bool
	// runs is how long the gang runs at most; zero if unknown. starts is how late it may start, since it waits for launched machines.
	// ending reports that some node may end while it runs.
	runs, starts time.Duration
	ending       bool

	// dims are the resources that the gang requests; vectors follow their order.
	dims  []corev1.ResourceName
	needs []vector
	// regions in the order of their names. The whole gang is placed in one of them, within domains of it.
	regions []*region
	// single nodes are not visited by class.
	single map[string]bool
	// apart reports whether all nodes are single, since pods of the gang restrict each other. gather are the topologies within a domain
	// that require some pods to stay together.
	apart    bool
	gather   []string
	repelled repelled
	// withheld are the reasons that keep pods off the first nodes with room for them; nil for none.
	withheld []Reason
}

// vector is an amount of each resource that the gang requests.
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

// times returns how often need fits, at most limit.
func (v vector) times(need vector, limit int) int {
	n := int64(limit)
	for i, need := range need {
		if need > 0 {
			n = min(n, v[i]/need)
		}
	}
	return int(max(0, n))
}

// less returns v without n times need.
func (v vector) less(need vector, n int) vector {
	out := slices.Clone(v)
	for i := range out {
		out[i] = nodegroups.Plus(out[i], -nodegroups.Times(need[i], int64(n)))
	}
	return out
}

// region is an area that may contain the whole gang, such as a zone.
type region struct {
	name string
	// sources in the order of their classes.
	sources []source
	// offers in the order of the names of their groups.
	offers []offer
	// domains caches the domains of the region.
	domains map[domainKey][]*domain
	// near is the domain that holds the gang's pods together, as labels; empty for none.
	near string
}

// source is a number of equal nodes.
type source struct {
	// class is the class of the nodes, and node the node of a source with only one. nodes are the nodes of the class that are in the
	// source; nil stands for all nodes of the class that are in no other source.
	class *nodeset.Class
	node  *state.Node
	nodes []*state.Node
	group string
	count int
	room  space
	// devices is the number of free devices on a node, including those that the gang does not request.
	devices int64
	takes   podSets
	// own nodes have been booked or launched for the gang already.
	own bool
}

// offer is a group that may launch machines for the gang.
type offer struct {
	*Group
	// rank is the preference of the group's capacity type in the policy; 0 is the most preferred.
	rank  int
	room  space
	takes podSets
	// level is the level of the domain that the cloud chooses for the gang; empty for none.
	level string
}

// chance returns the chance that the cloud makes n machines of the offer as the gang needs them.
func (o *offer) chance(n int, now time.Time) int { return o.Chance(n, o.level, now) }

// podSets is a set of podSets by their index: those that may run on a node, for
// example. A request has at most 32.
type podSets uint64

func (s podSets) has(i int) bool { return s&(1<<i) != 0 }

// newQuery reads the snapshot for a gang. Nodes are visited by class, except for the few nodes that the gang refers to.
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

// keys returns the labels that distinguish nodes for this gang.
func (q *query) keys() (keys []string) {
	for _, p := range q.pods {
		keys = append(keys, p.Keys()...)
	}
	if q.policy.Topology != "" {
		keys = append(keys, q.policy.Topology)
	}
	return keys
}

// levels returns the node labels of the domains that contain pods.
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
	for i, within := range q.bounds() {
		clear(regions) // a node without a zone, or with an empty value, has the same name as in the other set of labels
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
		if i > 0 {
			for _, r := range regions {
				r.near = r.labels(q.gather)
			}
		}
	}
	slices.SortStableFunc(q.regions, func(a, b *region) int { return strings.Compare(a.name, b.name) })
}

// singles are the nodes that the gang refers to by name. They are visited one by one and not by class.
type singles struct {
	// own nodes have been booked or launched for the gang.
	own []*state.Node
	// named nodes are named by a podSet, or have the label of another request with the same key.
	named []*state.Node
	// of is the number of single nodes of each class. exceptions are the other nodes of a class that differ from the rest.
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
	} else if claimable != nil {
		for i := range n.Bookings {
			if b := &n.Bookings[i]; b.UID != q.gang.UID {
				claimable = claimable.Less(b.Remaining)
			}
		}
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

// addClasses adds the nodes by class. An ideal query assumes that the nodes of a group have not been launched yet. If the topology of the
// group's new machines is unknown, the nodes stay.
func (q *query) addClasses(in func(string) *region, within []string, singles *singles) {
	// What is true of a kind is true of all its classes.
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
	// The index of each of the gang's resources in the amounts of classes.
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

// labels returns the labels with these keys that all nodes and offers of the region share; empty if they lack one.
func (r *region) labels(keys []string) string {
	out := make([]string, len(keys))
	for i, key := range keys {
		value := ""
		if len(r.sources) > 0 {
			value = r.sources[0].label(key)
		} else {
			value = r.offers[0].Labels[key]
		}
		if value == "" {
			return ""
		}
		out[i] = key + "=" + value
	}
	return strings.Join(out, ", ")
}

// add adds nodes if any of them may run pods.
func (r *region) add(src source) {
	if src.takes != 0 && src.count > 0 {
		r.sources = append(r.sources, src)
	}
}

func (q *query) addOffers(in func(string) *region, within []string) {
	for k := range q.Groups {
		g := &q.Groups[k]
		rank, ok := q.capacityTypeRank(g)
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

// bounds returns the sets of labels that define regions: the gang is placed within one value of each label of a set. The first set is the
// zone. The second one adds the domain that holds the gang's pods together.
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

// regionOf returns the region of nodes with these labels. ok is false for nodes outside of every domain. Nodes without a zone have a zone
// of their own.
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

// countsAsNew reports whether the nodes of the group are replaced by its offer.
func (q *query) countsAsNew(group string) bool {
	g := q.FindGroup(group)
	if g == nil || q.policy.Class != state.AtomicScaleUp {
		return false
	}
	_, ok := regionOf(slices.Concat(q.bounds()[0], q.levels()), g.Labels)
	return ok
}

// capacityTypeRank returns the rank of the group's capacity type in the policy; 0 is the most preferred. ok is false if the policy does
// not allow it.
func (q *query) capacityTypeRank(g *Group) (rank int, ok bool) {
	rank = slices.Index(q.policy.CapacityTypes, g.CapacityType)
	return rank, rank >= 0
}

// allowsGroup reports whether the policy lets the gang use nodes of the group. Nodes without a group, or of a deleted one, may be used.
func (q *query) allowsGroup(name string) bool {
	g := q.FindGroup(name)
	if g == nil {
		return true
	}
	_, ok := q.capacityTypeRank(g)
	return ok
}

// ends reports whether a machine that ends at that time would end a gang that may run until then. An ideal query ignores the end.
func (q *query) ends(at, until time.Time) bool {
	return !q.ideal && q.runs > 0 && !at.IsZero() && at.Before(until)
}

// nodeEnds reports whether the end of a node of the group would stop the gang. The gang's own nodes stay usable, however late its pods
// arrive.
func (q *query) nodeEnds(group string, at time.Time) bool {
	if g := q.FindGroup(group); g != nil {
		at = when.Earliest(at, g.EndsAt)
	}
	q.ending = q.ending || q.runs > 0 && !at.IsZero()
	return q.ends(at, q.Now.Add(q.starts+q.runs))
}

// launchedUntil returns how long the gang may run on machines of the group that are launched now.
func (q *query) launchedUntil(g *Group) time.Time {
	return q.Now.Add(g.QueueTimeout + g.JoinTimeout + q.runs)
}

// launchedEnd returns when the cloud ends machines of the group that are launched now and wait in the cloud's queue as long as possible;
// zero for never.
func (q *query) launchedEnd(g *Group) time.Time {
	if g.Lifetime == 0 {
		return g.EndsAt
	}
	return when.Earliest(g.EndsAt, q.Now.Add(g.QueueTimeout+g.Lifetime))
}

// blocked returns until when and why the group may not launch n machines; zero if it may.
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
		// The message has no time, which would differ in each plan.
		return q.Now.Add(listedAgain), "its cloud does not list its machines (condition Listed), so nothing is launched there until it does"
	}
	return time.Time{}, ""
}

// listedAgain is the interval between two plans for a group whose cloud does not list its machines.
const listedAgain = time.Minute

// usable returns what pods can use of a new machine of the group. An ideal query uses the template: nodes that offer less may be repaired.
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

// perMachine returns how many of n pods of the podSet fit on an empty machine. Pods that must share a node are not divided.
func (q *query) perMachine(room space, i, n int) int {
	if len(q.pods[i].Ports) > 0 {
		n = min(n, 1)
	}
	per := q.fits(room, i, n)
	return per - per%max(1, min(n, q.pods[i].PerNode))
}

// mayGrow returns how many machines one launch may add to the group.
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
