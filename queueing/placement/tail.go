package placement

import "slices"

// The tail is the partial slice of a podSet whose count is not a multiple of its slice size. Like every slice it has to be in one domain of
// the level of slices; it may share that domain with whole slices. As in Kueue 0.20, each domain counts how many whole slices it takes
// together with the tail, so that domains are chosen only if the tail fits into one of them.

// noTail marks a domain that cannot take the tail.
const noTail int32 = -1

// besideTail returns how many whole slices fit together with the tail into a domain of the level of slices with room for these pods.
func (l *levels) besideTail(pods int32) int32 {
	if pods < l.tail {
		return noTail
	}
	return (pods - l.tail) / l.sliceSize
}

// slicesBeside returns how many whole slices fit, together with the leader and the tail if their number is not zero.
func (c *counts) slicesBeside(leaders, tail int32) int32 {
	switch {
	case leaders > 0 && tail > 0:
		return c.tailedLed
	case tail > 0:
		return c.tailed
	case leaders > 0:
		return c.slicesLed
	}
	return c.slices
}

// takesTail reports whether the tail fits together with so many slices and leaders.
func (c *counts) takesTail(slices, leaders int32) bool {
	n := c.slicesBeside(leaders, 1)
	return n != noTail && slices <= n
}

// cheapest are the two lowest costs among some domains.
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

// tails are the costs, in whole slices, of one domain among some taking the tail, the leader, or both.
type tails struct {
	tail, leader, both cheapest
	n                  int
}

// add takes in n equal domains.
func (t *tails) add(c *counts, leader bool, n int) {
	for range min(n, 2) { // the leader and the tail take two at most
		if c.tailed != noTail {
			t.tail.add(t.n, c.slices-c.tailed)
		}
		if leader {
			t.leader.add(t.n, c.slices-c.slicesLed)
		}
		if leader && c.tailedLed != noTail {
			t.both.add(t.n, c.slices-c.tailedLed)
		}
		t.n++
	}
}

// led returns the cost of taking the leader and the tail, in one domain or in two; ok is false if they do not fit.
func (t *tails) led() (cost int32, ok bool) {
	cost, ok = t.both.costs[0], t.both.n > 0
	for i := range t.leader.n {
		if other, found := t.tail.except(t.leader.at[i]); found && (!ok || t.leader.costs[i]+other < cost) {
			cost, ok = t.leader.costs[i]+other, true
		}
	}
	return cost, ok
}

// costOfBoth returns the cost, in whole slices, of the leader in this domain and the tail in it or in another one of the list; ok is false
// if the tail does not fit then.
func (r *run) costOfBoth(list *tails, at int) (cost int32, ok bool) {
	if r.tailedLed != noTail {
		cost, ok = r.slices-r.tailedLed, true
	}
	if other, found := list.tail.except(at); found && (!ok || r.slices-r.slicesLed+other < cost) {
		cost, ok = r.slices-r.slicesLed+other, true
	}
	return cost, ok
}

// countTail counts what a domain takes together with the tail. At the level of slices this follows from its pods; above, from its slices
// less the lowest cost among the domains within it.
func (s *search) countTail(c *counts, level int, slices int32, in *tails) {
	if level == s.slice {
		c.tailed, c.tailedLed = s.besideTail(c.pods), s.besideTail(c.podsLed)
		return
	}
	c.tailed, c.tailedLed = noTail, noTail
	if in.tail.n > 0 {
		c.tailed = min(slices-in.tail.costs[0], s.besideTail(c.pods))
	}
	if cost, ok := in.led(); ok {
		c.tailedLed = min(slices-cost, s.besideTail(c.podsLed))
	}
}

// fittingTail returns the domain with the least room for slices together with the tail that is enough, and among equals the one with the
// least room for slices alone. The leaders have to fit, too. Without such a domain it returns the first.
func fittingTail(runs []*run, needed, leaders int32) *run {
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

// closing returns the domain that takes all remaining slices together with the leaders and the tail. It may not have room for more slices
// than the domain that fits the slices alone.
func (s *search) closing(runs []*run, left, leaders int32) (r *run, ok bool) {
	if runs[0].slicesBeside(leaders, 0) < left || runs[0].leaders < leaders {
		return nil, false
	}
	tailed, whole := runs[0], runs[0]
	if s.bestFit() {
		tailed = fittingTail(runs, left, leaders)
		whole = fitting(runs, left, leaders, func(r *run) int32 { return r.slicesBeside(leaders, 0) })
	}
	if !tailed.takesTail(left, leaders) || tailed.leaders < leaders ||
		tailed.slicesBeside(leaders, 0) > whole.slicesBeside(leaders, 0) {
		return nil, false
	}
	return tailed, true
}

// withTail adds the tail to the first taken domain that has room for it, otherwise to the first other domain.
func (s *search) withTail(taken []share, runs []*run) []share {
	for i := range taken {
		f := &taken[i]
		if !f.takesTail(f.pods/s.sliceSize, f.leaders) {
			continue
		}
		if f.n == 1 {
			f.pods += s.tail
			return taken
		}
		return append(taken, share{f.first(1), f.pods + s.tail, f.leaders})
	}
	for _, r := range runs {
		if r.n > 0 && r.tailed != noTail {
			return append(taken, share{r.first(1), s.tail, 0})
		}
	}
	return nil
}

// tailLast moves the domains of the tail to the end. Pods get their places by their ranks in the order of the domains, and the tail has the
// last ranks.
func (t *Tree) tailLast(domains []Domain, level int, size int32) []Domain {
	total := int32(0)
	for _, d := range domains {
		total += d.Count
	}
	parts := t.parts(domains, level)
	at := slices.IndexFunc(parts, func(p Domain) bool { return p.Count%size == total%size })
	if total%size == 0 || at < 0 {
		return domains
	}
	in := func(d Domain) bool { return slices.Equal(t.path(d)[:level+1], parts[at].Values) }
	return slices.Concat(slices.DeleteFunc(slices.Clone(domains), in),
		slices.DeleteFunc(slices.Clone(domains), func(d Domain) bool { return !in(d) }))
}
