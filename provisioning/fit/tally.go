package fit

import "slices"

// topology numbers the domains of one node label: its values.
type topology struct {
	key     string
	domains map[string]int
}

// noDomain is that of nodes without the label.
const noDomain = -1

func (t *topology) domain(nodeLabels map[string]string) int {
	value, ok := nodeLabels[t.key]
	if !ok {
		return noDomain
	}
	d, ok := t.domains[value]
	if !ok {
		d = len(t.domains)
		t.domains[value] = d
	}
	return d
}

// tally counts by domain the pods that a constraint is about.
type tally struct {
	// topology is a position in InterPodState.topologies.
	topology int
	// adds is what one pod of each podSet counts.
	adds   []int
	counts []int
	total  int
}

func (t *tally) add(domain, n int) {
	if domain == noDomain || n == 0 {
		return
	}
	t.counts = grown(t.counts, domain)
	t.counts[domain] += n
	t.total += n
}

// in returns the count of a domain.
func (t *tally) in(domain int) int {
	if domain < 0 || domain >= len(t.counts) {
		return 0
	}
	return t.counts[domain]
}

// spreadTally is the tally of a spread constraint, which also requests the least
// count over the domains that have a node.
type spreadTally struct {
	tally
	of *spread
	// number among all spread constraints of the gang.
	number int
	// known domains have a node that belongs to them.
	known   []bool
	domains int
	// least count of the known domains. So many of them have it, or more; with none it
	// must be found again.
	least, atLeast int
}

// join makes the domain known.
func (t *spreadTally) join(domain int) {
	t.known = grown(t.known, domain)
	if t.known[domain] {
		return
	}
	t.known[domain] = true
	t.domains++
	t.atLeast = 0
}

func (t *spreadTally) add(domain, n int) {
	before := t.in(domain)
	t.tally.add(domain, n)
	switch after := before + n; {
	case t.atLeast == 0 || before == after:
	case after < t.least:
		t.least, t.atLeast = after, 1
	case before == t.least:
		t.atLeast--
	}
}

// floor is what the scheduler holds the counts against: the least of all domains, or
// 0 where there are fewer domains than the constraint wants.
func (t *spreadTally) floor() int {
	if t.domains < int(t.of.minDomains) {
		return 0
	}
	if t.atLeast == 0 {
		t.count()
	}
	return t.least
}

// count finds the least count again.
func (t *spreadTally) count() {
	for d, known := range t.known {
		switch n := t.in(d); {
		case !known:
		case t.atLeast == 0 || n < t.least:
			t.least, t.atLeast = n, 1
		case n == t.least:
			t.atLeast++
		}
	}
}

// grown is s with room for index i.
func grown[S ~[]E, E any](s S, i int) S {
	if i < len(s) {
		return s
	}
	return slices.Grow(s, i+1-len(s))[:i+1]
}
