package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/quota"
)

// Newcomer is somebody of whom it is asked what would become of him.
type Newcomer struct {
	// Kind and Name are the job's, or the Workload's own where there is no job.
	Kind, Name string
	Workload   *kueue.Workload
	// Notes say what the answer rests on.
	Notes []string
}

// Simulation is what would become of a newcomer.
type Simulation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Summary goes on from the name, and makes a sentence with it; Unchanged says the same
	// of the cluster without the changes, and is empty where none were asked about.
	Summary   string `json:"summary"`
	Unchanged string `json:"unchanged,omitempty"`

	// Expected is when it would start that comes later. Of where, and at what price, nothing
	// is known then. It is nil for one that comes now.
	Expected *Expected `json:"expected,omitempty"`

	// Starts says that it would get its quota at once, and Ready when its machines would
	// be there.
	Starts bool   `json:"starts"`
	Ready  string `json:"ready,omitempty"`
	// ClusterQueue and Flavors are what it would get its quota from.
	ClusterQueue string       `json:"clusterQueue,omitempty"`
	Flavors      []FlavorLine `json:"flavors,omitempty"`
	// Where says what its machines are, in words.
	Where    []string     `json:"where,omitempty"`
	Launches []LaunchLine `json:"launches,omitempty"`
	Uses     []UseLine    `json:"uses,omitempty"`
	// USDPerHour is the price of all launches, and Chance that all of them come, in
	// percent.
	USDPerHour string `json:"usdPerHour,omitempty"`
	Chance     int    `json:"chancePercent,omitempty"`
	// Preempts are those who would have to leave for it.
	Preempts []HolderLine `json:"preempts,omitempty"`
	// Awaits are AdmissionChecks of other controllers, of which nobody here knows how they
	// decide.
	Awaits []string `json:"awaits,omitempty"`

	// Reason is what the Workload would be told why it waits, and Waits explains it; both
	// are empty where it starts.
	Reason string       `json:"reason,omitempty"`
	Waits  *Explanation `json:"waits,omitempty"`
	Notes  []string     `json:"notes,omitempty"`
}

// FlavorLine is what the pods of a podSet would be admitted on.
type FlavorLine struct {
	PodSet string `json:"podSet"`
	Pods   int32  `json:"pods"`
	// Flavors by resource.
	Flavors map[string]string `json:"flavors"`
}

// LaunchLine is a number of machines that would be launched.
type LaunchLine struct {
	Group      string `json:"group"`
	Market     string `json:"market"`
	Zone       string `json:"zone,omitempty"`
	Machines   int    `json:"machines"`
	USDPerHour string `json:"usdPerHour"`
	Chance     int    `json:"chancePercent"`
}

// UseLine is a machine that exists, with the pods that would run on it.
type UseLine struct {
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Pods  int    `json:"pods"`
}

// Simulate tells what would become of newcomers that come together. Unchanged is the
// Picture before what was changed about it; nil where it is as it is.
func (p *Picture) Simulate(newcomers []Newcomer, unchanged *Picture) []Simulation {
	workloads := make([]*kueue.Workload, len(newcomers))
	for i := range newcomers {
		workloads[i] = newcomers[i].Workload
	}
	workloads = forecast.Arriving(workloads, p.Now)
	with := p.With(workloads)
	var before []forecast.Outcome
	if unchanged != nil {
		before = forecast.SimulateAll(unchanged.Queues, workloads, p.Now)
	}
	out := make([]Simulation, len(newcomers))
	for i, o := range forecast.SimulateAll(p.Queues, workloads, p.Now) {
		n, w := &newcomers[i], workloads[i]
		s := &out[i]
		*s = Simulation{Kind: n.Kind, Namespace: w.Namespace, Name: n.Name, Starts: o.Starts, Notes: n.Notes, Preempts: with.victims(o.Victims)}
		for _, check := range o.Awaits {
			s.Awaits = append(s.Awaits, string(check))
		}
		if unchanged != nil {
			s.Unchanged = p.inShort(&before[i])
		}
		if o.Starts {
			s.Summary = p.inShort(&o)
			s.admitted(&o)
			s.placed(p, o.Plan)
			continue
		}
		s.Reason, s.Waits = o.Reason, with.ExplainWorkload(w)
		s.Waits.Kind, s.Waits.Name = n.Kind, n.Name
		s.Summary = "would not start now: it " + s.Waits.Summary
	}
	return out
}

