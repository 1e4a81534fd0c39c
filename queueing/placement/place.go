package placement

import (
	"cmp"
	"math"
	"slices"
)

// Placement is where the pods of a request go, by the order of the domains' values.
type Placement struct {
	Pods, Leader []Domain
	// On and LeaderOn are the nodes that were counted for them, by name, where domains have several nodes. kube-scheduler may choose others.
	On, LeaderOn []Domain
	// Fills reports whether there is no other way: the nodes that were looked at have room for the pods and no more of them,
	// and are in one domain, so that it does not matter which pod is on which.
	Fills bool
	// Reason says why they do not fit, in Kueue's words; empty where they do.
	Reason string
	// Best is the domain of the requested level with room for the most pods, where they do not fit.
	Best Domain
}

// Place chooses domains for the request.
//
// It counts what fits in each domain, from the leaves up; chooses the domains of the requested
// level, or of one above it where that is only preferred; and goes down from them, level by level,
// to as few domains as will do. Down to the level of slices the domains of a level are chosen
// together, below it those within each domain by themselves.
func (v *View) Place(r *Request) Placement {
	s := &search{View: v, Request: r, shape: v.tree.domains()}
	if r.Leader != nil {
		s.leaders = 1
	}
	var reason string
	if s.levels, reason = v.tree.read(r); reason != "" {
		return Placement{Reason: reason}
	}
	suits, reason := v.tree.suits(r.Spec)
	if reason != "" {
		return Placement{Reason: reason}
	}
	leads, reason := v.tree.suits(r.LeaderSpec)
	if reason != "" {
		return Placement{Reason: reason}
	}
	s.count(suits, leads)
	var chosen []*run
	level, even, balanced := 0, []*branch(nil), false
	if r.Balanced && !s.required && !s.unconstrained && s.tail == 0 {
		level, even, balanced = s.balanced()
	}
	if balanced {
		chosen = runs(even)
	} else if level, chosen, reason = s.chooseLevel(s.requested); reason != "" {
		return Placement{Reason: reason, Best: s.best()}
	}
	lowest := s.tree.lowest()
	fit := s.take(chosen, s.Count, s.leaders, s.sliceSize, bySlices)
	for ; level < min(lowest, s.slice) && !balanced; level++ {
		fit = s.take(s.sorted(s.below(level, fit)), s.Count, s.leaders, s.sliceSize, bySlices)
	}
	for ; level < lowest; level++ {
		size, by := int32(1), byPods
		if level < s.slice && s.sliceSize > 1 {
			size, by = s.sliceSize, bySlices
		} else if inner := s.inner[level+1]; inner > 1 {
			size, by = inner, bySlices
		}
		var next []share
		for _, f := range fit {
			within := s.sorted(s.children(level, f.run))
			if size > 1 {
				for _, w := range within {
					w.slices, w.slicesLed = w.pods/size, w.podsLed/size
				}
			}
			next = append(next, s.take(within, f.pods, f.leaders, size, by)...)
		}
		fit = next
	}
	out := s.named(fit)
	if s.tail > 0 {
		if fit == nil {
			return Placement{Reason: "cannot place the partial slice in a single topology domain", Best: s.best()}
		}
		out.Pods = s.tree.tailLast(out.Pods, s.slice, s.sliceSize)
	}
	out.Fills = s.fills(fit)
	return out
}

// fills reports whether the leaves that were taken are in one domain, and no leaf has room for another pod.
func (s *search) fills(fit []share) bool {
	if !s.tree.hosts || s.Leader != nil || len(layersOf(s.Topology)) > 0 {
		return false
	}
	room := int64(0)
	for _, r := range s.allOf(s.tree.lowest()) {
		room += int64(r.pods) * int64(r.n)
	}
	var in *bottom
	for _, f := range fit {
		for _, l := range f.leaves() {
			if f.pods > 0 && in != nil && l.bottom != in {
				return false
			}
			if f.pods > 0 {
				in = l.bottom
			}
		}
	}
	return room == int64(s.Count)
}

// bestFit reports whether few large domains are chosen; else many small ones, so that large ones
// are left for those that need them.
func (s *search) bestFit() bool { return !s.unconstrained }

// unit is what is taken from domains.
type unit int

const (
	byPods unit = iota
	bySlices
)

// share is what is taken of each domain of a run.
type share struct {
	*run
	// pods and leaders of each.
	pods, leaders int32
}

// below are the domains of the next level within those taken.
func (s *search) below(level int, fit []share) []*run {
	var bottoms []*bottom
	var out []*run
	for _, f := range fit {
		if f.domain.bottom != nil {
			bottoms = append(bottoms, f.domain.bottom)
		} else {
			out = append(out, s.children(level, f.run)...)
		}
	}
	if bottoms == nil {
		return out
	}
	slices.SortFunc(bottoms, func(a, b *bottom) int { return cmp.Compare(a.order, b.order) })
	return s.leafRuns(bottoms)
}

// sorted are domains in the order in which pods are dealt to them.
func (s *search) sorted(runs []*run) []*run {
	return ordered(runs, s.compare)
}

