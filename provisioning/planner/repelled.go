package planner

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// repelled are the domains that the required anti-affinity of running pods closes to pods of the gang: the podSets by value of a node
// label, for each such label in order. They do not depend on the gang's placement, so they are computed once, and nodes are still visited
// by class.
type repelled []repelledIn

type repelledIn struct {
	topology string
	podSets  map[string]podSets
}

func readRepelled(nodes *nodeset.Set, namespace string, pods []*fit.Pod) (out repelled) {
	all := podSets(1)<<len(pods) - 1
	for n := range nodes.Repelling(namespace) {
		for _, r := range n.Running {
			for topology, matches := range r.AntiAffinity() {
				value, ok := n.Labels[topology]
				if !ok {
					continue
				}
				of := out.in(topology)
				off := of[value]
				for i := 0; i < len(pods) && off != all; i++ {
					if matches(pods[i]) {
						off |= 1 << i
					}
				}
				if off != 0 {
					of[value] = off
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b repelledIn) int { return cmp.Compare(a.topology, b.topology) })
	return slices.DeleteFunc(out, func(r repelledIn) bool { return len(r.podSets) == 0 })
}

func (r *repelled) in(topology string) map[string]podSets {
	i := slices.IndexFunc(*r, func(in repelledIn) bool { return in.topology == topology })
	if i < 0 {
		i = len(*r)
		*r = append(*r, repelledIn{topology, map[string]podSets{}})
	}
	return (*r)[i].podSets
}

// from returns the podSets that may not use nodes with these labels.
func (r repelled) from(labels map[string]string) (off podSets) {
	for i := range r {
		if value, ok := labels[r[i].topology]; ok {
			off |= r[i].podSets[value]
		}
	}
	return off
}

// allowed returns the podSets in takes without those in off. It records the first one that is kept off.
func (q *query) allowed(takes, off podSets, labels map[string]string) podSets {
	if takes&off != 0 && q.withheld == nil {
		q.withheld = []Reason{{Code: CodeApart, Message: q.explainRepelled(bits.TrailingZeros64(uint64(takes&off)), labels)}}
	}
	return takes &^ off
}

func (q *query) explainRepelled(i int, labels map[string]string) string {
	k := slices.IndexFunc(q.repelled, func(r repelledIn) bool { return repelled{r}.from(labels).has(i) })
	topology := q.repelled[k].topology
	return fmt.Sprintf("a pod in %s=%s has a required podAntiAffinity that matches podSet %s; this changes when it ends", topology,
		labels[topology], q.pods[i].Name)
}

// exception is a part of a class: nodes that are closed to the same podSets due to a label that does not distinguish classes.
type exception struct {
	off   podSets
	nodes []*state.Node
}

// exceptions returns the exceptions of the classes, without nodes that are visited by name.
func (q *query) exceptions(named map[string]bool) map[*nodeset.Class][]exception {
	out := map[*nodeset.Class][]exception{}
	for n := range q.inRepelled() {
		off := q.repelled.from(n.Labels)
		if off == 0 || named[n.Name] {
			continue
		}
		c := q.Nodes.ClassOf(n.Name, q.ideal)
		if c == nil {
			continue
		}
		named[n.Name] = true
		of := out[c]
		i := slices.IndexFunc(of, func(e exception) bool { return e.off == off })
		if i < 0 {
			i, of = len(of), append(of, exception{off: off})
		}
		of[i].nodes = append(of[i].nodes, n)
		out[c] = of
	}
	return out
}

// inRepelled returns the nodes that may be in domains of labels that do not distinguish classes.
func (q *query) inRepelled() iter.Seq[*state.Node] {
	var untold []string
	for _, r := range q.repelled {
		untold = append(untold, q.Nodes.Lacks([]string{r.topology})...)
	}
	switch {
	case len(untold) == 0:
		return func(func(*state.Node) bool) {}
	case !slices.Equal(untold, []string{corev1.LabelHostname}):
		return q.Nodes.All()
	}
	i := slices.IndexFunc(q.repelled, func(r repelledIn) bool { return r.topology == corev1.LabelHostname })
	return func(yield func(*state.Node) bool) {
		for _, host := range slices.Sorted(maps.Keys(q.repelled[i].podSets)) {
			for n := range q.Nodes.OwnedBy(nodeset.HostNamed(host)) {
				if !yield(n) {
					return
				}
			}
		}
	}
}
