package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/text"
)

// If pods of the gang restrict other pods (host ports, pod affinity, hard spreading), the nodes of a class are no longer alike. The gang
// is then placed pod after pod, on single nodes, and fit.InterPodState judges each step as the scheduler will. This is rare, and takes
// time in proportion to pods × nodes.

// spot is a node, or a machine that may be launched, for pods placed one by one: a bin of one.
type spot struct {
	name string
	bin
	// taken is the number of the gang's pods here.
	taken int
}

// placeApart places the gang in the trial's region, or reports that it found no way. It chooses a domain for one part of the gang after
// another, with room beside the parts before it. If slices of a podSet are bound to domains, the whole podSet is kept in one domain: pods
// of a podSet are not distinguished here.
func (t *trial) placeApart() bool {
	for range t.pods {
		t.in = append(t.in, t.whole())
	}
	all := t.parts()
	if t.policy.Topology != "" {
		var podSets []int
		for _, p := range all {
			podSets = append(podSets, p.podSets...)
		}
		if !t.choose(t.policy.Topology, podSets, podSets[:1]) {
			return false
		}
	}
	var podSets []int
	for _, p := range all {
		podSets = append(podSets, p.podSets...)
		for _, level := range t.pods[p.podSets[0]].Levels() {
			if !t.choose(level, p.podSets, podSets) {
				return false
			}
		}
	}
	return t.placePods(podSets)
}

// choose keeps podSets in the domain of the level that is the best for the placed ones.
func (t *trial) choose(level string, podSets, placed []int) bool {
	first := podSets[0]
	c := t.clone()
	ok := c.within(c.in[first], level, first, t.pods[first].Count, func(t *trial, d *domain) bool {
		for _, i := range podSets {
			t.in[i] = d
		}
		return t.placePods(placed)
	})
	t.in, t.between = c.in, c.between
	return ok
}

// placePods places the podSets, pod after pod. The result is checked again with only the nodes that it uses: only these will have the
// booking's label, so pods are spread over their domains alone.
func (t *trial) placePods(podSets []int) bool {
	spots := t.spots()
	inRegion := map[string]bool{}
	for _, s := range spots {
		inRegion[s.name] = true
	}
	spots, ok := t.placeOn(t.state(inRegion), spots, podSets, mayLaunch)
	if !ok {
		return false
	}
	used := slices.DeleteFunc(spots, func(s *spot) bool { return s.taken == 0 })
	if !t.placeAgain(used, podSets) {
		return false
	}
	for _, s := range used {
		t.bins = append(t.bins, s.bin)
		if s.source >= 0 {
			t.used[s.source] = 1
		}
	}
	return true
}

// mayLaunch lets placeOn add new machines.
const mayLaunch = true

// placeOn places the podSets on the spots and on new ones. Pods that must share a node are placed one after another.
func (t *trial) placeOn(state *fit.InterPodState, spots []*spot, podSets []int, launch bool) ([]*spot, bool) {
	for _, i := range podSets {
		var s *spot
		for n := range t.pods[i].Count {
			if unit := t.pods[i].PerNode; n%unit == 0 {
				need := min(unit, t.pods[i].Count-n)
				if s = t.bestSpot(state, spots, i, need); s == nil && launch {
					if s = t.launchSpot(state, len(spots), i, need); s != nil {
						spots = append(spots, s)
					}
				}
			} else if !state.Allows(i, s.name) {
				s = nil
			}
			if s == nil {
				t.noteObstacle(state, spots, i)
				return spots, false
			}
			t.put(state, s, i)
		}
	}
	return spots, true
}

// placeAgain places the podSets on these spots only.
func (t *trial) placeAgain(spots []*spot, podSets []int) bool {
	use := map[string]bool{}
	for _, s := range spots {
		use[s.name] = true
		for i := range s.pods {
			s.pods[i] = 0
		}
		s.room, s.taken = t.roomOf(&s.bin), 0
	}
	state := t.state(use)
	for _, s := range spots {
		if s.offer >= 0 {
			state.AddNode(t.machine(s))
		}
	}
	if _, ok := t.placeOn(state, spots, podSets, !mayLaunch); !ok {
		return false
	}
	return !slices.ContainsFunc(spots, func(s *spot) bool { return s.taken == 0 }) && t.anyMayBeLast(state, spots) &&
		t.anyMayBeFirst(state, spots)
}

