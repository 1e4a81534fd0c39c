package placement

import "slices"

// The tail is the partial slice of a podSet whose count is not a multiple of its slice size. Like every slice it must
// be in one domain of the level of slices; it may share that domain with whole slices. As in Kueue 0.20, each domain
// counts how many whole slices fit together with the tail, so that domains are chosen only if one of them fits the
// tail.

// noTail marks a domain that cannot take the tail.
const noTail int32 = -1

// slicesBesideTail returns how many whole slices fit together with the tail into a domain of the level of slices that
// fits the given number of pods.
func (l *levelRequest) slicesBesideTail(pods int32) int32 {
	if pods < l.tail {
		return noTail
	}
	return (pods - l.tail) / l.sliceSize
}

// slicesBeside returns how many whole slices fit together with the given leaders and tail.
func (c *counts) slicesBeside(leaders, tail int32) int32 {
	switch {
	case leaders > 0 && tail > 0:
		return c.slicesWithLeaderAndTail
	case tail > 0:
		return c.slicesWithTail
	case leaders > 0:
		return c.slicesWithLeader
	}
	return c.slices
}

// takesTail reports whether the tail fits together with this many slices and leaders.
func (c *counts) takesTail(slices, leaders int32) bool {
	n := c.slicesBeside(leaders, 1)
	return n != noTail && slices <= n
}

// cheapest is the two lowest costs among some domains.
type cheapest struct {
	costs [2]int32
	at    [2]int
	n     int
}

func (c *cheapest) add(at int, cost int32) {
	i := c.n
	for i > 0 && cost < c.costs[i-1] {
		i--
	}
	if i >= len(c.costs) {
		return
	}
	if i == 0 {
		c.costs[1], c.at[1] = c.costs[0], c.at[0]
	}
	c.costs[i], c.at[i] = cost, at
	c.n = min(c.n+1, len(c.costs))
}

// except returns the lowest cost among the other domains.
func (c *cheapest) except(at int) (cost int32, ok bool) {
	for i := range c.n {
		if c.at[i] != at {
			return c.costs[i], true
		}
	}
	return 0, false
}

// tails are the costs, in whole slices, of placing the tail, the leader, or both in one of some domains.
type tails struct {
	tail, leader, both cheapest
	n                  int
}

// add adds n equal domains.
func (t *tails) add(c *counts, leader bool, n int) {
	for range min(n, 2) { // the leader and the tail use at most two domains
		if c.slicesWithTail != noTail {
			t.tail.add(t.n, c.slices-c.slicesWithTail)
		}
		if leader {
			t.leader.add(t.n, c.slices-c.slicesWithLeader)
		}
		if leader && c.slicesWithLeaderAndTail != noTail {
			t.both.add(t.n, c.slices-c.slicesWithLeaderAndTail)
		}
		t.n++
	}
}

// costWithLeader returns the cost of placing the leader and the tail, in one domain or in two; ok is false if they do
// not fit.
func (t *tails) costWithLeader() (cost int32, ok bool) {
	cost, ok = t.both.costs[0], t.both.n > 0
	for i := range t.leader.n {
		if other, found := t.tail.except(t.leader.at[i]); found && (!ok || t.leader.costs[i]+other < cost) {
			cost, ok = t.leader.costs[i]+other, true
		}
	}
	return cost, ok
}

// costOfLeaderAndTail returns the cost, in whole slices, of placing the leader in this domain and the tail in it or in
// another domain of the list; ok is false if the tail does not fit then.
func (r *run) costOfLeaderAndTail(list *tails, at int) (cost int32, ok bool) {
	if r.slicesWithLeaderAndTail != noTail {
		cost, ok = r.slices-r.slicesWithLeaderAndTail, true
	}
	if other, found := list.tail.except(at); found && (!ok || r.slices-r.slicesWithLeader+other < cost) {
		cost, ok = r.slices-r.slicesWithLeader+other, true
	}
	return cost, ok
}

