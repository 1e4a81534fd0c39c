package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/state"
)

// EquivalenceClass is equal for gangs with the same demand under the same policy. Names of podSets do not count. It is empty if the demand
// is unknown.
func EquivalenceClass(g *state.Gang, p *state.Policy) string {
	type podSet struct {
		Count   int
		Labels  map[string]string
		Domains fit.Domains
		Spec    corev1.PodSpec
	}
	podSets := make([]podSet, len(g.PodSets))
	for i := range g.PodSets {
		t := g.PodSets[i].Template
		domains, _ := fit.DomainsOf(t, g.PodSets[i].Count)
		podSets[i] = podSet{g.PodSets[i].Count, t.Labels, domains, t.Spec}
	}
	text, err := json.Marshal(podSets)
	if err != nil {
		return "" // it is equivalent to none
	}
	sum := sha256.Sum256(fmt.Appendf(text, " of %+v by %+v", g.Tenant(), *p))
	return hex.EncodeToString(sum[:])
}

// Plan is Plan for the remaining pods of a gang of the class. A nil receiver caches nothing.
func (m *Memo) Plan(s *Snapshot, class string, rest state.Gang, policy state.Policy) Verdict {
	if m == nil || class == "" || hasStake(s, &rest) || slices.ContainsFunc(rest.PodSets, state.PodSet.Refused) {
		return Plan(s, rest, policy)
	}
	v, known := m.inadmissible[class]
	if !known {
		if v = Plan(s, anonymous(rest), policy); v.Outcome == Wait || v.Outcome == Never {
			m.inadmissible[class] = v
		}
	}
	return named(v, rest)
}

// hasStake reports whether some node means something else to the gang than to equivalent gangs, such as its own booking.
func hasStake(s *Snapshot, g *state.Gang) bool {
	for _, nodes := range []iter.Seq[*state.Node]{
		s.Nodes.BookedBy(g.UID), s.Nodes.OwnedBy(nodeset.KeyedBy(g.Key)), s.Nodes.LaunchedBy(g.Launch),
	} {
		for range nodes {
			return true
		}
	}
	return false
}

// anonymous returns the gang with its podSets named by their index, so that messages suit all equivalent gangs.
func anonymous(g state.Gang) state.Gang {
	g.PodSets = slices.Clone(g.PodSets)
	for i := range g.PodSets {
		ps := &g.PodSets[i]
		ps.Name = placeholder(i)
		if ps.Pod != nil {
			pod := *ps.Pod
			pod.Name = ps.Name
			ps.Pod = &pod
		}
	}
	return g
}

// placeholder is no name that a podSet can have.
func placeholder(i int) string { return "<" + strconv.Itoa(i) + ">" }

// named replaces the names of an anonymous gang in the verdict.
func named(v Verdict, g state.Gang) Verdict {
	var names []string
	for i := range g.PodSets {
		names = append(names, placeholder(i), g.PodSets[i].Name)
	}
	replacer := strings.NewReplacer(names...)
	v.Reasons = slices.Clone(v.Reasons)
	for i := range v.Reasons {
		v.Reasons[i].Message = replacer.Replace(v.Reasons[i].Message)
	}
	return v
}
