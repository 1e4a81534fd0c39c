package transaction

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// A gang that requires one domain, such as a rack, may be launched where only the cloud chooses the domain. Its machines count as joined
// when their labels have a domain. When all have joined, the machines outside of the largest domain are terminated and replaced by new
// ones, a few times; then all are terminated. No pod is admitted before.

// levelsIn returns the node labels of the domains that machines launched in the group are checked for: those that the gang requires, and
// that the group's template does not set.
func levelsIn(r *Request, v View, group string) []string {
	g := v.FindGroup(group)
	if g == nil {
		return nil
	}
	return g.LevelsOf(r.Gang.Levels(&r.Policy))
}

// levelIn returns the level of the attempt's domain if it is among levelsIn, or else the first of them; empty for none.
func levelIn(r *Request, v View, group string) (level string) {
	levels := levelsIn(r, v, group)
	switch {
	case len(levels) == 0:
		return ""
	case slices.Contains(levels, r.Attempt.Level):
		return r.Attempt.Level
	}
	return levels[0]
}

// misplaced returns the machines that are recorded as misplaced and not terminated yet. Machines that run pods stay, and get no pods of
// the gang.
func misplaced(r *Request, v View) (left []cloudprovider.Machine) {
	for _, m := range v.Machines {
		if m.State < cloudprovider.Terminated && r.Attempt.lost(m) {
			left = append(left, m)
		}
	}
	left, _ = parted(v, left)
	return left
}

// gatherAgain handles machines that have all joined and have no room for the gang. If they are in several domains, it keeps the largest
// one, the first by name of equal ones, or the one in which the rest of the gang runs. It launches the other machines again, or gives the
// attempt up. apart is false if there is nothing to do.
func gatherAgain(r *Request, v View) (s Step, apart bool) {
	level, group := "", (*planner.Group)(nil)
	in := map[string][]cloudprovider.Machine{}
	nodes, booked := map[string]string{}, map[string]string{} // domains, and names of nodes that are booked, by provider ID
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if l := levelIn(r, v, n.Group); l != "" {
			level, group, nodes[n.ProviderID] = l, v.FindGroup(n.Group), n.Labels[l]
			if n.BookingOf(r.UID) != nil {
				booked[n.ProviderID] = n.Name
			}
		}
	}
	for _, m := range v.Machines {
		if domain, ok := nodes[m.ProviderID]; ok && m.State < cloudprovider.Terminated && !r.Attempt.lost(m) {
			in[domain] = append(in[domain], m)
		}
	}
	wanted := r.Attempt.Domain
	whole := wanted != "" || isWhole(r, level)
	if elsewhere := wanted != "" && len(in) == 1 && in[wanted] == nil; len(in) < 2 && !elsewhere {
		return s, false
	}
	rank := func(domain string) int {
		if domain == wanted {
			return 0
		}
		return 1
	}
	if wanted != "" && in[wanted] == nil {
		in[wanted] = []cloudprovider.Machine{} // it is kept, even if no machine has joined it
	}
	domains := slices.SortedFunc(maps.Keys(in), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), -cmp.Compare(len(in[a]), len(in[b])), strings.Compare(a, b))
	})
	var said []string
	var others []cloudprovider.Machine
	for i, d := range domains {
		said = append(said, fmt.Sprintf("%d in %s", len(in[d]), d))
		if i > 0 {
			others = append(others, in[d]...)
		}
	}
	why := fmt.Sprintf("the machines are scattered over domains of %s: %s", level, strings.Join(said, ", "))
	again := len(others) + len(r.Attempt.losses())
	most := group.Levels[level]
	_, may := r.mayBuy(v, r.Attempt, len(others))
	if !whole || most > 0 && len(nodes) > most || again > min(r.Attempt.machines(), mostLost) || !inTime(r, v, others) || !may {
		c := r.Attempt.Calls(r.UID)[0]
		f := failure(v, c, v1alpha1.Scattered, "%s", why)
		f.Got, f.Level = len(in[domains[0]]), level
		return rollBack(r, v, f), true
	}
	a := r.Attempt
	record := Replacement{Started: v.Now, Level: level, Domain: domains[0]}
	var unbook []string // the room that was booked beside them has gone
	for _, m := range others {
		record.Lost = append(record.Lost, LostMachine{Group: m.Group, Name: m.Name, Launch: m.Launch})
		if name := booked[m.ProviderID]; name != "" {
			unbook = append(unbook, name)
		}
	}
	a.Replacements = append(slices.Clip(a.Replacements), record)
	return Step{Do: Replace, Attempt: a, Unbook: unbook, Condition: r.attempting(a, "keeps %s and launches %s again: %s",
		domains[0], text.Machines(len(others)), why)}, true
}

// isWhole reports whether a podSet of the request must be in one domain of the level, rather than each slice of it.
func isWhole(r *Request, level string) bool {
	return level == r.Policy.Topology || slices.ContainsFunc(r.Gang.PodSets, func(ps state.PodSet) bool {
		domains, _ := fit.DomainsOf(ps.Template, ps.Count)
		return slices.Contains(domains.Common(ps.Count), level)
	})
}

// sayDomains lists the domains of the gang's nodes, for the levels that require one domain.
func sayDomains(r *Request, v View) (said string) {
	for _, level := range r.Gang.Levels(&r.Policy) {
		var values []string
		for _, nodes := range []iter.Seq[*state.Node]{v.Nodes.BookedBy(r.UID), v.Nodes.LaunchedBy(r.Gang.Launch)} {
			for n := range nodes {
				if lost := n.Machine != nil && r.Attempt.lost(*n.Machine); !lost && !slices.Contains(values, n.Labels[level]) {
					values = append(values, n.Labels[level])
				}
			}
		}
		if level != corev1.LabelHostname && len(values) == 1 && values[0] != "" && isWhole(r, level) {
			said += fmt.Sprintf(", in %s=%s", level, values[0])
		}
	}
	return said
}

// inTime reports whether the groups of the machines still have time to join in this attempt.
func inTime(r *Request, v View, machines []cloudprovider.Machine) bool {
	return !slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool {
		g := v.FindGroup(m.Group)
		return g == nil || !v.Now.Before(r.Attempt.Started.Add(g.JoinTimeout))
	})
}
