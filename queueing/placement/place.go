package placement

import (
	"cmp"
	"math"
	"slices"
)

// Placement is the topology assignment of a request, sorted by the values of the domains.
type Placement struct {
	Pods, Leader []Domain
	// Nodes and LeaderNodes are the nodes on which the pods were counted, by name, if domains have several nodes.
	// kube-scheduler may choose others.
	Nodes, LeaderNodes []Domain
	// Fills reports whether no other placement exists: the suitable nodes fit exactly these pods and are in one
	// domain. So it does not matter which pod runs on which node.
	Fills bool
	// Reason says why the pods do not fit, in Kueue's words; empty if they do.
	Reason string
	// Best is the domain of the requested level that fits the most pods, if the request does not fit.
	Best Domain
}

// Place chooses domains for the request.
//
// It counts how much fits into each domain, from the leaves up. Then it chooses domains of the requested level, or of a
// higher level if the level is only preferred. Level by level it then narrows these down to as few domains as possible.
// Down to the level of slices it chooses among all domains of a level at once, below that within each domain
// separately.
func (v *Snapshot) Place(r *Request) Placement {
	s := &search{Snapshot: v, Request: r, shape: v.tree.domains()}
	if r.Leader != nil {
		s.leaders = 1
	}
	var reason string
	if s.levelRequest, reason = v.tree.resolve(r); reason != "" {
		return Placement{Reason: reason}
	}
	suits, reason := v.tree.matcherFor(r.Spec)
	if reason != "" {
		return Placement{Reason: reason}
	}
	leads, reason := v.tree.matcherFor(r.LeaderSpec)
	if reason != "" {
		return Placement{Reason: reason}
	}
	s.count(suits, leads)
	var chosen []*run
	level, even, balanced := 0, []*balancedDomain(nil), false
	if r.Balanced && !s.required && !s.unconstrained && s.tail == 0 {
		level, even, balanced = s.balanced()
	}
	if balanced {
		chosen = toRuns(even)
	} else if level, chosen, reason = s.chooseLevel(s.requested); reason != "" {
		return Placement{Reason: reason, Best: s.bestDomain()}
	}
	lowest := s.tree.leafLevel()
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
		var next []allocation
		for _, f := range fit {
			within := s.sorted(s.children(level, f.run))
			if size > 1 {
				for _, w := range within {
					w.slices, w.slicesWithLeader = w.pods/size, w.podsWithLeader/size
				}
			}
			next = append(next, s.take(within, f.pods, f.leaders, size, by)...)
		}
		fit = next
	}
	out := s.toPlacement(fit)
	if s.tail > 0 {
		if fit == nil {
			return Placement{Reason: "cannot place the partial slice in a single topology domain", Best: s.bestDomain()}
		}
		out.Pods = s.tree.tailLast(out.Pods, s.slice, s.sliceSize)
	}
	out.Fills = s.fills(fit)
	return out
}

// fills reports whether the chosen leaves are in one domain and no leaf fits another pod.
func (s *search) fills(fit []allocation) bool {
	if !s.tree.hosts || s.Leader != nil || len(layersOf(s.Topology)) > 0 {
		return false
	}
	room := int64(0)
	for _, r := range s.domainsAt(s.tree.leafLevel()) {
		room += int64(r.pods) * int64(r.n)
	}
	var in *lowestDomain
	for _, f := range fit {
		for _, l := range f.leaves() {
			if f.pods > 0 && in != nil && l.parent != in {
				return false
			}
			if f.pods > 0 {
				in = l.parent
			}
		}
	}
	return room == int64(s.Count)
}

// usesBestFit reports whether few large domains are chosen. Otherwise many small ones are chosen, which keeps large
// ones for the podSets that need them.
func (s *search) usesBestFit() bool { return !s.unconstrained }

// unit is what is counted when pods are assigned to domains.
type unit int

const (
	byPods unit = iota
	bySlices
)

// allocation is a run of domains with the number of pods assigned to each.
type allocation struct {
	*run
	// The pods and leaders in each domain.
	pods, leaders int32
}

// below returns the domains of the next level within the allocated ones.
func (s *search) below(level int, fit []allocation) []*run {
	var bottoms []*lowestDomain
	var out []*run
	for _, f := range fit {
		if f.domain.lowest != nil {
			bottoms = append(bottoms, f.domain.lowest)
		} else {
			out = append(out, s.children(level, f.run)...)
		}
	}
	if bottoms == nil {
		return out
	}
	slices.SortFunc(bottoms, func(a, b *lowestDomain) int { return cmp.Compare(a.order, b.order) })
	return s.leafRuns(bottoms)
}