// anyMayBeFirst reports whether pods with required affinity also suit their places if the first of them is bound after all other podSets.
// While no pod that it requires exists, the scheduler could have bound it anywhere.
func (t *trial) anyMayBeFirst(state *fit.InterPodState, spots []*spot) bool {
	for i, p := range t.pods {
		if len(p.Gathers()) == 0 {
			continue
		}
		all := func(do func(int, string)) {
			for _, s := range spots {
				for range s.pods[i] {
					do(i, s.name)
				}
			}
		}
		all(state.Remove)
		for _, s := range spots {
			if s.pods[i] > 0 && !state.Allows(i, s.name) {
				t.between = t.onlyInOrder("an early", spots, i, state.Blocks(i, s.name))
				return false
			}
		}
		all(state.Place)
	}
	return true
}

func (t *trial) onlyInOrder(when string, spots []*spot, i int, why string) obstacle {
	return obstacle{placed(spots), fmt.Sprintf("the pods fit only in a certain order, and %s pod of podSet %s would not fit: %s", when,
		t.pods[i].Name, why)}
}

// anyMayBeLast reports whether each pod suits its place beside all others, since the scheduler chooses the order.
func (t *trial) anyMayBeLast(state *fit.InterPodState, spots []*spot) bool {
	for _, s := range spots {
		for i, n := range s.pods {
			if n == 0 {
				continue
			}
			state.Remove(i, s.name)
			if !state.Allows(i, s.name) {
				t.between = t.onlyInOrder("a late", spots, i, state.Blocks(i, s.name))
				return false
			}
			state.Place(i, s.name)
		}
	}
	return true
}

// state returns the state of all nodes, of which the gang may use only some.
func (t *trial) state(use map[string]bool) *fit.InterPodState {
	nodes := make([]fit.Node, 0, t.Nodes.Len())
	for n := range t.Nodes.All() {
		running := n.Running
		if t.ideal {
			running = nil
		}
		nodes = append(nodes, fit.Node{Name: n.Name, Labels: n.Labels, Taints: n.Taints, Pods: running, Elsewhere: !use[n.Name]})
	}
	return fit.NewInterPodState(t.pods, nodes)
}

// spots returns the nodes of the region. With apart, collect has made each node a source.
func (t *trial) spots() []*spot {
	out := make([]*spot, len(t.sources))
	for k := range t.sources {
		out[k] = &spot{t.sources[k].node.Name, bin{source: k, offer: -1, count: 1, room: t.sources[k].room, pods: make([]int, len(t.pods))}, 0}
	}
	return out
}

// bestSpot returns the spot for the next pods of the podSet, which must share a node. The order: spots that the gang has booked, the
// fewest pods of the podSet, so that they spread, the fewest remaining devices, and the first.
func (t *trial) bestSpot(state *fit.InterPodState, spots []*spot, i, need int) *spot {
	var best *spot
	var bestKey [3]int64
	for _, s := range spots {
		if !t.takes(s).has(i) || t.fits(s.room, i, need) < need || !t.in[i].has(&s.bin) {
			continue
		}
		key := [3]int64{1, int64(s.pods[i]), 0}
		if s.source >= 0 {
			src := &t.sources[s.source]
			key[2] = src.devices
			if src.own {
				key[0] = 0
			}
		}
		if (best == nil || slices.Compare(key[:], bestKey[:]) < 0) && state.Allows(i, s.name) {
			best, bestKey = s, key
		}
	}
	return best
}

// obstacle is a constraint between pods that could not be met after so many pods of the gang had been placed. The message of none is empty.
type obstacle struct {
	placed  int
	message string
}

// or returns the obstacle that stops the gang later, or the first one.
func (o obstacle) or(other obstacle) obstacle {
	if o.message == "" || other.message != "" && other.placed > o.placed {
		return other
	}
	return o
}

// placed returns how many pods of the gang are on the spots.
func placed(spots []*spot) (n int) {
	for _, s := range spots {
		n += s.taken
	}
	return n
}

