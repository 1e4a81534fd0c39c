package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Balanced placement spreads pods evenly over few domains of a preferred level. For each domain of the level above that
// fits all pods, it determines the threshold: the lowest number of slices that any used domain would get. It chooses
// the parent with the highest threshold, leaves out domains below the threshold, and takes the fewest of the others
// that fit all pods with the least capacity. If that fails, BestFit chooses. It considers every domain separately, so
// the cost grows with the number of nodes.

// balancedDomain is one domain with its children and their counts after pruning those below the threshold.
type balancedDomain struct {
	run
	values   []string
	children []*balancedDomain
}

// balanced returns the domains that balanced placement chooses, with the counts of each, and their level; ok is false
// if it finds none.
func (s *search) balanced() (level int, chosen []*balancedDomain, ok bool) {
	needed := s.Count / s.sliceSize
	if needed == 0 {
		return 0, nil, false
	}
	best, threshold := s.highestThreshold(needed)
	if threshold == 0 {
		return 0, nil, false
	}
	level = s.requested
	if level < s.slice {
		best = childrenOf(s.fewestDomains(best, needed, s.byEntropy))
		level++
	}
	chosen, ok = s.distribute(s.fewestDomains(best, needed, byValues), needed, threshold)
	return level, chosen, ok
}

// candidates returns the domains of the requested level, grouped by their parent.
func (s *search) candidates() (out [][]*balancedDomain) {
	if s.requested == 0 {
		return [][]*balancedDomain{s.balancedDomains(0, s.domainsAt(0))}
	}
	for _, d := range s.levels[s.requested-1] {
		r := &run{n: 1, domain: d}
		out = append(out, s.balancedDomains(s.requested, s.children(s.requested-1, r)))
	}
	return out
}

// balancedDomains returns the domains of the runs as trees.
func (s *search) balancedDomains(level int, runs []*run) (out []*balancedDomain) {
	for _, r := range runs {
		if r.domain == nil {
			for _, one := range splitRuns([]*run{r}) {
				l := one.leaves()[0]
				out = append(out, &balancedDomain{run: *one, values: append(slices.Clone(l.parent.values), l.name)})
			}
			continue
		}
		b := &balancedDomain{run: *r, values: r.domain.values}
		b.children = s.balancedDomains(level+1, s.children(level, r))
		out = append(out, b)
	}
	slices.SortFunc(out, byValues)
	return out
}

func byValues(a, b *balancedDomain) int { return slices.Compare(a.values, b.values) }

func childrenOf(list []*balancedDomain) (out []*balancedDomain) {
	for _, b := range list {
		out = append(out, b.children...)
	}
	return out
}

// highestThreshold returns the candidates with the highest threshold, pruned; ties go to those that need fewer domains.
func (s *search) highestThreshold(needed int32) (best []*balancedDomain, threshold int32) {
	fewest := 0
	for i, candidates := range s.candidates() {
		used := candidates
		if s.requested < s.slice {
			used = childrenOf(candidates)
		}
		g, fits := s.greedy(used, needed)
		if !fits {
			continue
		}
		at := needed / int32(g.count)
		if g.withLeader != nil {
			at = min(at, g.withLeader.slicesWithLeader)
		}
		led := at
		if g.last != nil {
			at = min(at, g.last.slices)
			if led = at; s.leaders > 0 {
				led = min(at, g.last.slicesWithLeader)
			}
		}
		if at < threshold {
			continue
		}
		s.prune(candidates, at)
		g, fits = s.greedy(candidates, needed)
		if !fits && led < at && led > 0 && led >= threshold {
			at, candidates = led, s.candidates()[i] // with capacity for the leader
			s.prune(candidates, at)
			g, fits = s.greedy(candidates, needed)
		}
		if fits && (at > threshold || at == threshold && g.count < fewest) {
			best, threshold, fewest = candidates, at, g.count
		}
	}
	return best, threshold
}

// greedyFit is the number of domains that fit the request, the largest first, and the last domain with and without a
// leader.
type greedyFit struct {
	count            int
	withLeader, last *balancedDomain
}

func (s *search) greedy(list []*balancedDomain, needed int32) (g greedyFit, fits bool) {
	leaders := s.leaders
	rest := slices.SortedFunc(slices.Values(list), func(a, b *balancedDomain) int {
		return cmp.Or(s.compareWithLeader(&a.counts, &b.counts), byValues(a, b))
	})
	for leaders > 0 && len(rest) > 0 && rest[0].leaders > 0 {
		g.withLeader, rest = rest[0], rest[1:]
		g.count++
		leaders -= g.withLeader.leaders
		needed -= g.withLeader.slicesWithLeader
	}
	if leaders > 0 {
		return greedyFit{}, false
	}
	slices.SortFunc(rest, func(a, b *balancedDomain) int { return cmp.Or(s.compare(&a.counts, &b.counts), byValues(a, b)) })
	for _, b := range rest {
		if needed <= 0 || b.slices == 0 {
			break
		}
		g.last = b
		g.count++
		needed -= b.slices
	}
	return g, needed <= 0
}

// prune clears the counts of domains that have room for fewer slices than the threshold, and the leader counts of domains
// that do once a leader is placed there.
func (s *search) prune(list []*balancedDomain, threshold int32) {
	cut := func(b *balancedDomain) {
		if b.slices < threshold {
			b.clear(func(c *counts) { *c = counts{} })
		} else if s.leaders > 0 && b.leaders > 0 && b.slicesWithLeader < threshold {
			b.clear(func(c *counts) { c.podsWithLeader, c.slicesWithLeader, c.leaders = 0, 0, 0 })
		}
	}
	for _, b := range list {
		for _, c := range b.children {
			cut(c)
		}
	}
	for _, b := range list {
		s.recount(s.requested, b)
		cut(b)
	}
}

