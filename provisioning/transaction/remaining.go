package transaction

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// remaining returns the gang without the pods that have arrived on nodes that it has booked, and the number of these. Running pods cannot
// move: if the gang must be together, the remaining pods are bound to their domain.
func remaining(r *Request, s *planner.Snapshot) (rest state.Gang, came int) {
	left := make([]int, len(r.Gang.PodSets))
	for i := range left {
		left[i] = r.Gang.PodSets[i].Count
	}
	together := newTogether(r)
	for n := range s.Nodes.BookedBy(r.UID) {
		b := n.BookingOf(r.UID)
		if b == nil {
			continue
		}
		came += len(b.Came)
		for _, requests := range b.Came {
			if i := podSetOf(&r.Gang, s.Objects, left, n, requests); i >= 0 {
				left[i]--
				together.add(n, i)
			}
		}
	}
	if came == 0 {
		return r.Gang, 0
	}
	rest = r.Gang
	rest.PodSets = nil
	for i := range r.Gang.PodSets {
		if left[i] > 0 {
			rest.PodSets = append(rest.PodSets, together.left(&r.Gang.PodSets[i], i, left[i], r.Gang.Namespace, s.Objects)...)
		}
	}
	return rest, came
}

// podSetOf returns the podSet of a pod on the node, judged by its requests: a podSet that requests exactly this, or else no more than
// this, or else any that still lacks pods. It is -1 for none.
func podSetOf(g *state.Gang, objects fit.Objects, left []int, n *state.Node, takes nodegroups.Resources) int {
	if len(left) == 1 && left[0] > 0 {
		return 0
	}
	best, bestRank := -1, 3
	for i := range g.PodSets {
		if left[i] == 0 {
			continue
		}
		rank := 2
		if p, _ := g.PodSets[i].Read(g.Namespace, objects); p != nil && p.Matches(n.Name, n.Labels, n.Taints) {
			if _, _, short := takes.Short(p.Requests); !short {
				rank = 1
			}
			if state.SameAmounts(takes, p.Requests) {
				rank = 0
			}
		}
		if rank < bestRank {
			best, bestRank = i, rank
		}
	}
	return best
}

// together has the node labels that the pods of a gang must share by the policy, with their values where pods have arrived.
type together struct {
	keys []string
	// gang has the labels of all podSets, podSets those of each alone. The value is empty if pods that have arrived differ.
	gang    map[string]string
	podSets []map[string]string
	// domains are the domains of each podSet, and whether it must be in one NodeGroup.
	domains  []fit.Domains
	counts   []int
	oneGroup bool
	// came counts the pods of each podSet with slices that have arrived, by domain.
	came []map[string]int
}

func newTogether(r *Request) *together {
	t := &together{gang: map[string]string{}, oneGroup: r.Policy.Split == v1alpha1.SingleGroup}
	if r.Policy.Split != v1alpha1.AnyZone {
		t.keys = append(t.keys, corev1.LabelTopologyZone)
	}
	if r.Policy.Topology != "" {
		t.keys = append(t.keys, r.Policy.Topology)
	}
	for i := range r.Gang.PodSets {
		ps := &r.Gang.PodSets[i]
		domains, _ := fit.DomainsOf(ps.Template, ps.Count)
		t.podSets, t.domains = append(t.podSets, map[string]string{}), append(t.domains, domains)
		t.counts, t.came = append(t.counts, ps.Count), append(t.came, map[string]int{})
	}
	return t
}

// all returns the labels that some pods must share.
func (t *together) all() []string {
	keys := slices.Clone(t.keys)
	if t.oneGroup {
		keys = append(keys, v1alpha1.NodeGroupLabel)
	}
	for i := range t.domains {
		keys = append(keys, t.domains[i].Common(t.counts[i])...)
	}
	return keys
}

// add adds a node on which a pod of the podSet has arrived.
func (t *together) add(n *state.Node, podSet int) {
	for _, key := range t.keys {
		agree(t.gang, key, n.Labels[key])
	}
	if t.oneGroup {
		agree(t.podSets[podSet], v1alpha1.NodeGroupLabel, n.Group)
	}
	d := &t.domains[podSet]
	if slice, ok := d.Slice(t.counts[podSet]); ok {
		t.came[podSet][n.Labels[slice.Level]]++
	}
	for i := range t.domains {
		if i == podSet || d.Group != "" && t.domains[i].Group == d.Group {
			for _, key := range d.Common(t.counts[podSet]) {
				agree(t.podSets[i], key, n.Labels[key])
			}
		}
	}
}

// left returns the given number of remaining pods of the podSet, as podSets. Pods of slices that have arrived in part are bound to the
// domains of these slices.
func (t *together) left(ps *state.PodSet, i, count int, namespace string, objects fit.Objects) (out []state.PodSet) {
	labels := t.labels(i)
	slice, ok := t.domains[i].Slice(t.counts[i])
	if !ok {
		return []state.PodSet{ps.Kept(namespace, objects, count, labels)}
	}
	for _, domain := range slices.Sorted(maps.Keys(t.came[i])) {
		if lacks := min(count, (slice.Size-t.came[i][domain]%slice.Size)%slice.Size); lacks > 0 && domain != "" {
			within := maps.Clone(labels)
			within[slice.Level] = domain
			out = append(out, ps.Again(namespace, objects, lacks, within))
			count -= lacks
		}
	}
	if count > 0 {
		out = append(out, ps.Slices(namespace, objects, count, labels))
	}
	return out
}

func agree(labels map[string]string, key, value string) {
	if old, ok := labels[key]; ok && old != value {
		value = ""
	}
	labels[key] = value
}

func (t *together) labels(podSet int) map[string]string {
	out := maps.Clone(t.gang)
	maps.Copy(out, t.podSets[podSet])
	maps.DeleteFunc(out, func(_, value string) bool { return value == "" })
	return out
}
