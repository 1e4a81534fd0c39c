package placement

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// counts is what a domain has room for.
type counts struct {
	// pods and slices that fit without the leader, and those that fit beside it.
	pods, slices, podsLed, slicesLed int32
	// leaders is 1 where the leader fits.
	leaders int32
	// tailed and tailedLed are the slices that fit together with the tail; noTail if it does not fit. They are 0 without a tail.
	tailed, tailedLed int32
}

// group is the leaves of one bottom that have the same counts.
type group struct {
	counts
	// leaves by their names, each list in order.
	leaves [][]string
	n      int
}

// search places one request.
type search struct {
	*View
	*Request
	levels
	*shape
	leaders int32
	// pod and leader are the requests of one of them, with the resource pods.
	pod, leader nodegroups.Resources
	// above has the counts of the domains above the leaves, by level and order; groups those of the
	// leaves, by the order of their bottom.
	above    [][]counts
	groups   [][]group
	excluded exclusions
}

// times says how often the pods fit, and which resource bounds that: the first by name among equals.
func times(room, requests nodegroups.Resources) (int32, corev1.ResourceName) {
	least, bound := int64(math.MaxInt32), corev1.ResourceName("")
	for name, v := range requests {
		n := int64(math.MaxInt32)
		if v != 0 {
			n = max(0, min(room[name]/v, math.MaxInt32))
		}
		if bound == "" || n < least || n == least && name < bound {
			least, bound = n, name
		}
	}
	return int32(least), bound
}

// count says what each domain has room for, from the leaves up. The nodes of a leader need not suit the other pods, nor
// theirs the leader.
func (s *search) count(suits, leads *suits) {
	type judged struct {
		counts
		bound corev1.ResourceName
	}
	s.pod, s.leader = withPod(s.Pod), withPod(s.Leader)
	byClass := map[*class]judged{}
	room := func(c *class) judged {
		if j, ok := byClass[c]; ok {
			return j
		}
		var j judged
		j.pods, j.bound = times(c.room, s.pod)
		j.podsLed = j.pods
		if s.leaders > 0 {
			if n, _ := times(c.room, s.leader); n > 0 {
				left := c.room.Clone()
				left.Sub(s.leader, 1)
				j.leaders = 1
				j.podsLed, _ = times(left, s.pod)
			}
		}
		if s.slice == s.tree.lowest() {
			j.slices, j.slicesLed = j.pods/s.sliceSize, j.podsLed/s.sliceSize
			if s.tail > 0 {
				j.tailed, j.tailedLed = s.besideTail(j.pods), s.besideTail(j.podsLed)
			}
		}
		byClass[c] = j
		return j
	}
	s.groups = make([][]group, len(s.bottoms))
	for i, b := range s.bottoms {
		for _, c := range s.cellsOf(b) {
			j := room(c.class)
			s.excluded.total += len(c.names)
			suited := s.suited(suits, c, &s.excluded)
			pods := s.within(b, suited)
			s.excluded.domain += len(suited) - len(pods)
			if j.pods == 0 && len(pods) > 0 {
				s.excluded.short(j.bound, len(pods))
			}
			if s.leaders == 0 {
				s.groups[i] = merged(s.groups[i], j.counts, pods)
				continue
			}
			led := s.within(b, s.suited(leads, c, &exclusions{}))
			both, podsOnly, ledOnly := divided(pods, led)
			s.groups[i] = merged(s.groups[i], j.counts, both)
			s.groups[i] = merged(s.groups[i], counts{pods: j.pods, podsLed: j.pods, slices: j.slices, slicesLed: j.slices,
				tailed: j.tailed, tailedLed: j.tailed}, podsOnly)
			s.groups[i] = merged(s.groups[i], s.without(counts{leaders: j.leaders}), ledOnly)
		}
	}
	s.above = make([][]counts, len(s.shape.levels))
	for level := range s.above {
		s.above[level] = make([]counts, len(s.shape.levels[level]))
	}
	for _, d := range s.shape.levels[0] {
		s.sum(0, d)
	}
}

// without returns the counts of a domain that takes no pods of the podSet.
func (s *search) without(c counts) counts {
	if s.tail > 0 {
		c.tailed, c.tailedLed = noTail, noTail
	}
	return c
}

// merged is the groups with leaves of these counts.
func merged(list []group, of counts, names []string) []group {
	if len(names) == 0 {
		return list
	}
	i := slices.IndexFunc(list, func(g group) bool { return g.counts == of })
	if i < 0 {
		return append(list, group{of, [][]string{names}, len(names)})
	}
	list[i].leaves = append(list[i].leaves, names)
	list[i].n += len(names)
	return list
}

