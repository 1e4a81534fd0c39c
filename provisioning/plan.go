package provisioning

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Plan says where a gang could run now, what to launch for it, or why not.
//
// Existing room comes before launches. Options are compared by the least wanted
// market they need, then price, then number of machines, then zone; so the order
// is total and the same input gives the same plan.
func Plan(s *Snapshot, gang Gang, policy Policy) Verdict {
	reqs := make([]requirements, len(gang.PodSets))
	for i, ps := range gang.PodSets {
		r, why := require(ps)
		if why != "" {
			return Verdict{Outcome: Never, Reasons: []Reason{{Code: CodeUnsupported, Message: why}}}
		}
		reqs[i] = r
	}
	q := &query{snapshot: s, gang: &gang, reqs: reqs, policy: policy}
	best := q.search()
	if best != nil && !best.overPrice() {
		return best.verdict()
	}
	if policy.Class == CheckCapacity {
		return Verdict{Outcome: Wait, Reasons: q.explain(nil)}
	}
	if best := (&query{snapshot: ideal(s), gang: &gang, reqs: reqs, policy: policy}); best.hopeless() {
		return Verdict{Outcome: Never, Reasons: best.explain(best.search())}
	}
	reasons := q.explain(best)
	return Verdict{Outcome: Wait, Reasons: reasons, Until: q.until(reasons)}
}

// query is one question to the planner.
type query struct {
	snapshot *Snapshot
	gang     *Gang
	reqs     []requirements
	policy   Policy
}

// hopeless says that the gang cannot be placed, nor one of its podSets alone, or
// only for too much money. Where each podSet alone fits, placing the largest
// first may just have missed the way to place all: that is no reason to give up.
func (q *query) hopeless() bool {
	best := q.search()
	if best != nil {
		return best.overPrice()
	}
	for _, r := range q.reqs {
		alone := *q
		alone.reqs = []requirements{r}
		if !alone.possible() {
			return true
		}
	}
	return false
}

// possible says that the gang could be placed within its price.
func (q *query) possible() bool {
	best := q.search()
	return best != nil && !best.overPrice()
}

// search returns the best option, or nil where there is none. Where the best one
// costs more than the policy allows, the cheapest is returned instead.
func (q *query) search() *trial {
	if best := q.best(byMarket); best == nil || !best.overPrice() {
		return best
	}
	return q.best(byPrice)
}

// preference is what comes first among groups.
type preference int

const (
	// byMarket: the policy's order of capacity types, then price.
	byMarket preference = iota
	// byPrice: price alone.
	byPrice
)

func (q *query) best(pref preference) *trial {
	var best *trial
	for _, zone := range q.zones() {
		t := newTrial(q, zone, pref)
		if t.placeAll() && (best == nil || t.compare(best) < 0) {
			best = t
		}
	}
	return best
}

// anyZone stands for all zones at once.
const anyZone = "*"

// zones that a gang may be placed in, each for itself.
func (q *query) zones() []string {
	if q.policy.Split == v1alpha1.AnyZone {
		return []string{anyZone}
	}
	seen := map[string]bool{}
	for i := range q.snapshot.Nodes {
		seen[q.snapshot.Nodes[i].zone()] = true
	}
	for i := range q.snapshot.Groups {
		seen[q.snapshot.Groups[i].Zone] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// market is the rank of the group's capacity type in the policy, the most wanted
// being 0; ok is false where the policy does not allow it.
func (q *query) market(g *nodegroups.Group) (rank int, ok bool) {
	rank = slices.Index(q.policy.CapacityTypes, g.CapacityType)
	return rank, rank >= 0
}

// inBackoff says that the group failed lately and is left alone for now.
func (q *query) inBackoff(g *nodegroups.Group) bool {
	return g.BackoffUntil.After(q.snapshot.Now)
}

// ideal is the snapshot as it would be on the best of days: every group empty
// and willing, every node outside of groups free and open.
func ideal(s *Snapshot) *Snapshot {
	out := &Snapshot{Now: s.Now, DaemonSets: s.DaemonSets}
	for _, n := range s.Nodes {
		if n.Group != "" {
			continue
		}
		n.Ready, n.Cordon, n.Free, n.Pods, n.Bookings, n.Labelled = true, Open, n.Allocatable, 0, nil, nil
		out.Nodes = append(out.Nodes, n)
	}
	for _, g := range s.Groups {
		g.Machines, g.BackoffUntil = 0, time.Time{}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// until is when the first of the groups that hold the gang up may be tried again.
func (q *query) until(reasons []Reason) time.Time {
	var at time.Time
	for i := range q.snapshot.Groups {
		g := &q.snapshot.Groups[i]
		held := slices.ContainsFunc(reasons, func(r Reason) bool { return r.Code == CodeBackoff && r.Group == g.Name })
		if held && (at.IsZero() || g.BackoffUntil.Before(at)) {
			at = g.BackoffUntil
		}
	}
	return at
}

// placingOrder is the order in which podSets are placed: those that suit the
// fewest groups first, since others can give way to them; then those that ask for
// the most devices, then cpu, then memory, per pod; then their place in the gang.
func (t *trial) placingOrder() []int {
	order := make([]int, len(t.reqs))
	choices := make([]int, len(t.reqs))
	for i := range order {
		order[i] = i
		for k := range t.groups {
			if t.perMachine(&t.groups[k], i, t.reqs[i].count) > 0 {
				choices[i]++
			}
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := t.reqs[a].requests, t.reqs[b].requests
		return cmp.Or(
			cmp.Compare(choices[a], choices[b]),
			-cmp.Compare(devices(x), devices(y)),
			-cmp.Compare(x[corev1.ResourceCPU], y[corev1.ResourceCPU]),
			-cmp.Compare(x[corev1.ResourceMemory], y[corev1.ResourceMemory]),
			cmp.Compare(a, b),
		)
	})
	return order
}

// devices is the number of extended resources, such as GPUs, that are asked for.
func devices(r nodegroups.Resources) (n int64) {
	for name, v := range r {
		if nodegroups.Extended(name) {
			n += v
		}
	}
	return n
}
