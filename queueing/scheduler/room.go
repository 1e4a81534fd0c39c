package scheduler

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
)

// Room is what a Workload lacks that has quota on a flavor, and no domain of its Topology with room for
// its pods.
type Room struct {
	// PodSet that has no place, of so many pods.
	PodSet kueue.PodSetReference
	Pods   int32
	// Domain of the requested level that has room for most of them; no values if none is suited.
	Domain placement.Domain
	// Short is what the pods request for which that has no room. It is nil where they may be in several
	// domains.
	Short nodegroups.Resources
	// Releases would each make room.
	Releases []Release
	// Whole is the domain with most room once no Workload has pods there, where even that is too little.
	Whole *placement.Domain
}

// Release is Workloads that would all have to end.
type Release struct {
	Leaving []Leaving
	// Domain in which all pods of the podSet would be then; nil where they would be in several.
	Domain []string
}

// Leaving is one of them.
type Leaving struct {
	*kueue.Workload
	// Pods of it in the domain of the Release, or anywhere where that is nil.
	Pods int32
	// Moves: its pods would have a place elsewhere then.
	Moves bool
}

const (
	// maxReleases bounds how many Workloads are tried as the one that makes room, mostReleases how many are told.
	maxReleases  = 64
	mostReleases = 3
)

// roomOn looks at what would make room for a Workload on a flavor; nil where its pods have a place.
func (a *assigner) roomOn(flavor kueue.ResourceFlavorReference) *Room {
	a.Chosen = nil
	for i := range a.slots {
		if !a.slots[i].has(flavor) {
			return nil
		}
		a.Chosen = append(a.Chosen, option{Flavor: flavor})
	}
	topologies := a.s.cache.Nodes.TopologyCache
	placing := a.s.cache.NewPlacing(a.w, a.admission(), nil, topologies)
	if placing == nil || !a.s.cache.Nodes.Known {
		return nil
	}
	_, reason, lack := placing.Place()
	if reason == "" {
		return nil
	}
	ps := &a.w.Object.Spec.PodSets[lack.PodSet]
	l := &lender{s: a.s, Trial: cache.Trial{Cache: a.s.cache, Placing: placing}, tree: topologies.Tree(flavor), podSet: lack.PodSet,
		best: lack.Best.Values}
	out := &Room{PodSet: ps.Name, Pods: lack.Count, Domain: lack.Best}
	if r := ps.TopologyRequest; r != nil && r.Required != nil {
		l.depth = slices.Index(cache.Levels(a.s.cache.TopologyOf(flavor)), *r.Required) + 1
		out.Short = nodegroups.Resources{}
		out.Short.Add(lack.Pod, max(0, int(lack.Count-lack.Best.Count)))
	}
	if empty, ok := placing.PlaceEmpty(); !ok {
		out.Whole = &empty.Best
		return out
	}
	out.Releases = l.releases(a.w)
	return out
}

// lender tries which Workloads would make room.
type lender struct {
	cache.Trial
	s      *Cycle
	tree   *placement.Tree
	podSet int
	// depth is how many levels those are that all pods have to have in common; 0 where they may be in several domains.
	depth int
	// best is the domain with most room.
	best []string
}

// releases are the Workloads of which one is enough; else those of the best domain that are enough together.
func (l *lender) releases(w *cache.Workload) (out []Release) {
	var all []*cache.Workload
	for _, other := range cache.ByName(l.s.cache.Workloads) {
		if other != w && l.podsIn(other, nil) > 0 {
			all = append(all, other)
		}
	}
	slices.SortStableFunc(all, func(a, b *cache.Workload) int {
		return cmp.Or(cmp.Compare(l.podsIn(b, l.best), l.podsIn(a, l.best)), cmp.Compare(l.podsIn(b, nil), l.podsIn(a, nil)))
	})
	all = all[:min(maxReleases, len(all))]
	for _, one := range all {
		if r := l.without([]*cache.Workload{one}); r != nil {
			out = append(out, *r)
		}
		if len(out) == mostReleases {
			return out
		}
	}
	if len(out) > 0 || len(l.best) == 0 {
		return out
	}
	there := slices.DeleteFunc(all, func(x *cache.Workload) bool { return l.podsIn(x, l.best) == 0 })
	if l.without(there) == nil {
		return nil
	}
	// Those with the fewest pods there are the first that need not end.
	for i := len(there) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(there), i, i+1); l.without(fewer) != nil {
			there = fewer
		}
	}
	return []Release{*l.without(there)}
}

// without these Workloads; nil where the pods have no place even then.
func (l *lender) without(leaving []*cache.Workload) *Release {
	for _, x := range leaving {
		l.Remove(x.Object.UID)
		defer l.PutBack(x.Object.UID)
	}
	placed, reason, _ := l.Place()
	if reason != "" {
		return nil
	}
	out := &Release{}
	for _, p := range placed {
		if p.PodSet == l.podSet && l.depth > 0 {
			out.Domain = l.tree.Path(p.Domains[0])[:l.depth]
		}
	}
	topologies := l.s.cache.Nodes.TopologyCache
	topologies.AddUsage(cache.Uses(placed), 1)
	defer topologies.AddUsage(cache.Uses(placed), -1)
	for _, x := range leaving {
		moving := l.s.cache.NewPlacing(x, x.Object.Status.Admission, x.Object.Status.AdmissionChecks, topologies)
		moves := false
		if moving != nil && len(leaving) == 1 {
			_, reason, _ := moving.Place()
			moves = reason == ""
		}
		out.Leaving = append(out.Leaving, Leaving{x.Object, l.podsIn(x, out.Domain), moves})
	}
	return out
}

// podsIn a domain of the tree are those of a Workload; of all domains where it has no values.
func (l *lender) podsIn(w *cache.Workload, domain []string) (n int32) {
	for _, u := range w.Uses {
		for _, d := range u.Domains {
			if path := l.tree.Path(d); len(path) > 0 && slices.Equal(path[:min(len(path), len(domain))], domain) {
				n += d.Count
			}
		}
	}
	return n
}