// SimulateLater tells when newcomers would start that come together at a later time, if
// nobody else comes.
func (p *Picture) SimulateLater(newcomers []Newcomer, at time.Time) ([]Simulation, error) {
	history, waiting := p.History()
	switch {
	case waiting > MostForeseen:
		return nil, fmt.Errorf("%d workloads wait, and with more than %d a forecast takes too long: simulate it as of now", waiting, MostForeseen)
	case at.Before(p.Now) || at.After(p.Now.Add(forecast.Horizon)):
		return nil, fmt.Errorf("%s is not within the next %d days, for which a forecast may be made", stamp(at), int(forecast.Horizon.Hours())/24)
	}
	workloads := make([]*kueue.Workload, len(newcomers))
	for i := range newcomers {
		if workloads[i] = newcomers[i].Workload; workloads[i].UID != "" {
			return nil, fmt.Errorf("%s %s waits already: simulate it as of now, or under another metadata.name", newcomers[i].Kind, newcomers[i].Name)
		}
	}
	out := make([]Simulation, len(newcomers))
	for i, e := range forecast.Arrivals(p.Queues, history, workloads, at, p.Now, forecast.Horizon) {
		n := &newcomers[i]
		out[i] = Simulation{
			Kind: n.Kind, Namespace: n.Workload.Namespace, Name: n.Name, Expected: p.expected(&e),
			Notes: append(slices.Clip(n.Notes), "nobody else comes until then, and run times are as before or as the maximum execution time says, else unknown"),
		}
		out[i].Summary = fmt.Sprintf("would come %s, and is expected to start %s", in(p.Now, at), out[i].Expected.Words[0])
	}
	return out, nil
}

// inShort says what an outcome comes to.
func (p *Picture) inShort(o *forecast.Outcome) string {
	if !o.Starts {
		return "would not start now: it " + inWords(o.Reason)
	}
	out := "would start at once"
	if p.Now.Before(o.At) {
		out = "would start " + in(p.Now, o.At)
	}
	out += ", on " + flavorsOf(o.Admission)
	if n := len(o.Victims); n > 0 {
		out += fmt.Sprintf(", after preempting %d", n)
	}
	if len(o.Awaits) > 0 {
		names := make([]string, len(o.Awaits))
		for i, check := range o.Awaits {
			names[i] = string(check)
		}
		out += ", once AdmissionChecks of others are Ready: " + strings.Join(names, ", ")
	}
	return out
}

func (s *Simulation) admitted(o *forecast.Outcome) {
	s.Ready, s.ClusterQueue = stamp(o.At), string(o.Admission.ClusterQueue)
	for i := range o.Admission.PodSetAssignments {
		a := &o.Admission.PodSetAssignments[i]
		line := FlavorLine{PodSet: string(a.Name), Flavors: map[string]string{}}
		if a.Count != nil {
			line.Pods = *a.Count
		}
		for name, flavor := range a.Flavors {
			line.Flavors[string(name)] = string(flavor)
		}
		s.Flavors = append(s.Flavors, line)
	}
}

