package fit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is a node of an InterPodState.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	// Pods that run here or are nominated to.
	Pods []*Running
	// Elsewhere: the gang's pods will not be allowed here, whatever the labels say,
	// since the node will not bear their booking. It matters to spread constraints
	// that honor node affinity, as they do by default: the node is no part of them.
	Elsewhere bool
}

// InterPodState judges the pods of a gang by the pods around them: those that run and those
// of the gang that have been placed. It holds all nodes of the cluster, those that
// the gang may not use included: their pods and domains count. It is the one thing
// in this package that changes.
type InterPodState struct {
	pods       []*Pod
	rules      []rules
	topologies []topology
	places     map[string]*place
	// spreads is how many spread constraints the gang has.
	spreads int
	// clashes[i][j]: pods i and j cannot share a node, for their host ports. Empty
	// where no pod has any.
	clashes [][]bool
	claims  map[claimKey]*claimUse
}

// rules are the tallies that decide on one podSet.
type rules struct {
	// attracts has one tally for each term, each of the pods that match all terms.
	attracts []*tally
	// repels has one tally for each of the podSet's terms.
	repels []*tally
	// repelled has one tally for each topology of the terms of others against it.
	repelled []*tally
	spreads  []*spreadTally
}

// place is a node as the state knows it.
type place struct {
	labels map[string]string
	// domains of the node by topology; those of topologies that came later are
	// missing.
	domains []int
	// outside are the spread constraints that the node is no part of.
	outside []bool
	// rivals[i] is how many pods here have a host port that pod i wants. Empty where
	// no pod of the gang has host ports.
	rivals []int
}

type claimKey struct{ namespace, name string }

// claimUse says which pods use a claim that cannot be shared freely.
type claimUse struct {
	running int
	// placed counts the gang's pods by node.
	placed map[string]int
}

// NewInterPodState starts with none of the pods placed. Pods go by their positions here.
func NewInterPodState(pods []*Pod, nodes []Node) *InterPodState {
	c := &InterPodState{
		pods:   pods,
		rules:  make([]rules, len(pods)),
		places: make(map[string]*place, len(nodes)),
		claims: map[claimKey]*claimUse{},
	}
	for i, p := range pods {
		c.addRules(i, p)
	}
	if slices.ContainsFunc(pods, func(p *Pod) bool { return len(p.Ports) > 0 }) {
		c.clashes = clashes(pods)
	}
	for i := range nodes {
		c.AddNode(nodes[i])
	}
	return c
}

func (c *InterPodState) addRules(i int, p *Pod) {
	r := &c.rules[i]
	for k := range p.attracts {
		r.attracts = append(r.attracts, c.newTally(p.attracts[k].topology, p.attractedTo))
	}
	for k := range p.repels {
		t := &p.repels[k]
		r.repels = append(r.repels, c.newTally(t.topology, t.matches))
	}
	for k := range p.spreads {
		s := &p.spreads[k]
		t := c.newTally(s.topology, func(o *Running) bool { return s.counts(p.Namespace, o) })
		r.spreads = append(r.spreads, &spreadTally{tally: *t, of: s, number: c.spreads})
		c.spreads++
	}
	for _, q := range c.pods {
		for k := range q.repels {
			if t := &q.repels[k]; t.matches(&p.Running) {
				c.against(i, t.topology)
			}
		}
	}
	for _, claim := range p.shared {
		c.claims[claimKey{p.Namespace, claim.name}] = &claimUse{placed: map[string]int{}}
	}
}

func clashes(pods []*Pod) [][]bool {
	out := make([][]bool, len(pods))
	for i, p := range pods {
		out[i] = make([]bool, len(pods))
		for j, q := range pods {
			_, out[i][j] = p.Ports.Conflict(q.Ports)
		}
	}
	return out
}

// newTally counts the pods that match.
func (c *InterPodState) newTally(topology string, matches func(*Running) bool) *tally {
	t := &tally{topology: c.topology(topology), adds: make([]int, len(c.pods))}
	for j, q := range c.pods {
		if matches(&q.Running) {
			t.adds[j] = 1
		}
	}
	return t
}

// against is the tally of terms against podSet i in the topology.
func (c *InterPodState) against(i int, key string) *tally {
	topology := c.topology(key)
	for _, t := range c.rules[i].repelled {
		if t.topology == topology {
			return t
		}
	}
	t := &tally{topology: topology, adds: make([]int, len(c.pods))}
	for j, q := range c.pods {
		t.adds[j] = q.termsAgainst(key, c.pods[i])
	}
	c.rules[i].repelled = append(c.rules[i].repelled, t)
	return t
}

