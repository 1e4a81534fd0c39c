package transaction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// A gang that must be within one domain, such as a rack, may be launched where the cloud alone
// chooses the domain. Its machines count as joined once their labels tell it, and are judged
// once all have joined: those outside of the largest domain are taken back, and as many are
// launched again, a few times; then all are given back. No pod is let in before.

// levelIn is the node label of the domains that machines launched in the group are judged by;
// empty where the gang is bound to none, or the group's template tells the domain.
func levelIn(r *Request, v View, group string) string {
	g := v.FindGroup(group)
	if g == nil {
		return ""
	}
	return g.Level(&r.Policy)
}

// misplaced are the machines that are on record as such and are not taken back yet.
func misplaced(r *Request, v View) (left []cloudprovider.Machine) {
	for _, m := range v.Machines {
		if m.State < cloudprovider.Terminated && r.Attempt.lost(m) {
			left = append(left, m)
		}
	}
	return left
}

// gatherAgain judges machines that have all joined. Where they are in several domains it keeps
// the largest, the first by name of equal ones, and launches the others again, or gives the
// attempt up; apart is false where there is nothing to do.
func gatherAgain(r *Request, v View) (s Step, apart bool) {
	level := ""
	in := map[string][]cloudprovider.Machine{}
	nodes := map[string]string{} // domains by provider ID
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if l := levelIn(r, v, n.Group); l != "" {
			level, nodes[n.ProviderID] = l, n.Labels[l]
		}
	}
	for _, m := range v.Machines {
		if domain, ok := nodes[m.ProviderID]; ok && m.State < cloudprovider.Terminated && !r.Attempt.lost(m) {
			in[domain] = append(in[domain], m)
		}
	}
	if len(in) < 2 {
		return s, false
	}
	domains := slices.SortedFunc(maps.Keys(in), func(a, b string) int {
		return cmp.Or(-cmp.Compare(len(in[a]), len(in[b])), strings.Compare(a, b))
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
	if again > min(r.Attempt.machines(), mostLost) || !inTime(r, v, others) {
		c := r.Attempt.Calls(r.UID)[0]
		f := failure(v, c, v1alpha1.Scattered, "%s", why)
		f.Got, f.Level = len(in[domains[0]]), level
		return rollBack(r, v, f), true
	}
	a := r.Attempt
	record := Replacement{Started: v.Now, Level: level, Domain: domains[0]}
	for _, m := range others {
		record.Lost = append(record.Lost, LostMachine{Group: m.Group, Name: m.Name, Launch: m.Launch})
	}
	a.Replacements = append(slices.Clip(a.Replacements), record)
	return Step{Do: Replace, Attempt: a, Condition: r.underway("Attempt %d keeps %s and launches %s again: %s",
		a.Number, domains[0], text.Machines(len(others)), why)}, true
}

// inTime reports whether the groups of the machines still have time to join in this attempt.
func inTime(r *Request, v View, machines []cloudprovider.Machine) bool {
	return !slices.ContainsFunc(machines, func(m cloudprovider.Machine) bool {
		g := v.FindGroup(m.Group)
		return g == nil || !v.Now.Before(r.Attempt.Started.Add(g.JoinTimeout))
	})
}
