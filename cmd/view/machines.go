package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
)

// podsLike is a number of identical pods.
type podsLike struct {
	count    int
	requests nodegroups.Resources
	// levels are the node labels of the domains that they must be within.
	levels []string
}

func podsOf(template *corev1.PodTemplateSpec, count int) podsLike {
	domains, _ := fit.DomainsOf(template, count)
	return podsLike{count, fit.TemplateRequests(&template.Spec), domains.Levels()}
}

func podSetsOf(w *kueue.Workload) (out []podsLike) {
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		out = append(out, podsOf(&ps.Template, int(ps.Count)))
	}
	return out
}

// needed returns how many machines of the group the pods take; 0 if they fit on none.
func needed(g *planner.Group, pods []podsLike) (n int) {
	for _, p := range pods {
		if per := g.Usable.Times(p.requests, p.count); per > 0 {
			n += (p.count + per - 1) / per
		}
	}
	return n
}

// groupsFor describes each group that the plan launches in or gives a reason about. Groups
// that can never fit the pods are left out if there are others.
func (p *Picture) groupsFor(flavor string, pods []podsLike, plan *planner.Verdict) (lines []CapacityLine, unblock []string) {
	misfit := func(code planner.ReasonCode) bool {
		return code == planner.CodeTaint || code == planner.CodeConstraint || code == planner.CodeCapacityType || code == planner.CodeTooSmall
	}
	some := len(plan.Launches) > 0 || slices.ContainsFunc(plan.Reasons, func(r planner.Reason) bool {
		return r.Group != "" &&
			!misfit(r.Code)
	})
	for i := range p.Snapshot.Groups {
		g := &p.Snapshot.Groups[i]
		line := p.capacityOf(g, pods)
		line.Flavor = flavor
		var said []string
		excluded := false
		for _, r := range plan.Reasons {
			excluded = excluded || r.Group == g.Name && r.Until.IsZero()
			if r.Group == g.Name && (!some || !misfit(r.Code)) {
				said = append(said, r.Message)
			}
			switch {
			case r.Group != g.Name:
			case !r.Until.IsZero():
				// The planner knows within which domain the launch would have to be.
				line.Backoff = r.Until.UTC().Format(time.RFC3339)
				unblock = append(unblock, fmt.Sprintf("time: the backoff of NodeGroup %s ends %s", g.Name, in(p.Now, r.Until)))
			case r.Code == planner.CodeMaxNodes:
				unblock = append(unblock, fmt.Sprintf("an administrator raises spec.maxNodes of NodeGroup %s by %d%s", g.Name,
					line.Needed-max(0, g.Max-g.Machines), orLess(g)))
			}
		}
		launched := slices.ContainsFunc(plan.Launches, func(l planner.GroupCount) bool { return l.Group == g.Name })
		if len(said) > 0 || launched {
			if line.Why = strings.Join(said, "; "); excluded {
				line.Chance = nil
			}
			lines = append(lines, line)
		}
	}
	return lines, unblock
}

// machinesTaken lists the requests that have the machines of groups at their maximum size,
// by group and request.
func (p *Picture) machinesTaken(plan *planner.Verdict) (out []MachinesLine) {
	full := map[string]bool{}
	for _, r := range plan.Reasons {
		full[r.Group] = full[r.Group] || r.Code == planner.CodeMaxNodes
	}
	for n := range p.Snapshot.Nodes.All() {
		if !full[n.Group] {
			continue
		}
		for _, b := range n.Labelled {
			request := b.Namespace + "/" + b.Key
			i := slices.IndexFunc(out, func(l MachinesLine) bool { return l.Group == n.Group && l.Request == request })
			if i < 0 {
				i = len(out)
				out = append(out, MachinesLine{Group: n.Group, Request: request})
				if e, ok := p.machines.Request(b.UID); ok {
					out[i].Priority = e.Priority
				}
			}
			out[i].Machines++
			out[i].Pods += b.Running
		}
	}
	slices.SortFunc(out, func(a, b MachinesLine) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Request, b.Request))
	})
	return out
}

// orLess adds the alternative that existing machines are released.
func orLess(g *planner.Group) string {
	if g.Machines == 0 {
		return ""
	}
	return fmt.Sprintf(", or some of its %d machines are removed", g.Machines)
}

// capacityOf describes a group for these pods.
func (p *Picture) capacityOf(g *planner.Group, pods []podsLike) CapacityLine {
	n := needed(g, pods)
	var levels []string
	for i := range pods {
		levels = append(levels, pods[i].levels...)
	}
	level := g.LevelOf(levels)
	out := CapacityLine{
		Group: g.Name, CapacityType: string(g.CapacityType), USDPerHour: priceOf(&g.Group),
		Machines: g.Machines, MaxMachines: g.Max, Needed: n,
	}
	if n > 0 && n <= g.Max {
		out.Chance = new(g.Chance(n, level, p.Now) / 10)
	}
	if failure := lastFailure(p.Groups[g.Name]); failure != nil {
		out.LastFailure = fmt.Sprintf("%s, %s ago", failure.Class, ago(p.Now, failure.Time.Time))
	}
	if until, _ := g.BlockedUntil(n, level); p.Now.Before(until) {
		out.Backoff = until.UTC().Format(time.RFC3339)
	}
	return out
}

// lastFailure returns the newest failure on record; nil if there is none.
func lastFailure(g *v1alpha1.NodeGroup) *v1alpha1.LaunchAttempt {
	for i := range g.Status.Attempts {
		if a := &g.Status.Attempts[i]; a.Class != "" {
			return a
		}
	}
	return nil
}
