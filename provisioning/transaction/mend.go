package transaction

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// planFor plans for the pods that are left of a gang, those that it has lost while it ran, maybe. Machines that are launched must
// come in the domain; it has no level where the plan says all.
func (v View) planFor(r *Request, rest state.Gang) (plan planner.Verdict, in cloudprovider.Domain) {
	if r.Repair != nil {
		return v.mend(r, rest)
	}
	return v.plan(r, rest), in
}

// mend plans for lost pods of a gang that runs. Where the cloud alone chooses the domain of a machine, one is launched
// in the hope that it is in theirs, and launched again if it is not: that is one attempt for a domain, and no more. Pods of
// several domains are made up for one domain after another.
func (v View) mend(r *Request, rest state.Gang) (plan planner.Verdict, in cloudprovider.Domain) {
	plan = v.plan(r, rest)
	hoped := r.Attempt.Number > r.Repair.After && r.Attempt.Failure != nil && r.Attempt.Failure.Class == v1alpha1.Scattered
	if plan.Outcome == planner.Fits || plan.Outcome == planner.Launch || hoped {
		return plan, in
	}
	levels := slices.DeleteFunc(rest.Levels(&r.Policy), func(level string) bool { return level == corev1.LabelHostname })
	if len(levels) == 0 {
		return plan, in
	}
	level := levels[len(levels)-1]
	var there []planner.Placement // the pods of other domains have room
	var launch planner.Verdict
	for domain, part := range byDomain(rest, level) {
		own := v.plan(r, part)
		if own.Outcome == planner.Fits {
			there = append(there, own.Placement...)
			continue
		}
		if own.Outcome != planner.Launch && domain != "" {
			own = v.hope(r, part, levels)
		}
		switch {
		case own.Outcome != planner.Launch:
			return plan, cloudprovider.Domain{}
		case in.Level == "":
			launch, in = own, cloudprovider.Domain{Level: level, Value: domain}
		}
	}
	if in.Level == "" {
		return plan, in
	}
	launch.Placement = append(launch.Placement, there...)
	return launch, in
}

// byDomain are the pods by the domain of the level that they are kept to, in order.
func byDomain(g state.Gang, level string) func(yield func(string, state.Gang) bool) {
	parts := map[string]state.Gang{}
	for _, ps := range g.PodSets {
		domain := ""
		if ps.Pod != nil {
			domain = ps.Pod.Selects()[level]
		}
		part, known := parts[domain]
		if !known {
			part = g
			part.PodSets = nil
		}
		part.PodSets = append(part.PodSets, ps)
		parts[domain] = part
	}
	return func(yield func(string, state.Gang) bool) {
		for _, domain := range slices.Sorted(maps.Keys(parts)) {
			if !yield(domain, parts[domain]) {
				return
			}
		}
	}
}

// hope plans new machines for pods that are kept to a domain as if they might be in any, in groups whose cloud chooses it.
func (v View) hope(r *Request, part state.Gang, levels []string) planner.Verdict {
	s := *v.Snapshot
	s.Nodes = nodeset.New()
	s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g planner.Group) bool { return len(g.LevelsOf(levels)) < len(levels) })
	v.Snapshot = &s
	podSets := part.PodSets
	part.PodSets = nil
	for _, ps := range podSets {
		labels := map[string]string{}
		for _, l := range r.Repair.Lost {
			if l.PodSet == ps.Name && isKeptTo(ps, l.Labels) {
				labels = maps.Clone(l.Labels)
			}
		}
		maps.DeleteFunc(labels, func(key, _ string) bool { return slices.Contains(levels, key) })
		at := slices.IndexFunc(r.Whole, func(o state.PodSet) bool { return o.Name == ps.Name })
		part.PodSets = append(part.PodSets, r.Whole[at].Again(r.Namespace, v.Objects, ps.Count, labels))
	}
	return v.plan(r, part)
}

// isKeptTo reports whether pods of the podSet select all these labels.
func isKeptTo(ps state.PodSet, labels map[string]string) bool {
	selected := ps.Pod.Selects()
	for key, value := range labels {
		if selected[key] != value {
			return false
		}
	}
	return true
}

// together is the domain that machines of a call must be in.
func (r *Request) together(c Call, level string) Call {
	if level != "" && c.Together.Level == "" && isWhole(r, level) {
		c.Together.Level = level
	}
	return c
}
