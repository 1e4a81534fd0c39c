package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/scheduler"
)

func roomLineOf(o *scheduler.FlavorExplanation) RoomLine {
	r := o.Topology
	out := RoomLine{Flavor: string(o.Flavor), PodSet: string(r.PodSet), Pods: r.Pods, Domain: r.Domain.Values, Fits: r.Domain.Count}
	for _, name := range r.Short.Names() {
		if v := r.Short[name]; v > 0 {
			if out.Short == nil {
				out.Short = map[string]string{}
			}
			out.Short[string(name)] = nodegroups.Quantity(name, v)
		}
	}
	if r.EmptyBest != nil {
		out.TooSmall, out.MostDomain, out.MostFits = true, r.EmptyBest.Values, r.EmptyBest.Count
	}
	for _, release := range r.Releases {
		line := ReleaseLine{Domain: release.Domain}
		for _, l := range release.Workloads {
			line.Leaving = append(line.Leaving, LeavingLine{Workload: l.Namespace + "/" + l.Name, Pods: l.Pods, Moves: l.Moves})
		}
		out.Releases = append(out.Releases, line)
	}
	return out
}

// causes say what is short in the domain with most room.
func (l *RoomLine) causes() []string {
	switch {
	case l.TooSmall && len(l.MostDomain) > 0:
		return []string{fmt.Sprintf("flavor %s: too few nodes are in one place even without other workloads: the most room would be in %s, "+
			"for %d of %d pods", l.Flavor, strings.Join(l.MostDomain, "/"), l.MostFits, l.Pods)}
	case l.TooSmall:
		return []string{fmt.Sprintf("flavor %s: no node that takes pods now suits its pods, even without other workloads", l.Flavor)}
	case len(l.Short) == 0 || len(l.Domain) == 0:
		return nil
	}
	var short []string
	for _, name := range slices.Sorted(maps.Keys(l.Short)) {
		short = append(short, l.Short[name]+" "+name)
	}
	return []string{fmt.Sprintf("flavor %s: %s has most room, for %d of %d pods; the others request %s", l.Flavor,
		strings.Join(l.Domain, "/"), l.Fits, l.Pods, strings.Join(short, ", "))}
}

// unblock reports which Workloads would make room.
func (l *RoomLine) unblock() (out []string) {
	if l.TooSmall {
		return []string{fmt.Sprintf("flavor %s: nodes are added or open to pods again, or the job requests less", l.Flavor)}
	}
	for _, r := range l.Releases {
		var leaving []string
		for _, x := range r.Leaving {
			leaving = append(leaving, fmt.Sprintf("%s (%s there)", x.Workload, text.Pods(int(x.Pods))))
		}
		fits := "all pods have room"
		if len(r.Domain) > 0 {
			fits += " in " + strings.Join(r.Domain, "/")
		}
		said := fmt.Sprintf("flavor %s: %s once %s has ended", l.Flavor, fits, leaving[0])
		switch {
		case len(leaving) > 1:
			said = fmt.Sprintf("flavor %s: %s once these have ended: %s", l.Flavor, fits, strings.Join(leaving, ", "))
		case r.Leaving[0].Moves:
			said += "; that one would have room elsewhere if it were started again"
		}
		out = append(out, said)
	}
	return out
}