// placed tells what a plan takes.
func (s *Simulation) placed(p *Picture, plan *provisioning.Verdict) {
	if plan == nil {
		s.Where = []string{"no check of its queue asks for machines: its pods run where kube-scheduler finds room"}
		return
	}
	s.Where, s.USDPerHour, s.Chance = []string{machinesOf(plan)}, provisioning.USD(plan.MicroUSDPerHour), plan.Chance/10
	if plan.Outcome == provisioning.Fits {
		s.Chance = 100
	}
	for _, l := range plan.Launches {
		for i := range p.Snapshot.Groups {
			if g := &p.Snapshot.Groups[i]; g.Name == l.Group {
				s.Launches = append(s.Launches, LaunchLine{
					Group: g.Name, Market: string(g.CapacityType), Zone: g.Zone, Machines: l.Count,
					USDPerHour: provisioning.USD(g.MicroUSDPerHour * int64(l.Count)), Chance: g.Chance(l.Count, p.Now) / 10,
				})
			}
		}
	}
	for i := range plan.Placement {
		at := &plan.Placement[i]
		line := UseLine{Node: at.Node}
		if n := p.Snapshot.Nodes.Find(at.Node); n != nil {
			line.Group = n.Group
		}
		for _, pods := range at.Pods {
			line.Pods += pods
		}
		s.Uses = append(s.Uses, line)
	}
}

// victims are those of the names with what they have.
func (p *Picture) victims(names []types.NamespacedName) (out []HolderLine) {
	for _, name := range names {
		w := p.WorkloadNamed(name.Namespace, name.Name)
		line := HolderLine{Workload: name.String(), Priority: priorityOf(w)}
		// A newcomer that is preempted by another one has no admission yet.
		if a := w.Status.Admission; a != nil {
			line.Queue, line.Has = string(a.ClusterQueue), usageOf(a)
		}
		out = append(out, line)
	}
	return out
}

// usageOf is the quota that an admission takes.
func usageOf(a *kueue.Admission) string {
	sum := quota.Amounts{}
	for i := range a.PodSetAssignments {
		ps := &a.PodSetAssignments[i]
		used := nodegroups.ResourcesFrom(ps.ResourceUsage)
		for _, name := range slices.Sorted(maps.Keys(ps.Flavors)) {
			sum.Add(quota.Amounts{{Flavor: ps.Flavors[name], Resource: name}: used[name]})
		}
	}
	return inUnits(sum)
}

// Comparison is what changes would mean for those that wait.
type Comparison struct {
	// Start are those that would start now and do not without the changes; Wait are those
	// of whom it is the other way round.
	Start []ChangeLine `json:"start"`
	Wait  []ChangeLine `json:"wait"`
	// StartAnyway and WaitAnyway count the others.
	StartAnyway int `json:"startAnyway"`
	WaitAnyway  int `json:"waitAnyway"`
}

// ChangeLine is a Workload for which changes would matter.
type ChangeLine struct {
	ClusterQueue string `json:"clusterQueue"`
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	Workload     string `json:"workload"`
	Priority     int32  `json:"priority"`
	// Summary is what would become of it.
	Summary string `json:"summary"`
	// Where says what its machines would be; Message why it would wait.
	Where   string `json:"where,omitempty"`
	Message string `json:"message,omitempty"`
}

// Compare tells which of those that wait would start if things were as they are in the
// other Picture, and which would not any more.
func (p *Picture) Compare(changed *Picture) *Comparison {
	out := &Comparison{Start: []ChangeLine{}, Wait: []ChangeLine{}}
	before := forecast.Prospects(p.Queues, p.Now)
	for i, then := range forecast.Prospects(changed.Queues, p.Now) {
		switch now := &before[i]; {
		case now.Starts && then.Starts:
			out.StartAnyway++
		case !now.Starts && !then.Starts:
			out.WaitAnyway++
		case then.Starts:
			line := changed.changeOf(&then, then.Admission)
			if then.Plan != nil {
				line.Where = machinesOf(then.Plan)
			}
			out.Start = append(out.Start, line)
		default:
			line := changed.changeOf(&then, now.Admission)
			line.Message = then.Message
			out.Wait = append(out.Wait, line)
		}
	}
	return out
}

func (p *Picture) changeOf(of *forecast.Prospect, a *kueue.Admission) ChangeLine {
	l := p.lineOf(string(a.ClusterQueue), of.Workload)
	return ChangeLine{
		ClusterQueue: l.ClusterQueue, Namespace: l.Namespace, Name: l.Name, Workload: l.Workload, Priority: l.Priority, Summary: p.inShort(&of.Outcome),
	}
}
