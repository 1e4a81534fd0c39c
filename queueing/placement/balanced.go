package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Balanced placement spreads pods evenly over few domains of a preferred level, so that none has only a few of them. It looks one
// level above for domains that hold all, and wants the least that one of the domains which are used there gets to be the most: the
// threshold. Domains with less room are left out; of the others the fewest are taken that hold all, with the least room together.
// Where that fails the choice is that of BestFit. It looks at every domain by itself, so it costs the number of nodes.

// branch is one domain with those in it, as balanced placement counts them: it leaves out those below the threshold.
type branch struct {
	run
	values   []string
	children []*branch
}

// balanced are the domains that balanced placement chooses, with what each is to get, and their level; ok is false where it finds none.
func (s *search) balanced() (level int, chosen []*branch, ok bool) {
	needed := s.Count / s.sliceSize
	if needed == 0 {
		return 0, nil, false
	}
	best, threshold := s.mostBalanced(needed)
	if threshold == 0 {
		return 0, nil, false
	}
	level = s.requested
	if level < s.slice {
		best = belowThem(s.fewest(best, needed, s.byEntropy))
		level++
	}
	chosen, ok = s.deal(s.fewest(best, needed, byValues), needed, threshold)
	return level, chosen, ok
}

// candidates are the domains of the requested level, by that of the level above that they are in.
func (s *search) candidates() (out [][]*branch) {
	if s.requested == 0 {
		return [][]*branch{s.branches(0, s.allOf(0))}
	}
	for _, d := range s.shape.levels[s.requested-1] {
		r := &run{n: 1, domain: d}
		out = append(out, s.branches(s.requested, s.children(s.requested-1, r)))
	}
	return out
}

// branches are the domains of the runs, each by itself.
func (s *search) branches(level int, runs []*run) (out []*branch) {
	for _, r := range runs {
		if r.domain == nil {
			for _, one := range oneByOne([]*run{r}) {
				l := one.leaves()[0]
				out = append(out, &branch{run: *one, values: append(slices.Clone(l.bottom.values), l.name)})
			}
			continue
		}
		b := &branch{run: *r, values: r.domain.values}
		b.children = s.branches(level+1, s.children(level, r))
		out = append(out, b)
	}
	slices.SortFunc(out, byValues)
	return out
}

func byValues(a, b *branch) int { return slices.Compare(a.values, b.values) }

func belowThem(list []*branch) (out []*branch) {
	for _, b := range list {
		out = append(out, b.children...)
	}
	return out
}

// mostBalanced are the candidates with the highest threshold, without what is below that; of equals those of which fewer are needed.
func (s *search) mostBalanced(needed int32) (best []*branch, threshold int32) {
	fewest := 0
	for i, candidates := range s.candidates() {
		used := candidates
		if s.requested < s.slice {
			used = belowThem(candidates)
		}
		g, fits := s.greedy(used, needed)
		if !fits {
			continue
		}
		at := needed / int32(g.count)
		if g.led != nil {
			at = min(at, g.led.slicesLed)
		}
		led := at
		if g.last != nil {
			at = min(at, g.last.slices)
			if led = at; s.leaders > 0 {
				led = min(at, g.last.slicesLed)
			}
		}
		if at < threshold {
			continue
		}
		s.prune(candidates, at)
		g, fits = s.greedy(candidates, needed)
		if !fits && led < at && led > 0 && led >= threshold {
			at, candidates = led, s.candidates()[i] // with room for the leader beside
			s.prune(candidates, at)
			g, fits = s.greedy(candidates, needed)
		}
		if fits && (at > threshold || at == threshold && g.count < fewest) {
			best, threshold, fewest = candidates, at, g.count
		}
	}
	return best, threshold
}

// greedyFit is how many domains hold all, the largest first, and the last of those that take a leader and that take none.
type greedyFit struct {
	count     int
	led, last *branch
}