// sorted returns runs in the order in which pods are assigned to them.
func (s *search) sorted(runs []*run) []*run {
	return sortRuns(runs, s.compare)
}

// sortedWithLeader sorts domains that fit the leader first.
func (s *search) sortedWithLeader(runs []*run) []*run {
	return sortRuns(runs, s.compareWithLeader)
}

func (s *search) compare(a, b *counts) int {
	return cmp.Or(s.bySize(a.slices, b.slices), cmp.Compare(a.pods, b.pods))
}

func (s *search) compareWithLeader(a, b *counts) int {
	return cmp.Or(-cmp.Compare(a.leaders, b.leaders), s.bySize(a.slicesWithLeader, b.slicesWithLeader),
		cmp.Compare(a.podsWithLeader, b.podsWithLeader))
}

// bySize sorts the largest first for BestFit, otherwise the smallest.
func (s *search) bySize(a, b int32) int {
	if s.usesBestFit() {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// bestFit returns the first run with the lowest count that is enough and that fits the leaders. If there is none, it
// returns the first run.
func bestFit(runs []*run, needed, leaders int32, count func(*run) int32) *run {
	best, least := 0, int32(math.MaxInt32)
	for i, r := range runs {
		if n := count(r); r.n > 0 && r.leaders >= leaders && n >= needed && n < least {
			best, least = i, n
		}
	}
	return runs[best]
}

// last takes the domain for the remaining pods: for BestFit the one with the least capacity to spare.
func (s *search) last(runs []*run, left int32, room func(*run) int32) *run {
	if s.usesBestFit() {
		return bestFit(runs, left, 0, room).first(1)
	}
	return runs[0].first(1)
}

func (r *run) podsBeside(leaders int32) int32 {
	if leaders > 0 {
		return r.podsWithLeader
	}
	return r.pods
}

// chooseLevel chooses domains of the level, or of a higher one, that fit the whole request.
func (s *search) chooseLevel(level int) (at int, chosen []*run, reason string) {
	if len(s.tree.leaves) == 0 {
		return 0, nil, "no topology domains at level: " + s.tree.levels[level] + s.tree.noDomainsReason()
	}
	needed := s.Count / s.sliceSize
	runs := s.sortedWithLeader(s.domainsAt(level))
	if len(runs) == 0 { // no leaf matches the pods
		runs = []*run{{n: 1, counts: s.noPods(counts{})}}
	}
	holds := func(r *run) bool { return r.leaders >= s.leaders && r.slicesBeside(s.leaders, s.tail) >= needed }
	top := runs[0]
	if s.usesBestFit() {
		one := bestFit(runs, needed, s.leaders, func(r *run) int32 { return r.slicesBeside(s.leaders, 0) })
		if s.tail > 0 {
			one = bestFitWithTail(runs, needed, s.leaders)
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
			return 0, nil, s.notFitMessage(level, runs[len(runs)-1].pods, s.totalSlices())
		}
	}
	switch {
	case s.required:
		return 0, nil, s.notFitMessage(level, top.slices, s.totalSlices())
	case level > 0 && !s.unconstrained:
		return s.chooseLevel(level - 1)
	}
	return s.chooseSeveral(level, runs, needed)
}

// totalSlices returns the number of slices, including a partial one.
func (s *search) totalSlices() int32 { return (s.Count + s.sliceSize - 1) / s.sliceSize }

// chooseSeveral chooses domains of the level that fit the request together. The domain of the leader comes first.
func (s *search) chooseSeveral(level int, runs []*run, needed int32) (at int, chosen []*run, reason string) {
	runs = s.leaderFirst(runs, s.Count, s.leaders, s.sliceSize, bySlices)
	left, tailed := needed, s.tail == 0
	if s.leaders > 0 {
		if runs[0].leaders == 0 {
			return 0, nil, s.notFitMessage(level, 0, s.totalSlices())
		}
		one := runs[0]
		if s.usesBestFit() && one.slicesWithLeader >= left {
			one = bestFit(runs, left, s.leaders, func(r *run) int32 { return r.slicesWithLeader })
		}
		one = one.first(1)
		chosen = append(chosen, one)
		tailed = tailed || one.takesTail(min(one.slicesWithLeader, left), s.leaders)
		left -= one.slicesWithLeader
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
		if left > 0 && r.n > 0 { // the last domain
			last := s.last(runs[i:], left, func(r *run) int32 { return r.slices })
			chosen = append(chosen, last)
			tailed = tailed || last.takesTail(min(last.slices, left), 0)
			left -= last.slices
		}
	}
	if left > 0 {
		return 0, nil, s.notFitMessage(level, needed-left, s.totalSlices())
	}
	if !tailed {
		i := slices.IndexFunc(runs, func(r *run) bool { return r.n > 0 && r.slicesWithTail != noTail })
		if i < 0 {
			return 0, nil, s.notFitMessage(level, needed, s.totalSlices())
		}
		chosen = append(chosen, runs[i].first(1))
	}
	return level, chosen, ""
}

// leaderFirst moves the first domain to the front that fits the leader and still leaves enough capacity for the other
// pods.
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
		lost, ok := r.pods-r.podsWithLeader, true
		switch {
		case by == bySlices && s.tail > 0:
			lost, ok = r.costOfLeaderAndTail(&costs, at[i])
		case by == bySlices:
			lost = r.slices - r.slicesWithLeader
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

// take assigns the pods and the leader to the domains in order. It fills each domain; for BestFit, the last one is the
// smallest that is enough.
func (s *search) take(runs []*run, count, leaders, size int32, by unit) (out []allocation) {
	runs = s.leaderFirst(runs, count, leaders, size, by)
	room, beside := func(r *run) int32 { return r.pods }, (*run).podsBeside
	left, pods, tail := count, int32(1), int32(0)
	if by == bySlices {
		room = func(r *run) int32 { return r.slices }
		beside = func(r *run, leaders int32) int32 { return r.slicesBeside(leaders, 0) }
		left, pods, tail = count/size, size, s.tail
	}
	// tailed reports whether an allocated domain has capacity for the tail.
	tailed := tail == 0
	add := func(f allocation) {
		out = append(out, f)
		tailed = tailed || f.takesTail(f.pods/size, f.leaders)
	}
	end := func() []allocation {
		if tail > 0 {
			return s.addTail(out, runs)
		}
		return out
	}
	for i, r := range runs {
		for r.n > 0 && leaders > 0 {
			if !tailed {
				if one, ok := s.fitAllWithTail(runs[i:], left, leaders); ok {
					return append(out, allocation{one.first(1), left*pods + tail, leaders})
				}
			}
			led := beside(r, leaders)
			if led == 0 && r.leaders == 0 {
				break // nothing fits here
			}
			one := r
			if s.usesBestFit() && led >= left && r.leaders >= leaders {
				one = bestFit(runs[i:], left, leaders, func(r *run) int32 { return beside(r, leaders) })
			}
			one = one.first(1)
			led = beside(one, leaders)
			if led >= left && one.leaders >= leaders {
				add(allocation{one, left * pods, leaders})
				return end()
			}
			got := allocation{one, min(led, left) * pods, min(one.leaders, leaders)}
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
			add(allocation{whole, each * pods, 0})
			left -= each * int32(whole.n)
		}
		if r.n == 0 {
			continue
		}
		if !tailed {
			if one, ok := s.fitAllWithTail(runs[i:], left, 0); ok {
				return append(out, allocation{one.first(1), left*pods + tail, 0})
			}
		}
		add(allocation{s.last(runs[i:], left, room), left * pods, 0})
		return end()
	}
	if left > 0 || leaders > 0 {
		return nil // the pods do not divide into slices
	}
	return end()
}

// toPlacement returns the allocated leaves, sorted by values.
func (s *search) toPlacement(fit []allocation) (out Placement) {
	type taken struct {
		leafRef
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
	slices.SortFunc(all, func(a, b taken) int { return a.compare(b.leafRef) })
	for _, l := range all {
		values := []string{l.name}
		if !s.tree.hosts {
			out.Nodes, out.LeaderNodes = appendPods(out.Nodes, values, l.pods), appendPods(out.LeaderNodes, values, l.leaders)
			values = l.parent.values
		}
		out.Pods, out.Leader = appendPods(out.Pods, values, l.pods), appendPods(out.Leader, values, l.leaders)
	}
	return out
}

// appendPods appends n pods in a domain, or adds them to the last element if that has the same domain.
func appendPods(list []Domain, values []string, n int32) []Domain {
	if n == 0 {
		return list
	}
	if last := len(list) - 1; last >= 0 && slices.Equal(list[last].Values, values) {
		list[last].Count += n
		return list
	}
	return append(list, Domain{values, n})
}