// sortedLed has those first where the leader fits.
func (s *search) sortedLed(runs []*run) []*run {
	return ordered(runs, s.compareLed)
}

func (s *search) compare(a, b *counts) int {
	return cmp.Or(s.bySize(a.slices, b.slices), cmp.Compare(a.pods, b.pods))
}

func (s *search) compareLed(a, b *counts) int {
	return cmp.Or(-cmp.Compare(a.leaders, b.leaders), s.bySize(a.slicesLed, b.slicesLed), cmp.Compare(a.podsLed, b.podsLed))
}

// bySize has the largest first for BestFit, else the smallest.
func (s *search) bySize(a, b int32) int {
	if s.bestFit() {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// fitting takes the first of the domains with the least count that is enough, and where the leader
// fits if there is one. Without such a domain it takes the first.
func fitting(runs []*run, needed, leaders int32, count func(*run) int32) *run {
	best, least := 0, int32(math.MaxInt32)
	for i, r := range runs {
		if n := count(r); r.n > 0 && r.leaders >= leaders && n >= needed && n < least {
			best, least = i, n
		}
	}
	return runs[best]
}

// last is the domain that takes what is left: for BestFit the one of which least stays free.
func (s *search) last(runs []*run, left int32, room func(*run) int32) *run {
	if s.bestFit() {
		return fitting(runs, left, 0, room).first(1)
	}
	return runs[0].first(1)
}

func (r *run) podsBeside(leaders int32) int32 {
	if leaders > 0 {
		return r.podsLed
	}
	return r.pods
}

// chooseLevel chooses domains of the level, or of one above it, that have room for all.
func (s *search) chooseLevel(level int) (at int, chosen []*run, reason string) {
	if len(s.tree.leaves) == 0 {
		return 0, nil, "no topology domains at level: " + s.tree.levels[level] + s.tree.whyBare()
	}
	needed := s.Count / s.sliceSize
	runs := s.sortedLed(s.allOf(level))
	if len(runs) == 0 { // no leaf suits the pods
		runs = []*run{{n: 1, counts: s.without(counts{})}}
	}
	holds := func(r *run) bool { return r.leaders >= s.leaders && r.slicesBeside(s.leaders, s.tail) >= needed }
	top := runs[0]
	if s.bestFit() {
		one := fitting(runs, needed, s.leaders, func(r *run) int32 { return r.slicesBeside(s.leaders, 0) })
		if s.tail > 0 {
			one = fittingTail(runs, needed, s.leaders)
		}
		if holds(one) {
			return level, []*run{one.first(1)}, ""
		}
	} else {
		for _, r := range runs {
			if holds(r) {
				return level, []*run{r.first(1)}, ""
			}
		}
		if s.required {
			return 0, nil, s.notFit(level, runs[len(runs)-1].pods, s.all())
		}
	}
	switch {
	case s.required:
		return 0, nil, s.notFit(level, top.slices, s.all())
	case level > 0 && !s.unconstrained:
		return s.chooseLevel(level - 1)
	}
	return s.chooseSeveral(level, runs, needed)
}

// all returns the number of slices, including a partial one.
func (s *search) all() int32 { return (s.Count + s.sliceSize - 1) / s.sliceSize }

// chooseSeveral chooses domains of the level that have room for all together: one for the leader
// first, if there is one.
func (s *search) chooseSeveral(level int, runs []*run, needed int32) (at int, chosen []*run, reason string) {
	runs = s.leaderFirst(runs, s.Count, s.leaders, s.sliceSize, bySlices)
	left, tailed := needed, s.tail == 0
	if s.leaders > 0 {
		if runs[0].leaders == 0 {
			return 0, nil, s.notFit(level, 0, s.all())
		}
		one := runs[0]
		if s.bestFit() && one.slicesLed >= left {
			one = fitting(runs, left, s.leaders, func(r *run) int32 { return r.slicesLed })
		}
		one = one.first(1)
		chosen = append(chosen, one)
		tailed = tailed || one.takesTail(min(one.slicesLed, left), s.leaders)
		left -= one.slicesLed
		runs = s.sorted(slices.DeleteFunc(runs, func(r *run) bool { return r.n == 0 }))
	} else {
		runs = s.sorted(runs)
	}
	for i, r := range runs {
		if left <= 0 {
			break
		}
		if r.slices == 0 {
			continue
		}
		if r.slices < left {
			whole := r.first(min(r.n, int((left-1)/r.slices)))
			chosen = append(chosen, whole)
			tailed = tailed || whole.takesTail(whole.slices, 0)
			left -= whole.slices * int32(whole.n)
		}
		if left > 0 && r.n > 0 { // the last one
			last := s.last(runs[i:], left, func(r *run) int32 { return r.slices })
			chosen = append(chosen, last)
			tailed = tailed || last.takesTail(min(last.slices, left), 0)
			left -= last.slices
		}
	}
	if left > 0 {
		return 0, nil, s.notFit(level, needed-left, s.all())
	}
	if !tailed {
		i := slices.IndexFunc(runs, func(r *run) bool { return r.n > 0 && r.tailed != noTail })
		if i < 0 {
			return 0, nil, s.notFit(level, needed, s.all())
		}
		chosen = append(chosen, runs[i].first(1))
	}
	return level, chosen, ""
}

// leaderFirst moves a domain to the front where the leader fits and takes no more room than is to
// spare.
func (s *search) leaderFirst(runs []*run, count, leaders, size int32, by unit) []*run {
	if leaders == 0 {
		return runs
	}
	needed, available := count, int32(0)
	if by == bySlices {
		needed = count / size
	}
	for _, r := range runs {
		if by == bySlices {
			available += r.slices * int32(r.n)
		} else {
			available += r.pods * int32(r.n)
		}
	}
	var costs tails
	at := make([]int, len(runs))
	for i, r := range runs {
		at[i] = costs.n
		costs.add(&r.counts, false, r.n)
	}
	for i, r := range runs {
		lost, ok := r.pods-r.podsLed, true
		switch {
		case by == bySlices && s.tail > 0:
			lost, ok = r.costOfBoth(&costs, at[i])
		case by == bySlices:
			lost = r.slices - r.slicesLed
		}
		if !ok || r.n == 0 || r.leaders < leaders || available-lost < needed {
			continue
		}
		if i == 0 {
			return runs
		}
		return slices.Insert(slices.Clone(runs), 0, r.first(1))
	}
	return runs
}

// take deals so many pods, and the leader if it is among them, to the domains in their order: all of
// each that it has room for, the last one being the smallest that will do for BestFit.
func (s *search) take(runs []*run, count, leaders, size int32, by unit) (out []share) {
	runs = s.leaderFirst(runs, count, leaders, size, by)
	room, beside := func(r *run) int32 { return r.pods }, (*run).podsBeside
	left, pods, tail := count, int32(1), int32(0)
	if by == bySlices {
		room = func(r *run) int32 { return r.slices }
		beside = func(r *run, leaders int32) int32 { return r.slicesBeside(leaders, 0) }
		left, pods, tail = count/size, size, s.tail
	}
	// tailed reports whether a domain that was taken has room for the tail.
	tailed := tail == 0
	add := func(f share) {
		out = append(out, f)
		tailed = tailed || f.takesTail(f.pods/size, f.leaders)
	}
	end := func() []share {
		if tail > 0 {
			return s.withTail(out, runs)
		}
		return out
	}
	for i, r := range runs {
		for r.n > 0 && leaders > 0 {
			if !tailed {
				if one, ok := s.closing(runs[i:], left, leaders); ok {
					return append(out, share{one.first(1), left*pods + tail, leaders})
				}
			}
			led := beside(r, leaders)
			if led == 0 && r.leaders == 0 {
				break // nothing of these
			}
			one := r
			if s.bestFit() && led >= left && r.leaders >= leaders {
				one = fitting(runs[i:], left, leaders, func(r *run) int32 { return beside(r, leaders) })
			}
			one = one.first(1)
			led = beside(one, leaders)
			if led >= left && one.leaders >= leaders {
				add(share{one, left * pods, leaders})
				return end()
			}
			got := share{one, min(led, left) * pods, min(one.leaders, leaders)}
			add(got)
			leaders -= got.leaders
			left -= min(led, left)
		}
		if leaders > 0 || r.n == 0 {
			continue
		}
		each := room(r)
		if left == 0 && tailed {
			return end()
		}
		if each == 0 && left > 0 {
			continue
		}
		if each < left {
			whole := r.first(min(r.n, int((left-1)/each)))
			add(share{whole, each * pods, 0})
			left -= each * int32(whole.n)
		}
		if r.n == 0 {
			continue
		}
		if !tailed {
			if one, ok := s.closing(runs[i:], left, 0); ok {
				return append(out, share{one.first(1), left*pods + tail, 0})
			}
		}
		add(share{s.last(runs[i:], left, room), left * pods, 0})
		return end()
	}
	if left > 0 || leaders > 0 {
		return nil // pods that do not divide into slices
	}
	return end()
}

// named are the leaves that were taken, in the order of their values.
func (s *search) named(fit []share) (out Placement) {
	type taken struct {
		byName
		pods, leaders int32
	}
	var all []taken
	for _, f := range fit {
		if f.pods == 0 && f.leaders == 0 {
			continue
		}
		for _, l := range f.leaves() {
			all = append(all, taken{l, f.pods, f.leaders})
		}
	}
	slices.SortFunc(all, func(a, b taken) int { return a.compare(b.byName) })
	for _, l := range all {
		values := []string{l.name}
		if !s.tree.hosts {
			out.On, out.LeaderOn = added(out.On, values, l.pods), added(out.LeaderOn, values, l.leaders)
			values = l.bottom.values
		}
		out.Pods, out.Leader = added(out.Pods, values, l.pods), added(out.Leader, values, l.leaders)
	}
	return out
}

// added returns the list with n more pods in a domain that is the last of the list or comes after it.
func added(list []Domain, values []string, n int32) []Domain {
	if n == 0 {
		return list
	}
	if last := len(list) - 1; last >= 0 && slices.Equal(list[last].Values, values) {
		list[last].Count += n
		return list
	}
	return append(list, Domain{values, n})
}