func (b *balancedDomain) clear(change func(*counts)) {
	change(&b.counts)
	for _, c := range b.children {
		c.clear(change)
	}
}

// recount computes the counts of a domain from its children.
func (s *search) recount(level int, b *balancedDomain) {
	if len(b.children) == 0 {
		if level == s.slice {
			b.slices, b.slicesWithLeader = b.pods/s.sliceSize, b.podsWithLeader/s.sliceSize
		}
		return
	}
	out := counts{}
	leastPods, leastSlices, led := int32(math.MaxInt32), int32(math.MaxInt32), false
	for _, c := range b.children {
		s.recount(level+1, c)
		out.pods, out.slices, out.leaders = out.pods+c.pods, out.slices+c.slices, max(out.leaders, c.leaders)
		if s.leaders == 0 || c.leaders > 0 {
			led = true
			leastPods, leastSlices = min(leastPods, c.pods-c.podsWithLeader), min(leastSlices, c.slices-c.slicesWithLeader)
		}
	}
	if led {
		out.podsWithLeader, out.slicesWithLeader = out.pods-leastPods, out.slices-leastSlices
	}
	if b.domain.lowest != nil && !s.tree.hosts {
		s.limitByUsage(&out, b.domain.lowest)
	}
	if level == s.slice {
		out.slices, out.slicesWithLeader = out.pods/s.sliceSize, out.podsWithLeader/s.sliceSize
	}
	b.counts = out
}

// entropy measures how evenly the capacity of a domain is spread over its children.
func (b *balancedDomain) entropy() (e float64) {
	total := 0.0
	for _, c := range b.children {
		total += float64(c.pods)
	}
	for _, c := range b.children {
		if c.pods > 0 {
			p := float64(c.pods) / total
			e += -p * math.Log2(p)
		}
	}
	return e
}

func (s *search) byEntropy(a, b *balancedDomain) int {
	return cmp.Or(cmp.Compare(b.leaders, a.leaders), cmp.Compare(b.slicesWithLeader, a.slicesWithLeader),
		cmp.Compare(b.entropy(), a.entropy()), byValues(a, b))
}

// fewestDomains returns the smallest set of domains that fits the request, with the least capacity; ties go to the
// first in the given order.
func (s *search) fewestDomains(list []*balancedDomain, needed int32, order func(a, b *balancedDomain) int) []*balancedDomain {
	g, fits := s.greedy(list, needed)
	if !fits {
		return nil
	}
	type left struct{ leaders, pods int32 }
	inOrder := func(a, b left) int { return cmp.Or(cmp.Compare(a.leaders, b.leaders), cmp.Compare(a.pods, b.pods)) }
	// ways[n] maps what remains after n domains were taken to these domains.
	ways := make([]map[left][]*balancedDomain, g.count+1)
	for i := range ways {
		ways[i] = map[left][]*balancedDomain{}
	}
	ways[0][left{s.leaders, needed * s.sliceSize}] = nil
	for _, b := range slices.SortedFunc(slices.Values(list), order) {
		for i := g.count; i > 0; i-- {
			for _, before := range slices.SortedFunc(maps.Keys(ways[i-1]), inOrder) {
				if before.leaders <= 0 && before.pods <= 0 {
					continue
				}
				taken := append(slices.Clone(ways[i-1][before]), b)
				note := func(after left) {
					if _, known := ways[i][after]; !known {
						ways[i][after] = taken
					}
				}
				if before.leaders > 0 && b.leaders > 0 {
					note(left{before.leaders - b.leaders, before.pods - b.podsWithLeader})
				}
				if b.slices > 0 {
					note(left{before.leaders, before.pods - b.pods})
				}
			}
		}
	}
	var out []*balancedDomain
	most := int32(math.MinInt32)
	for after, taken := range ways[g.count] {
		if after.leaders == 0 && after.pods <= 0 && after.pods > most {
			most, out = after.pods, taken
		}
	}
	return out
}

// distribute gives each domain the threshold, and the rest to the first domains.
func (s *search) distribute(list []*balancedDomain, needed, threshold int32) (out []*balancedDomain, ok bool) {
	extra := needed - int32(len(list))*threshold
	if len(list) == 0 || extra < 0 {
		return nil, false
	}
	leaders := s.leaders
	out = slices.SortedFunc(slices.Values(list), func(a, b *balancedDomain) int {
		return cmp.Or(s.compareWithLeader(&a.counts, &b.counts), byValues(a, b))
	})
	for _, b := range out {
		more, led := int32(0), int32(0)
		switch {
		case leaders > 0:
			more, led = min(b.slicesWithLeader-threshold, extra), 1
			leaders--
		case extra > 0:
			more = min(b.slices-threshold, extra)
		}
		slices := threshold + more
		b.counts = counts{
			leaders: led, slices: slices, slicesWithLeader: slices, pods: slices * s.sliceSize, podsWithLeader: slices*s.sliceSize - led,
		}
		extra -= more
	}
	return out, extra <= 0 && leaders <= 0
}

// toRuns wraps the domains as runs.
func toRuns(list []*balancedDomain) (out []*run) {
	for _, b := range list {
		r := b.run
		r.balanced = b
		out = append(out, &r)
	}
	return out
}