// noteObstacle records what keeps a pod of the podSet off the first spot with room for it, or that the domain of the others has no room.
func (t *trial) noteObstacle(state *fit.InterPodState, spots []*spot, i int) {
	why := ""
	if at := slices.IndexFunc(spots, func(s *spot) bool {
		return t.takes(s).has(i) && t.fits(s.room, i, 1) > 0 && t.in[i].has(&s.bin)
	}); at >= 0 {
		why = fmt.Sprintf("on %s, the next would break what the pods ask of one another: %s", spots[at].name, state.Blocks(i, spots[at].name))
	} else if t.near != "" {
		why = fmt.Sprintf("the next has to be in %s, too, and there is no room for it", t.near)
	} else {
		return
	}
	n := 0
	for _, s := range spots {
		n += s.pods[i]
	}
	t.between = obstacle{placed(spots), fmt.Sprintf("%d of %s of podSet %s can be placed beside the others: %s", n,
		text.Pods(t.pods[i].Count), t.pods[i].Name, why)}
}

// roomOf returns the room of the bin without pods of the gang.
func (t *trial) roomOf(b *bin) space {
	if b.offer >= 0 {
		return t.offers[b.offer].room
	}
	return t.sources[b.source].room
}

func (t *trial) takes(s *spot) podSets {
	if s.offer >= 0 {
		return t.offers[s.offer].takes
	}
	return t.sources[s.source].takes
}

// launchSpot adds a new machine for the next pods of the podSet: of the most preferred capacity type, then the lowest expected price, then
// the first by name.
func (t *trial) launchSpot(state *fit.InterPodState, number, i, need int) *spot {
	var order []int
	in := t.in[i]
	for _, k := range in.offers {
		if t.offers[k].takes.has(i) && t.fits(t.offers[k].room, i, need) == need && t.mayLaunch(k, in) > 0 && !t.isBlocked(k, 1) {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(t.rankOf(a), t.rankOf(b)),
			cmp.Compare(t.expect(a, t.price(a), 1), t.expect(b, t.price(b), 1)),
		)
	})
	for _, k := range order {
		s := &spot{fmt.Sprintf("%s/%d", t.offers[k].Name, number),
			bin{source: -1, offer: k, count: 1, room: t.offers[k].room, pods: make([]int, len(t.pods))}, 0}
		if in.new {
			s.in = in
		}
		state.AddNode(t.machine(s))
		if state.Allows(i, s.name) {
			t.addMachines(k, 1, in)
			return s
		}
	}
	return nil
}

// machine returns a spot's new machine in the form of fit.InterPodState.
func (t *trial) machine(s *spot) fit.Node {
	g := t.offers[s.offer].Group
	labels := maps.Clone(g.Labels)
	labels[corev1.LabelHostname] = s.name
	for in := s.in; in != nil; in = in.within {
		labels[in.level] = in.name
	}
	return fit.Node{Name: s.name, Labels: labels, Taints: g.Taints}
}

func (t *trial) put(state *fit.InterPodState, s *spot, i int) {
	state.Place(i, s.name)
	s.room = t.less(s.room, i, 1)
	s.pods[i]++
	s.taken++
}

// readTopologies reads the topologies over which pods spread, and those within which pods must stay together. Pods that must spread over
// zones are not kept in one.
func (q *query) readTopologies() {
	for _, p := range q.pods {
		if p.Spreads(corev1.LabelTopologyZone) {
			q.policy.Split = v1alpha1.AnyZone
		}
		for _, key := range p.Gathers() {
			if key != corev1.LabelHostname && !slices.Contains(q.gather, key) {
				q.gather = append(q.gather, key)
			}
		}
	}
}

// explainApart returns the constraints between pods that could not be met, of the region that takes the most pods.
func (q *query) explainApart() []Reason {
	if !q.apart {
		return q.withheld
	}
	var last obstacle
	for _, r := range q.regions {
		if t := newTrial(q, r, byCapacityType); !t.placeAll() {
			last = last.or(t.between)
		}
	}
	if last.message == "" {
		return q.withheld
	}
	return []Reason{{Code: CodeApart, Message: last.message}}
}
