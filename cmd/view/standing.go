package view

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/standing"
)

// A user with rights in one namespace gets what Muster has published on the LocalQueues there.

// standingOf returns the LocalQueue of a Workload with what is published on it; nil if nothing is.
func (p *Picture) standingOf(w *kueue.Workload) (*kueue.LocalQueue, *standing.Standing) {
	lq := p.localQueues[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]
	if lq == nil {
		return nil, nil
	}
	return lq, standing.Of(lq)
}

// explainStanding adds the position, the estimate of the start and the price that are published for a Workload that waits.
func (p *Picture) explainStanding(out *Explanation, w *kueue.Workload) {
	lq, s := p.standingOf(w)
	if s == nil {
		return
	}
	if place, ok := s.Places[w.Name]; ok && out.Place == nil {
		out.Place = &Place{ClusterQueue: string(lq.Spec.ClusterQueue), LocalQueue: lq.Name, Priority: priorityOf(w), Position: place.Position,
			Pending: s.Pending, Waited: ago(p.Now, w.CreationTimestamp.Time)}
		out.Expected = &Expected{Start: stamp(place.Start), Early: stamp(place.Early), Late: stamp(place.Late),
			Words: []string{p.startOf(&place)}, Basis: "as Muster has published on the LocalQueue, to the minute"}
	}
	out.Prices = pricesIn(s, w)
}

// startOf puts the start that is published in words.
func (p *Picture) startOf(place *standing.Place) string {
	switch {
	case place.Start.IsZero():
		return "at an unknown time: it depends on jobs whose run times are not known, or is days away"
	case place.Late.IsZero():
		return in(p.Now, place.Start)
	}
	return fmt.Sprintf("%s; most likely from %s to %s", in(p.Now, place.Start), stamp(place.Early), stamp(place.Late))
}

// pricesIn say what machines for the pods of a Workload cost on each flavor, if its pods have them to themselves.
func pricesIn(s *standing.Standing, w *kueue.Workload) (out []string) {
	_, devices := history.DevicesOf(w)
	for _, f := range s.Flavors {
		var machines int64
		for name, n := range devices {
			if each := f.Devices[name]; each > 0 {
				machines = max(machines, (n+each-1)/each)
			}
		}
		if f.USDPerHour != "" && machines > 0 {
			out = append(out, fmt.Sprintf("flavor %s: %s at %s USD per hour each", f.Name, text.Machines(int(machines)), f.USDPerHour))
		}
	}
	return out
}

// SimulatePublished answers for jobs of a caller that may not read what decisions depend on, from the free quota, the line and the prices
// that are published. ok reports whether they are, for all of the jobs.
func (p *Picture) SimulatePublished(submissions []Submission) (out []Simulation, ok bool) {
	for i := range submissions {
		n := &submissions[i]
		lq, s := p.standingOf(n.Workload)
		if s == nil {
			return nil, false
		}
		requested := nodegroups.Resources{}
		for j := range n.Workload.Spec.PodSets {
			ps := &n.Workload.Spec.PodSets[j]
			requested.Add(podsOf(&ps.Template, int(ps.Count)).requests, int(ps.Count))
		}
		line := Simulation{Kind: n.Kind, Namespace: n.Workload.Namespace, Name: n.Name, Notes: slices.Clip(n.Notes),
			Where: pricesIn(s, n.Workload)}
		line.Summary = fmt.Sprintf("would wait for quota of ClusterQueue %s", lq.Spec.ClusterQueue)
		var short []string
		for _, f := range s.Flavors {
			lacking := lackingIn(&f, requested)
			if len(lacking) == 0 {
				line.Summary = fmt.Sprintf("would have quota at once, on flavor %s of ClusterQueue %s", f.Name, lq.Spec.ClusterQueue)
				short = nil
				break
			}
			short = append(short, fmt.Sprintf("flavor %s: %s", f.Name, strings.Join(lacking, ", ")))
		}
		line.Notes = append(line.Notes, short...)
		if s.Pending > 0 {
			line.Notes = append(line.Notes, fmt.Sprintf("jobs that wait there: %d; those of the same or a higher priority come first", s.Pending))
		}
		line.Notes = append(line.Notes, "this is by what Muster has published for your namespace: the machines and other jobs were not looked at")
		out = append(out, line)
	}
	return out, true
}

// lackingIn are the resources of which more is requested than is free of a flavor.
func lackingIn(f *standing.Flavor, requested nodegroups.Resources) (out []string) {
	free, nominal := nodegroups.ResourcesFrom(f.Free), nodegroups.ResourcesFrom(f.Nominal)
	for _, name := range requested.Names() {
		if _, ok := f.Nominal[name]; ok && requested[name] > free[name] {
			out = append(out, fmt.Sprintf("%s %s requested, %s of %s are free", nodegroups.Quantity(name, requested[name]), name,
				nodegroups.Quantity(name, free[name]), nodegroups.Quantity(name, nominal[name])))
		}
	}
	return out
}