// suited are the names of the nodes that take the pods, and counts those that do not.
func (s *search) suited(suits *suits, c cell, excluded *exclusions) (names []string) {
	if suits.known {
		if m := suits.ofKind(c.kind); m.cause != none {
			excluded.add(m, len(c.names))
			return nil
		}
		return c.names
	}
	for _, name := range c.names {
		if m := suits.judge(c.kind, s.tree.leaves[name].labels, name); m.cause != none {
			excluded.add(m, 1)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// divided are the names that are in both lists, and in one of them alone. The lists are in order.
func divided(a, b []string) (both, onlyA, onlyB []string) {
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

// within are those of the leaves that are in the domain that the request is bound to.
func (s *search) within(b *bottom, names []string) []string {
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

// sum is what a domain above the leaves has room for.
func (s *search) sum(level int, d *domain) counts {
	var out counts
	leastPods, leastSlices := int32(math.MaxInt32), int32(math.MaxInt32)
	led := false
	var in tails
	inner := s.inner[level+1]
	if s.tree.lowest() == 0 {
		inner = 0
	}
	add := func(c counts, n int) {
		pods, podsLed := c.pods, c.podsLed
		if inner > 0 { // pods that must stay together below count in whole groups
			pods, podsLed = pods/inner*inner, podsLed/inner*inner
		}
		out.pods += pods * int32(n)
		out.slices += c.slices * int32(n)
		if s.leaders == 0 || c.leaders > 0 {
			led = true
			leastPods, leastSlices = min(leastPods, pods-podsLed), min(leastSlices, c.slices-c.slicesLed)
		}
		out.leaders = max(out.leaders, c.leaders)
		in.add(&c, s.leaders > 0 && c.leaders > 0, n)
	}
	for _, child := range d.children {
		add(s.sum(level+1, child), 1)
	}
	if d.bottom != nil {
		for _, g := range s.groups[d.bottom.order] {
			add(g.counts, g.n)
		}
	}
	if led {
		out.podsLed, out.slicesLed = out.pods-leastPods, out.slices-leastSlices
	}
	slices := out.slices
	if d.bottom != nil && !s.tree.hosts {
		s.bound(&out, d.bottom)
	}
	if level == s.slice && s.tree.lowest() > 0 {
		out.slices = out.pods / s.sliceSize
		if led {
			out.slicesLed = out.podsLed / s.sliceSize
		} else {
			out.slicesLed = 0
		}
	}
	if s.tail > 0 && level <= s.slice {
		s.countTail(&out, level, slices, &in)
	}
	s.above[level][d.order] = out
	return out
}

// bound limits the counts of a domain's nodes to what the usage of assignments leaves of the domain.
func (s *search) bound(c *counts, b *bottom) {
	left := s.left(b)
	most, _ := times(left, s.pod)
	c.pods = min(c.pods, most)
	if s.leaders > 0 {
		leaders, _ := times(left, s.leader)
		if c.leaders = min(c.leaders, leaders); leaders > 0 {
			left.Sub(s.leader, 1)
			most, _ = times(left, s.pod)
		}
	}
	c.podsLed = min(max(0, c.podsLed), most)
}

// run is a number of domains of one level with the same counts, in their order. Domains are taken
// from its front.
type run struct {
	counts
	n int
	// from is how many of them were taken before.
	from int
	// domain is the one of a level above the leaves; else the leaves are those of at.
	domain *domain
	at     []leavesAt
	// branch is the domain where balanced placement has chosen it; else nil.
	branch *branch
}

// leavesAt are leaves of one bottom with the same counts.
type leavesAt struct {
	bottom *bottom
	names  [][]string
}

// first are the next n domains of the run, which it has no longer.
func (r *run) first(n int) *run {
	out := *r
	out.n = n
	r.from += n
	r.n -= n
	return &out
}

// byName is a leaf with its place in the order of values.
type byName struct {
	bottom *bottom
	name   string
}

func (a byName) compare(b byName) int {
	return cmp.Or(cmp.Compare(a.bottom.order, b.bottom.order), cmp.Compare(a.name, b.name))
}

// leaves of the run, in their order.
func (r *run) leaves() []byName {
	out := make([]byName, 0, r.n)
	skip := r.from
	for _, at := range r.at {
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
			out = append(out, byName{at.bottom, name})
		}
		if len(out) == r.n {
			break
		}
	}
	return out
}

// runsOf are the domains of a level above the leaves.
func (s *search) runsOf(level int, list []*domain) (out []*run) {
	for _, d := range list {
		out = append(out, &run{counts: s.above[level][d.order], n: 1, domain: d})
	}
	return out
}

// leafRuns are the leaves of these bottoms, in the order of the bottoms.
func (s *search) leafRuns(bottoms []*bottom) (out []*run) {
	byCounts := map[counts]*run{}
	for _, b := range bottoms {
		for _, g := range s.groups[b.order] {
			r := byCounts[g.counts]
			if r == nil {
				r = &run{counts: g.counts}
				byCounts[g.counts] = r
				out = append(out, r)
			}
			r.n += g.n
			r.at = append(r.at, leavesAt{b, g.leaves})
		}
	}
	return out
}

// children are the domains of the next level within that of the run.
func (s *search) children(level int, r *run) []*run {
	if r.branch != nil {
		return runs(r.branch.children)
	}
	if r.domain.bottom != nil {
		return s.leafRuns([]*bottom{r.domain.bottom})
	}
	return s.runsOf(level+1, r.domain.children)
}

// allOf are all domains of a level.
func (s *search) allOf(level int) []*run {
	if level == s.tree.lowest() {
		return s.leafRuns(s.bottoms)
	}
	return s.runsOf(level, s.shape.levels[level])
}

// ordered sorts runs by the comparison, then by the order of values. Where leaves of two runs compare
// alike, they are told apart one by one.
func ordered(runs []*run, compare func(a, b *counts) int) []*run {
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
			out = append(out, oneByOne(runs[i:j])...)
		}
		i = j
	}
	return out
}

// oneByOne are the leaves of the runs, a run each.
func oneByOne(runs []*run) []*run {
	type single struct {
		byName
		counts
	}
	var all []single
	for _, r := range runs {
		for _, l := range r.leaves() {
			all = append(all, single{l, r.counts})
		}
	}
	slices.SortFunc(all, func(a, b single) int { return a.compare(b.byName) })
	out := make([]*run, len(all))
	for i, l := range all {
		out[i] = &run{counts: l.counts, n: 1, at: []leavesAt{{l.bottom, [][]string{{l.name}}}}}
	}
	return out
}
