package scheduler

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/placement"
)

// TopologyShortage is what a Workload with quota on a flavor lacks in the domains of its Topology.
type TopologyShortage struct {
	// PodSet that cannot be placed, with Pods pods.
	PodSet kueue.PodSetReference
	Pods   int32
	// Domain of the requested level that fits the most pods; without values if the flavor has no nodes.
	Domain placement.Domain
	// Short is the request of the pods that do not fit there. It is nil if the pods may be in several domains.
	Short nodegroups.Resources
	// Releases are alternatives; each would make the podSet fit.
	Releases []Release
	// EmptyBest is the best domain without any Workload, if even that is too small.
	EmptyBest *placement.Domain
}

// Release is a set of Workloads that would all have to end.
type Release struct {
	Workloads []ReleasedWorkload
	// Domain that would contain all pods of the podSet; nil if they would be in several.
	Domain []string
}

// ReleasedWorkload is one of the Workloads of a Release.
type ReleasedWorkload struct {
	*kueue.Workload
	// Pods of it in the domain of the Release, or in all domains if that is nil.
	Pods int32
	// Moves: its pods would then fit elsewhere.
	Moves bool
}

const (
	// maxReleases bounds how many Workloads are tried, mostReleases how many are reported.
	maxReleases  = 64
	mostReleases = 3
)

// topologyShortage returns what would make a Workload fit on a flavor; nil if it fits.
func (a *assigner) topologyShortage(flavor kueue.ResourceFlavorReference) *TopologyShortage {
	a.Chosen = nil
	for i := range a.groupRequests {
		if !a.groupRequests[i].has(flavor) {
			return nil
		}
		a.Chosen = append(a.Chosen, flavorCandidate{Flavor: flavor})
	}
	topologies := a.s.cache.Nodes.TopologyCache
	requests := a.s.cache.NewTopologyRequests(a.w, a.admission(), nil, topologies)
	if requests == nil || !a.s.cache.Nodes.Known {
		return nil
	}
	_, reason, unplaced := requests.FindAssignments()
	if reason == "" {
		return nil
	}
	ps := &a.w.Object.Spec.PodSets[unplaced.PodSet]
	f := &releaseFinder{
		s: a.s, TopologySimulation: cache.TopologySimulation{Cache: a.s.cache, TopologyRequests: requests},
		tree: topologies.Tree(flavor), podSet: unplaced.PodSet, best: unplaced.Best.Values,
	}
	out := &TopologyShortage{PodSet: ps.Name, Pods: unplaced.Count, Domain: unplaced.Best}
	if r := ps.TopologyRequest; r != nil && r.Required != nil {
		f.depth = slices.Index(cache.Levels(a.s.cache.TopologyOf(flavor)), *r.Required) + 1
		out.Short = nodegroups.Resources{}
		out.Short.Add(unplaced.Pod, max(0, int(unplaced.Count-unplaced.Best.Count)))
	}
	if empty, ok := requests.FindAssignmentsOnEmpty(); !ok {
		out.EmptyBest = &empty.Best
		return out
	}
	out.Releases = f.releases(a.w)
	return out
}

// releaseFinder finds the Workloads whose end would make the podSet fit.
type releaseFinder struct {
	cache.TopologySimulation
	s      *Cycle
	tree   *placement.Tree
	podSet int
	// depth is the number of levels that all pods must have in common; 0 if they may be in several domains.
	depth int
	// best is the domain that fits the most pods.
	best []string
}

// releases returns Workloads that each suffice alone; otherwise a minimal set of those in the best domain.
func (f *releaseFinder) releases(w *cache.Workload) (out []Release) {
	var all []*cache.Workload
	for _, other := range cache.ByName(f.s.cache.Workloads) {
		if other != w && f.podsIn(other, nil) > 0 {
			all = append(all, other)
		}
	}
	slices.SortStableFunc(all, func(a, b *cache.Workload) int {
		return cmp.Or(cmp.Compare(f.podsIn(b, f.best), f.podsIn(a, f.best)), cmp.Compare(f.podsIn(b, nil), f.podsIn(a, nil)))
	})
	all = all[:min(maxReleases, len(all))]
	for _, one := range all {
		if r := f.releaseOf([]*cache.Workload{one}); r != nil {
			out = append(out, *r)
		}
		if len(out) == mostReleases {
			return out
		}
	}
	if len(out) > 0 || len(f.best) == 0 {
		return out
	}
	there := slices.DeleteFunc(all, func(x *cache.Workload) bool { return f.podsIn(x, f.best) == 0 })
	if f.releaseOf(there) == nil {
		return nil
	}
	// Keep the Workloads with the most pods: try to leave out the others first.
	for i := len(there) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(there), i, i+1); f.releaseOf(fewer) != nil {
			there = fewer
		}
	}
	return []Release{*f.releaseOf(there)}
}

// releaseOf returns the Release of these Workloads; nil if it does not make the pods fit.
func (f *releaseFinder) releaseOf(leaving []*cache.Workload) *Release {
	for _, x := range leaving {
		f.SimulateRemoval(x.Object.UID)
		defer f.RevertRemoval(x.Object.UID)
	}
	placed, reason, _ := f.FindAssignments()
	if reason != "" {
		return nil
	}
	out := &Release{}
	for _, p := range placed {
		if p.PodSet == f.podSet && f.depth > 0 {
			out.Domain = f.tree.Path(p.Domains[0])[:f.depth]
		}
	}
	topologies := f.s.cache.Nodes.TopologyCache
	topologies.AddUsage(cache.UsageOf(placed), 1)
	defer topologies.AddUsage(cache.UsageOf(placed), -1)
	for _, x := range leaving {
		moving := f.s.cache.NewTopologyRequests(x, x.Object.Status.Admission, x.Object.Status.AdmissionChecks, topologies)
		moves := false
		if moving != nil && len(leaving) == 1 {
			_, reason, _ := moving.FindAssignments()
			moves = reason == ""
		}
		out.Workloads = append(out.Workloads, ReleasedWorkload{x.Object, f.podsIn(x, out.Domain), moves})
	}
	return out
}

// podsIn counts the pods of a Workload in a domain of the tree, or in all domains if it has no values.
func (f *releaseFinder) podsIn(w *cache.Workload, domain []string) (n int32) {
	for _, u := range w.TopologyUsage {
		for _, d := range u.Domains {
			if path := f.tree.Path(d); len(path) > 0 && slices.Equal(path[:min(len(path), len(domain))], domain) {
				n += d.Count
			}
		}
	}
	return n
}
