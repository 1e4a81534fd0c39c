package placement

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// counts is how much fits into a domain.
type counts struct {
	// The pods and slices that fit, without a leader and beside it.
	pods, slices, podsWithLeader, slicesWithLeader int32
	// leaders is 1 if the leader fits.
	leaders int32
	// The slices that fit together with the tail, without a leader and beside it: noTail if the tail does not fit, 0
	// if there is no tail.
	slicesWithTail, slicesWithLeaderAndTail int32
}

// countGroup is the leaves of one domain with equal counts.
type countGroup struct {
	counts
	// leaves are lists of names, each sorted.
	leaves [][]string
	n      int
}

// search places one request.
type search struct {
	*Snapshot
	*Request
	levelRequest
	*shape
	leaders int32
	// pod and leader are the requests of one pod, including the resource pods.
	pod, leader nodegroups.Resources
	// domainCounts are the counts of the domains above the leaves, by level and order. leafCounts are those of the
	// leaves, by the order of their parent.
	domainCounts [][]counts
	leafCounts   [][]countGroup
	excluded     exclusions
}

// countIn returns how many of the requests fit, and the resource that limits it. Ties go to the first resource by name.
func countIn(free, requests nodegroups.Resources) (int32, corev1.ResourceName) {
	least, bound := int64(math.MaxInt32), corev1.ResourceName("")
	for name, v := range requests {
		n := int64(math.MaxInt32)
		if v != 0 {
			n = max(0, min(free[name]/v, math.MaxInt32))
		}
		if bound == "" || n < least || n == least && name < bound {
			least, bound = n, name
		}
	}
	return int32(least), bound
}

// count computes the counts of all domains, from the leaves up. The leader and the other pods may use different nodes.
func (s *search) count(suits, leads *nodeMatcher) {
	type classCounts struct {
		counts
		bound corev1.ResourceName
	}
	s.pod, s.leader = withPod(s.Pod), withPod(s.Leader)
	byClass := map[*class]classCounts{}
	countsOf := func(c *class) classCounts {
		if j, ok := byClass[c]; ok {
			return j
		}
		var j classCounts
		j.pods, j.bound = countIn(c.free, s.pod)
		j.podsWithLeader = j.pods
		if s.leaders > 0 {
			if n, _ := countIn(c.free, s.leader); n > 0 {
				left := c.free.Clone()
				left.Sub(s.leader, 1)
				j.leaders = 1
				j.podsWithLeader, _ = countIn(left, s.pod)
			}
		}
		if s.slice == s.tree.leafLevel() {
			j.slices, j.slicesWithLeader = j.pods/s.sliceSize, j.podsWithLeader/s.sliceSize
			if s.tail > 0 {
				j.slicesWithTail, j.slicesWithLeaderAndTail = s.slicesBesideTail(j.pods), s.slicesBesideTail(j.podsWithLeader)
			}
		}
		byClass[c] = j
		return j
	}
	s.leafCounts = make([][]countGroup, len(s.lowest))
	for i, b := range s.lowest {
		for _, c := range s.groupsOf(b) {
			j := countsOf(c.class)
			s.excluded.total += len(c.names)
			suited := s.matchingNodes(suits, c, &s.excluded)
			pods := s.inBoundDomain(b, suited)
			s.excluded.domain += len(suited) - len(pods)
			if j.pods == 0 && len(pods) > 0 {
				s.excluded.addResource(j.bound, len(pods))
			}
			if s.leaders == 0 {
				s.leafCounts[i] = addToGroups(s.leafCounts[i], j.counts, pods)
				continue
			}
			led := s.inBoundDomain(b, s.matchingNodes(leads, c, &exclusions{}))
			both, podsOnly, ledOnly := partition(pods, led)
			s.leafCounts[i] = addToGroups(s.leafCounts[i], j.counts, both)
			s.leafCounts[i] = addToGroups(s.leafCounts[i], counts{pods: j.pods, podsWithLeader: j.pods, slices: j.slices, slicesWithLeader: j.slices,
				slicesWithTail: j.slicesWithTail, slicesWithLeaderAndTail: j.slicesWithTail}, podsOnly)
			s.leafCounts[i] = addToGroups(s.leafCounts[i], s.noPods(counts{leaders: j.leaders}), ledOnly)
		}
	}
	s.domainCounts = make([][]counts, len(s.levels))
	for level := range s.domainCounts {
		s.domainCounts[level] = make([]counts, len(s.levels[level]))
	}
	for _, d := range s.levels[0] {
		s.countDomain(0, d)
	}
}