// countTail counts how many slices fit together with the tail. At the level of slices it follows from the pods; above,
// from the slices less the lowest cost among the child domains.
func (s *search) countTail(c *counts, level int, slices int32, in *tails) {
	if level == s.slice {
		c.slicesWithTail, c.slicesWithLeaderAndTail = s.slicesBesideTail(c.pods), s.slicesBesideTail(c.podsWithLeader)
		return
	}
	c.slicesWithTail, c.slicesWithLeaderAndTail = noTail, noTail
	if in.tail.n > 0 {
		c.slicesWithTail = min(slices-in.tail.costs[0], s.slicesBesideTail(c.pods))
	}
	if cost, ok := in.costWithLeader(); ok {
		c.slicesWithLeaderAndTail = min(slices-cost, s.slicesBesideTail(c.podsWithLeader))
	}
}

// bestFitWithTail returns the first run with the lowest count of slices beside the tail that is enough; ties go to the
// lowest count of slices alone. The leaders must fit, too. If there is none, it returns the first run.
func bestFitWithTail(runs []*run, needed, leaders int32) *run {
	var best *run
	for _, r := range runs {
		if n := r.slicesBeside(leaders, 1); r.n == 0 || r.leaders < leaders || n == noTail || n < needed {
			continue
		}
		if best == nil || r.slicesBeside(leaders, 1) < best.slicesBeside(leaders, 1) ||
			r.slicesBeside(leaders, 1) == best.slicesBeside(leaders, 1) && r.slicesBeside(leaders, 0) < best.slicesBeside(leaders, 0) {
			best = r
		}
	}
	if best == nil {
		return runs[0]
	}
	return best
}

// fitAllWithTail returns the domain that fits all remaining slices together with the leaders and the tail. It must not
// fit more slices than the best fit for the slices alone.
func (s *search) fitAllWithTail(runs []*run, left, leaders int32) (r *run, ok bool) {
	if runs[0].slicesBeside(leaders, 0) < left || runs[0].leaders < leaders {
		return nil, false
	}
	tailed, whole := runs[0], runs[0]
	if s.usesBestFit() {
		tailed = bestFitWithTail(runs, left, leaders)
		whole = bestFit(runs, left, leaders, func(r *run) int32 { return r.slicesBeside(leaders, 0) })
	}
	if !tailed.takesTail(left, leaders) || tailed.leaders < leaders ||
		tailed.slicesBeside(leaders, 0) > whole.slicesBeside(leaders, 0) {
		return nil, false
	}
	return tailed, true
}

// addTail adds the tail to the first allocated domain that fits it, otherwise to the first other domain.
func (s *search) addTail(taken []allocation, runs []*run) []allocation {
	for i := range taken {
		f := &taken[i]
		if !f.takesTail(f.pods/s.sliceSize, f.leaders) {
			continue
		}
		if f.n == 1 {
			f.pods += s.tail
			return taken
		}
		return append(taken, allocation{f.first(1), f.pods + s.tail, f.leaders})
	}
	for _, r := range runs {
		if r.n > 0 && r.slicesWithTail != noTail {
			return append(taken, allocation{r.first(1), s.tail, 0})
		}
	}
	return nil
}

// tailLast moves the domains of the tail to the end. Pods are assigned by rank in the order of the domains, and the
// pods of the tail have the last ranks.
func (t *Tree) tailLast(domains []Domain, level int, size int32) []Domain {
	total := int32(0)
	for _, d := range domains {
		total += d.Count
	}
	parts := t.podsPerDomain(domains, level)
	at := slices.IndexFunc(parts, func(p Domain) bool { return p.Count%size == total%size })
	if total%size == 0 || at < 0 {
		return domains
	}
	in := func(d Domain) bool { return slices.Equal(t.path(d)[:level+1], parts[at].Values) }
	return slices.Concat(slices.DeleteFunc(slices.Clone(domains), in),
		slices.DeleteFunc(slices.Clone(domains), func(d Domain) bool { return !in(d) }))
}
