package planner

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

// domain is the part of a region that pods may use: all of it, or the nodes with one value of a label.
type domain struct {
	name string
	// sources and offers by their index in the region, in order.
	sources, offers []int
	// new: the cloud will choose the domain, which has room for at most most machines; zero is any number. Existing nodes and machines of
	// other groups are not in it.
	new  bool
	most int
	// level is the level of a new domain, and within the new domain that contains it; nil for none.
	level  string
	within *domain
}

type domainKey struct {
	level string
	in    *domain
}

// whole returns the region as one domain.
func (r *region) whole() *domain {
	if all := r.domains[domainKey{}]; all != nil {
		return all[0]
	}
	d := &domain{name: r.name}
	for k := range r.sources {
		d.sources = append(d.sources, k)
	}
	for k := range r.offers {
		d.offers = append(d.offers, k)
	}
	r.domains[domainKey{}] = []*domain{d}
	return d
}

// has reports whether the pods may use the nodes of the bin.
func (d *domain) has(b *bin) bool {
	if b.source >= 0 {
		_, found := slices.BinarySearch(d.sources, b.source)
		return found
	}
	if !d.new {
		_, found := slices.BinarySearch(d.offers, b.offer)
		return found
	}
	at := b.in
	for at != nil && at != d {
		at = at.within
	}
	return at == d
}

// domainsIn returns the domains of the level in another domain: those with a label value of nodes or templates, by the number of free
// devices and then by name, and a new one for each group whose cloud chooses the domain.
func (t *trial) domainsIn(in *domain, level string) []*domain {
	var out []*domain
	if !in.new {
		key := domainKey{level, in}
		told, known := t.domains[key]
		if !known {
			told = t.existing(in, level)
			t.domains[key] = told
		}
		out = slices.Clip(told)
	}
	for _, k := range in.offers {
		g := t.offers[k].Group
		if most, ok := g.promises(level); ok || in.new && g.Labels[level] != "" {
			d := &domain{name: join(in.name, "a new domain in "+g.Name), offers: []int{k}, new: true, most: most, level: level}
			if in.new {
				d.within = in
			}
			out = append(out, d)
		}
	}
	return out
}

func (t *trial) existing(in *domain, level string) []*domain {
	by := map[string]*domain{}
	of := func(value string) *domain {
		d := by[value]
		if d == nil {
			d = &domain{name: join(in.name, value)}
			by[value] = d
		}
		return d
	}
	free := map[*domain]int64{}
	for _, k := range in.sources {
		src := &t.sources[k]
		if value := src.label(level); value != "" {
			d := of(value)
			d.sources = append(d.sources, k)
			free[d] = nodegroups.Plus(free[d], nodegroups.Times(src.devices, int64(src.count)))
		}
	}
	for _, k := range in.offers {
		if value := t.offers[k].Labels[level]; value != "" {
			d := of(value)
			d.offers = append(d.offers, k)
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *domain) int {
		return cmp.Or(cmp.Compare(free[a], free[b]), cmp.Compare(a.name, b.name))
	})
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "/" + b
}

func (s *source) label(key string) string {
	if s.node != nil {
		return s.node.Labels[key]
	}
	return s.class.Labels[key]
}

// promises reports whether machines of the group get a label with a domain that the cloud chooses, and for how many machines such a domain
// has room; zero is any number.
func (g *Group) promises(level string) (most int, ok bool) {
	if _, told := g.Labels[level]; told {
		return 0, false
	}
	if level == corev1.LabelHostname {
		return 1, true
	}
	most, ok = g.Levels[level]
	return most, ok
}

// LevelsOf returns the levels whose domains only the cloud chooses for new machines of the group.
func (g *Group) LevelsOf(levels []string) (out []string) {
	for _, level := range levels {
		if _, ok := g.promises(level); ok && level != corev1.LabelHostname {
			out = append(out, level)
		}
	}
	return out
}

// LevelOf returns the first of LevelsOf; empty for none.
func (g *Group) LevelOf(levels []string) string {
	if levels = g.LevelsOf(levels); len(levels) > 0 {
		return levels[0]
	}
	return ""
}

// level returns the first of the gang's levels whose domain the cloud chooses for machines of the group; empty for none.
func (q *query) level(g *Group) string { return g.LevelOf(q.levels()) }

// within places pods in the best domain of the level, among them n of the podSet.
func (t *trial) within(in *domain, level string, i, n int, place func(*trial, *domain) bool) bool {
	var best *trial
	for _, d := range t.domainsIn(in, level) {
		if len(d.offers) == 0 && t.lacks(d, i, n) {
			continue
		}
		c := t.clone()
		c.between = obstacle{}
		if !place(c, d) {
			t.between = t.between.or(c.between)
		} else if best == nil || c.compare(best) < 0 {
			best = c
		}
	}
	if best == nil {
		return false
	}
	*t = *best
	return true
}

// part is a part of a gang: the podSets that share a domain of the level. The level is empty for a podSet without a common domain.
type part struct {
	level   string
	podSets []int
}

// parts returns the parts of the gang in the order of their placement.
func (t *trial) parts() (out []part) {
	groups := map[string]int{}
	for _, i := range t.placingOrder() {
		p := t.pods[i]
		if p.Group == "" {
			out = append(out, part{podSets: []int{i}})
			continue
		}
		k, known := groups[p.Group]
		if !known {
			k = len(out)
			groups[p.Group] = k
			out = append(out, part{level: p.Layers[0].Level})
		}
		out[k].podSets = append(out[k].podSets, i)
	}
	return out
}

// placeGang places the gang in the region.
func (t *trial) placeGang() bool {
	if t.policy.Topology == "" {
		return t.placeParts(t.whole())
	}
	return t.within(t.whole(), t.policy.Topology, 0, t.pods[0].Count, (*trial).placeParts)
}

// placeParts places all parts in the domain. Parts with a level get a domain in it.
func (t *trial) placeParts(in *domain) bool {
	return !slices.ContainsFunc(t.parts(), func(p part) bool { return !t.placePart(in, p) })
}

func (t *trial) placePart(in *domain, p part) bool {
	first := p.podSets[0]
	if p.level == "" {
		return t.place(first, in, t.pods[first].Layers)
	}
	return t.within(in, p.level, first, t.pods[first].Count, func(t *trial, d *domain) bool {
		return !slices.ContainsFunc(p.podSets, func(i int) bool { return !t.place(i, d, t.pods[i].Layers[1:]) })
	})
}

// bound returns the levels that require one domain for the whole podSet.
func (q *query) bound(i int) (levels []string) {
	if q.policy.Topology != "" {
		levels = append(levels, q.policy.Topology)
	}
	return append(levels, q.pods[i].Common(q.pods[i].Count)...)
}

// domainsOf returns the domains that have room for the whole podSet.
func (t *trial) domainsOf(i int) []*domain {
	out := []*domain{t.whole()}
	for _, level := range t.bound(i) {
		var in []*domain
		for _, d := range out {
			in = append(in, t.domainsIn(d, level)...)
		}
		out = in
	}
	return out
}

// lacks reports whether nodes in the domain, without launches, have room for fewer pods of the podSet.
func (t *trial) lacks(d *domain, i, n int) bool {
	for _, k := range d.sources {
		if src := &t.sources[k]; src.takes.has(i) {
			n -= src.count * t.perMachine(src.room, i, n)
		}
		if n <= 0 {
			return false
		}
	}
	return true
}