// noPods returns the counts of a domain that fits no pods of the podSet.
func (s *search) noPods(c counts) counts {
	if s.tail > 0 {
		c.slicesWithTail, c.slicesWithLeaderAndTail = noTail, noTail
	}
	return c
}

// addToGroups adds leaves to the group of equal counts.
func addToGroups(list []countGroup, of counts, names []string) []countGroup {
	if len(names) == 0 {
		return list
	}
	i := slices.IndexFunc(list, func(g countGroup) bool { return g.counts == of })
	if i < 0 {
		return append(list, countGroup{of, [][]string{names}, len(names)})
	}
	list[i].leaves = append(list[i].leaves, names)
	list[i].n += len(names)
	return list
}

// matchingNodes returns the nodes that match the pods. It counts the others in excluded.
func (s *search) matchingNodes(suits *nodeMatcher, c classGroup, excluded *exclusions) (names []string) {
	if suits.bySignature {
		if m := suits.checkSignature(c.signature); m.cause != none {
			excluded.add(m, len(c.names))
			return nil
		}
		return c.names
	}
	for _, name := range c.names {
		if m := suits.check(c.signature, s.tree.leaves[name].labels, name); m.cause != none {
			excluded.add(m, 1)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// partition splits two sorted lists into the names of both, of a only, and of b only.
func partition(a, b []string) (both, onlyA, onlyB []string) {
	if slices.Equal(a, b) {
		return a, nil, nil
	}
	for _, name := range a {
		if _, ok := slices.BinarySearch(b, name); ok {
			both = append(both, name)
		} else {
			onlyA = append(onlyA, name)
		}
	}
	for _, name := range b {
		if _, ok := slices.BinarySearch(a, name); !ok {
			onlyB = append(onlyB, name)
		}
	}
	return both, onlyA, onlyB
}

// inBoundDomain returns the leaves that are in the domain Request.Within.
func (s *search) inBoundDomain(b *lowestDomain, names []string) []string {
	above := min(len(s.Within), len(b.values))
	if !slices.Equal(b.values[:above], s.Within[:above]) {
		return nil
	}
	if above == len(s.Within) {
		return names
	}
	if _, ok := slices.BinarySearch(names, s.Within[above]); ok {
		return s.Within[above : above+1]
	}
	return nil
}

// countDomain computes the counts of a domain above the leaves.
func (s *search) countDomain(level int, d *domain) counts {
	var out counts
	leastPods, leastSlices := int32(math.MaxInt32), int32(math.MaxInt32)
	led := false
	var in tails
	inner := s.inner[level+1]
	if s.tree.leafLevel() == 0 {
		inner = 0
	}
	add := func(c counts, n int) {
		pods, podsLed := c.pods, c.podsWithLeader
		if inner > 0 { // groups of pods that must stay together at a lower level count as a whole
			pods, podsLed = pods/inner*inner, podsLed/inner*inner
		}
		out.pods += pods * int32(n)
		out.slices += c.slices * int32(n)
		if s.leaders == 0 || c.leaders > 0 {
			led = true
			leastPods, leastSlices = min(leastPods, pods-podsLed), min(leastSlices, c.slices-c.slicesWithLeader)
		}
		out.leaders = max(out.leaders, c.leaders)
		in.add(&c, s.leaders > 0 && c.leaders > 0, n)
	}
	for _, child := range d.children {
		add(s.countDomain(level+1, child), 1)
	}
	if d.lowest != nil {
		for _, g := range s.leafCounts[d.lowest.order] {
			add(g.counts, g.n)
		}
	}
	if led {
		out.podsWithLeader, out.slicesWithLeader = out.pods-leastPods, out.slices-leastSlices
	}
	slices := out.slices
	if d.lowest != nil && !s.tree.hosts {
		s.limitByUsage(&out, d.lowest)
	}
	if level == s.slice && s.tree.leafLevel() > 0 {
		out.slices = out.pods / s.sliceSize
		if led {
			out.slicesWithLeader = out.podsWithLeader / s.sliceSize
		} else {
			out.slicesWithLeader = 0
		}
	}
	if s.tail > 0 && level <= s.slice {
		s.countTail(&out, level, slices, &in)
	}
	s.domainCounts[level][d.order] = out
	return out
}

// limitByUsage limits the counts of a domain to its free capacity less the usage of assignments.
func (s *search) limitByUsage(c *counts, b *lowestDomain) {
	left := s.freeInDomain(b)
	most, _ := countIn(left, s.pod)
	c.pods = min(c.pods, most)
	if s.leaders > 0 {
		leaders, _ := countIn(left, s.leader)
		if c.leaders = min(c.leaders, leaders); leaders > 0 {
			left.Sub(s.leader, 1)
			most, _ = countIn(left, s.pod)
		}
	}
	c.podsWithLeader = min(max(0, c.podsWithLeader), most)
}

// run is a sequence of domains of one level with equal counts. Domains are taken from its front.
type run struct {
	counts
	n int
	// from is how many domains were already taken.
	from int
	// domain is set if the level is above the leaves; otherwise leafSets are the leaves.
	domain   *domain
	leafSets []leafSet
	// balanced is the domain if balanced placement chose it; otherwise nil.
	balanced *balancedDomain
}

// leafSet is the leaves of one domain with equal counts.
type leafSet struct {
	parent *lowestDomain
	names  [][]string
}

// first takes the next n domains off the run.
func (r *run) first(n int) *run {
	out := *r
	out.n = n
	r.from += n
	r.n -= n
	return &out
}

// leafRef is a leaf with the sort key of its values.
type leafRef struct {
	parent *lowestDomain
	name   string
}

func (a leafRef) compare(b leafRef) int {
	return cmp.Or(cmp.Compare(a.parent.order, b.parent.order), cmp.Compare(a.name, b.name))
}

// leaves returns the leaves of the run in order.
func (r *run) leaves() []leafRef {
	out := make([]leafRef, 0, r.n)
	skip := r.from
	for _, at := range r.leafSets {
		var names []string
		if len(at.names) == 1 {
			names = at.names[0]
		} else {
			names = slices.Sorted(slices.Values(slices.Concat(at.names...)))
		}
		if skip >= len(names) {
			skip -= len(names)
			continue
		}
		names = names[skip:]
		skip = 0
		for _, name := range names[:min(len(names), r.n-len(out))] {
			out = append(out, leafRef{at.parent, name})
		}
		if len(out) == r.n {
			break
		}
	}
	return out
}

// runsOf returns one run for each domain of a level above the leaves.
func (s *search) runsOf(level int, list []*domain) (out []*run) {
	for _, d := range list {
		out = append(out, &run{counts: s.domainCounts[level][d.order], n: 1, domain: d})
	}
	return out
}

// leafRuns returns the leaves of these domains as runs, in the order of the domains.
func (s *search) leafRuns(bottoms []*lowestDomain) (out []*run) {
	byCounts := map[counts]*run{}
	for _, b := range bottoms {
		for _, g := range s.leafCounts[b.order] {
			r := byCounts[g.counts]
			if r == nil {
				r = &run{counts: g.counts}
				byCounts[g.counts] = r
				out = append(out, r)
			}
			r.n += g.n
			r.leafSets = append(r.leafSets, leafSet{b, g.leaves})
		}
	}
	return out
}

// children returns the domains of the next level within the domain of the run.
func (s *search) children(level int, r *run) []*run {
	if r.balanced != nil {
		return toRuns(r.balanced.children)
	}
	if r.domain.lowest != nil {
		return s.leafRuns([]*lowestDomain{r.domain.lowest})
	}
	return s.runsOf(level+1, r.domain.children)
}

// domainsAt returns all domains of a level.
func (s *search) domainsAt(level int) []*run {
	if level == s.tree.leafLevel() {
		return s.leafRuns(s.lowest)
	}
	return s.runsOf(level, s.levels[level])
}

// sortRuns sorts runs by the comparison, then by the values of the domains. Runs of leaves that compare equal are split
// so that their leaves sort by values.
func sortRuns(runs []*run, compare func(a, b *counts) int) []*run {
	slices.SortStableFunc(runs, func(a, b *run) int {
		by := compare(&a.counts, &b.counts)
		if by == 0 && a.domain != nil && b.domain != nil {
			by = slices.Compare(a.domain.values, b.domain.values)
		}
		return by
	})
	var out []*run
	for i := 0; i < len(runs); {
		j := i + 1
		for j < len(runs) && runs[i].domain == nil && compare(&runs[i].counts, &runs[j].counts) == 0 {
			j++
		}
		if j == i+1 {
			out = append(out, runs[i])
		} else {
			out = append(out, splitRuns(runs[i:j])...)
		}
		i = j
	}
	return out
}

// splitRuns returns one run for each leaf.
func splitRuns(runs []*run) []*run {
	type single struct {
		leafRef
		counts
	}
	var all []single
	for _, r := range runs {
		for _, l := range r.leaves() {
			all = append(all, single{l, r.counts})
		}
	}
	slices.SortFunc(all, func(a, b single) int { return a.compare(b.leafRef) })
	out := make([]*run, len(all))
	for i, l := range all {
		out[i] = &run{counts: l.counts, n: 1, leafSets: []leafSet{{l.parent, [][]string{{l.name}}}}}
	}
	return out
}