func (s *search) greedy(list []*branch, needed int32) (g greedyFit, fits bool) {
	leaders := s.leaders
	rest := slices.SortedFunc(slices.Values(list), func(a, b *branch) int {
		return cmp.Or(s.compareLed(&a.counts, &b.counts), byValues(a, b))
	})
	for leaders > 0 && len(rest) > 0 && rest[0].leaders > 0 {
		g.led, rest = rest[0], rest[1:]
		g.count++
		leaders -= g.led.leaders
		needed -= g.led.slicesLed
	}
	if leaders > 0 {
		return greedyFit{}, false
	}
	slices.SortFunc(rest, func(a, b *branch) int { return cmp.Or(s.compare(&a.counts, &b.counts), byValues(a, b)) })
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

// prune leaves out what has less room than the threshold, and leaders where that is so beside one.
func (s *search) prune(list []*branch, threshold int32) {
	cut := func(b *branch) {
		if b.slices < threshold {
			b.clear(func(c *counts) { *c = counts{} })
		} else if s.leaders > 0 && b.leaders > 0 && b.slicesLed < threshold {
			b.clear(func(c *counts) { c.podsLed, c.slicesLed, c.leaders = 0, 0, 0 })
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

func (b *branch) clear(change func(*counts)) {
	change(&b.counts)
	for _, c := range b.children {
		c.clear(change)
	}
}

// recount is what a domain has room for by those in it.
func (s *search) recount(level int, b *branch) {
	if len(b.children) == 0 {
		if level == s.slice {
			b.slices, b.slicesLed = b.pods/s.sliceSize, b.podsLed/s.sliceSize
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
			leastPods, leastSlices = min(leastPods, c.pods-c.podsLed), min(leastSlices, c.slices-c.slicesLed)
		}
	}
	if led {
		out.podsLed, out.slicesLed = out.pods-leastPods, out.slices-leastSlices
	}
	if b.domain.bottom != nil && !s.tree.hosts {
		s.bound(&out, b.domain.bottom)
	}
	if level == s.slice {
		out.slices, out.slicesLed = out.pods/s.sliceSize, out.podsLed/s.sliceSize
	}
	b.counts = out
}

// entropy is how evenly the room of a domain is spread over those in it.
func (b *branch) entropy() (e float64) {
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

func (s *search) byEntropy(a, b *branch) int {
	return cmp.Or(cmp.Compare(b.leaders, a.leaders), cmp.Compare(b.slicesLed, a.slicesLed),
		cmp.Compare(b.entropy(), a.entropy()), byValues(a, b))
}

// fewest are as few domains as hold all, with the least room together; the first in the order of equal ones.
func (s *search) fewest(list []*branch, needed int32, order func(a, b *branch) int) []*branch {
	g, fits := s.greedy(list, needed)
	if !fits {
		return nil
	}
	type left struct{ leaders, pods int32 }
	inOrder := func(a, b left) int { return cmp.Or(cmp.Compare(a.leaders, b.leaders), cmp.Compare(a.pods, b.pods)) }
	// ways has by how many domains are taken what is left then, and which those are.
	ways := make([]map[left][]*branch, g.count+1)
	for i := range ways {
		ways[i] = map[left][]*branch{}
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
					note(left{before.leaders - b.leaders, before.pods - b.podsLed})
				}
				if b.slices > 0 {
					note(left{before.leaders, before.pods - b.pods})
				}
			}
		}
	}
	var out []*branch
	most := int32(math.MinInt32)
	for after, taken := range ways[g.count] {
		if after.leaders == 0 && after.pods <= 0 && after.pods > most {
			most, out = after.pods, taken
		}
	}
	return out
}

// deal gives the threshold to each domain, and what is left over to the first ones.
func (s *search) deal(list []*branch, needed, threshold int32) (out []*branch, ok bool) {
	extra := needed - int32(len(list))*threshold
	if len(list) == 0 || extra < 0 {
		return nil, false
	}
	leaders := s.leaders
	out = slices.SortedFunc(slices.Values(list), func(a, b *branch) int {
		return cmp.Or(s.compareLed(&a.counts, &b.counts), byValues(a, b))
	})
	for _, b := range out {
		more, led := int32(0), int32(0)
		switch {
		case leaders > 0:
			more, led = min(b.slicesLed-threshold, extra), 1
			leaders--
		case extra > 0:
			more = min(b.slices-threshold, extra)
		}
		slices := threshold + more
		b.counts = counts{leaders: led, slices: slices, slicesLed: slices, pods: slices * s.sliceSize, podsLed: slices*s.sliceSize - led}
		extra -= more
	}
	return out, extra <= 0 && leaders <= 0
}

// runs are the branches as those of which pods are taken.
func runs(list []*branch) (out []*run) {
	for _, b := range list {
		r := b.run
		r.branch = b
		out = append(out, &r)
	}
	return out
}