// termsAgainst is how many of r's terms in the topology are against p.
func (r *Running) termsAgainst(topology string, p *Pod) (n int) {
	for k := range r.repels {
		if t := &r.repels[k]; t.topology == topology && t.matches(&p.Running) {
			n++
		}
	}
	return n
}

// attractedTo reports whether the pod matches all of p's affinity terms.
func (p *Pod) attractedTo(r *Running) bool {
	for i := range p.attracts {
		if !p.attracts[i].matches(r) {
			return false
		}
	}
	return len(p.attracts) > 0
}

func (c *InterPodState) topology(key string) int {
	i := slices.IndexFunc(c.topologies, func(t topology) bool { return t.key == key })
	if i < 0 {
		i = len(c.topologies)
		c.topologies = append(c.topologies, topology{key: key, domains: map[string]int{}})
	}
	return i
}

// domain of the place in a topology.
func (c *InterPodState) domain(at *place, topology int) int {
	for k := len(at.domains); k <= topology; k++ {
		at.domains = append(at.domains, c.topologies[k].domain(at.labels))
	}
	return at.domains[topology]
}

// AddNode adds a node that is not in the state yet, such as a machine to be launched.
// Where constraints are over host names, its labels must have one of its own.
func (c *InterPodState) AddNode(n Node) {
	at := &place{
		labels:  n.Labels,
		domains: make([]int, 0, len(c.topologies)),
		outside: make([]bool, c.spreads),
		rivals:  make([]int, len(c.clashes)),
	}
	c.places[n.Name] = at
	for i := range c.pods {
		c.meet(i, at, &n)
	}
	for _, r := range n.Pods {
		for _, name := range r.Claims {
			if use := c.claims[claimKey{r.Namespace, name}]; use != nil {
				use.running++
			}
		}
	}
}

// meet counts the node's pods for the rules of podSet i.
func (c *InterPodState) meet(i int, at *place, n *Node) {
	p, rules := c.pods[i], &c.rules[i]
	for _, t := range rules.spreads {
		at.outside[t.number] = !p.spreadOver(n) || !t.of.includes(p, n)
		if !at.outside[t.number] {
			t.join(c.domain(at, t.topology))
		}
	}
	for _, r := range n.Pods {
		if len(p.attracts) > 0 && p.attractedTo(r) {
			for _, t := range rules.attracts {
				t.add(c.domain(at, t.topology), 1)
			}
		}
		for k, t := range rules.repels {
			if p.repels[k].matches(r) {
				t.add(c.domain(at, t.topology), 1)
			}
		}
		for k := range r.repels {
			if term := &r.repels[k]; term.matches(&p.Running) {
				t := c.against(i, term.topology)
				t.add(c.domain(at, t.topology), 1)
			}
		}
		for _, t := range rules.spreads {
			if !at.outside[t.number] && t.of.counts(p.Namespace, r) {
				t.add(c.domain(at, t.topology), 1)
			}
		}
		if _, conflict := p.Ports.Conflict(r.Ports); conflict {
			at.rivals[i]++
		}
	}
}

// spreadOver reports whether the node has the labels of all of p's spread constraints:
// without one it is part of none.
func (p *Pod) spreadOver(n *Node) bool {
	for i := range p.spreads {
		if _, ok := n.Labels[p.spreads[i].topology]; !ok {
			return false
		}
	}
	return true
}

// Place puts a pod of podSet i on a node of the state, whether or not it is blocked
// there.
func (c *InterPodState) Place(i int, node string) { c.count(i, node, 1) }

// Remove undoes Place.
func (c *InterPodState) Remove(i int, node string) { c.count(i, node, -1) }

func (c *InterPodState) count(i int, node string, n int) {
	at := c.places[node]
	for k, clash := range c.clashes {
		if clash[i] {
			at.rivals[k] += n
		}
	}
	for k := range c.rules {
		r := &c.rules[k]
		for _, list := range [][]*tally{r.attracts, r.repels, r.repelled} {
			for _, t := range list {
				t.add(c.domain(at, t.topology), n*t.adds[i])
			}
		}
		for _, t := range r.spreads {
			if !at.outside[t.number] {
				t.add(c.domain(at, t.topology), n*t.adds[i])
			}
		}
	}
	for _, claim := range c.pods[i].shared {
		use := c.claims[claimKey{c.pods[i].Namespace, claim.name}]
		if use.placed[node] += n; use.placed[node] == 0 {
			delete(use.placed, node)
		}
	}
}

// Allows reports whether a pod of podSet i may go to the node now, as far as other pods
// go. A node that is not in the state allows nothing.
func (c *InterPodState) Allows(i int, node string) bool { return c.obstacle(i, node).kind == nothing }

// Blocks says why Allows is false, or is empty.
func (c *InterPodState) Blocks(i int, node string) string {
	p, o := c.pods[i], c.obstacle(i, node)
	where := func(t *tally) string {
		key := c.topologies[t.topology].key
		return key + "=" + c.places[node].labels[key]
	}
	switch o.kind {
	case nothing:
		return ""
	case unknownNode:
		return fmt.Sprintf("node %s is not known", node)
	case hostPort:
		return fmt.Sprintf("a host port of podSet %s is taken there (%s)", p.Name, p.Ports)
	case claimInUse:
		return fmt.Sprintf("claim %s of podSet %s is for one pod at a time (ReadWriteOncePod), and one uses it", o.claim, p.Name)
	case claimElsewhere:
		return fmt.Sprintf("claim %s of podSet %s is not bound yet and will be bound to the node of its first pod, which is another one", o.claim,
			p.Name)
	case noTopology:
		return fmt.Sprintf("podSet %s has constraints over %s, a label that is missing there", p.Name, c.topologies[o.tally.topology].key)
	case unsatisfiedAffinity:
		return fmt.Sprintf("%[2]s has no pod that matches the required podAffinity of podSet %[1]s", p.Name, where(o.tally))
	case unsatisfiedAntiAffinity:
		return fmt.Sprintf("%[2]s has a pod that matches the required podAntiAffinity of podSet %[1]s", p.Name, where(o.tally))
	case avoided:
		return fmt.Sprintf("a pod in %s has a required podAntiAffinity that matches podSet %s", where(o.tally), p.Name)
	default:
		return fmt.Sprintf("podSet %s would exceed the maxSkew of its topologySpreadConstraints in %s (maxSkew %d)", p.Name,
			where(o.tally), o.maxSkew)
	}
}

// obstacle is what keeps a pod off a node.
type obstacle struct {
	kind    obstacleKind
	tally   *tally
	claim   string
	maxSkew int32
}

type obstacleKind int

const (
	nothing obstacleKind = iota
	unknownNode
	hostPort
	// claimInUse: a claim for a single pod has one.
	claimInUse
	// claimElsewhere: a claim that is not bound yet follows its first pod.
	claimElsewhere
	// noTopology: the node lacks a label that constraints are about.
	noTopology
	// unsatisfiedAffinity, someoneToAvoid and avoided: pod affinity, anti-affinity, and the
	// anti-affinity of others.
	unsatisfiedAffinity
	unsatisfiedAntiAffinity
	avoided
	tooManyHere
)

func (c *InterPodState) obstacle(i int, node string) obstacle {
	at := c.places[node]
	if at == nil {
		return obstacle{kind: unknownNode}
	}
	if len(at.rivals) > 0 && at.rivals[i] > 0 {
		return obstacle{kind: hostPort}
	}
	for _, claim := range c.pods[i].shared {
		use := c.claims[claimKey{c.pods[i].Namespace, claim.name}]
		if claim.single && use.running+len(use.placed) > 0 {
			return obstacle{kind: claimInUse, claim: claim.name}
		}
		if claim.unbound && len(use.placed) > 0 && use.placed[node] == 0 {
			return obstacle{kind: claimElsewhere, claim: claim.name}
		}
	}
	r := &c.rules[i]
	if o := c.attracted(i, at, r.attracts); o.kind != nothing {
		return o
	}
	for _, t := range r.repels {
		if t.in(c.domain(at, t.topology)) > 0 {
			return obstacle{kind: unsatisfiedAntiAffinity, tally: t}
		}
	}
	for _, t := range r.repelled {
		if t.in(c.domain(at, t.topology)) > 0 {
			return obstacle{kind: avoided, tally: t}
		}
	}
	for _, t := range r.spreads {
		d := c.domain(at, t.topology)
		if d == noDomain {
			return obstacle{kind: noTopology, tally: &t.tally}
		}
		if t.in(d)+int(t.of.self)-t.floor() > int(t.of.maxSkew) {
			return obstacle{kind: tooManyHere, tally: &t.tally, maxSkew: t.of.maxSkew}
		}
	}
	return obstacle{}
}

// attracted judges pod affinity. The first of pods that want to be with their own
// kind may go anywhere: none would ever run otherwise.
func (c *InterPodState) attracted(i int, at *place, tallies []*tally) obstacle {
	alone, missing := true, (*tally)(nil)
	for _, t := range tallies {
		d := c.domain(at, t.topology)
		if d == noDomain {
			return obstacle{kind: noTopology, tally: t}
		}
		if t.in(d) == 0 {
			missing = t
		}
		alone = alone && t.total == 0
	}
	if missing == nil || alone && tallies[0].adds[i] > 0 {
		return obstacle{}
	}
	return obstacle{kind: unsatisfiedAffinity, tally: missing}
}
