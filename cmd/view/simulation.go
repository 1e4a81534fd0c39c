package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/quota"
)

// Submission is a Workload to be simulated.
type Submission struct {
	// Kind and Name are the job's, or the Workload's own if it has no job.
	Kind, Name string
	Workload   *kueue.Workload
	// Notes say what the answer rests on.
	Notes []string
}

// Simulation is the outcome for one submission.
type Simulation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Summary goes on from the name, and makes a sentence with it; Unchanged says the same
	// of the cluster without the changes, and is empty where none were asked about.
	Summary   string `json:"summary"`
	Unchanged string `json:"unchanged,omitempty"`

	// Expected is the estimated start of a job that arrives later; nil if it arrives now.
	// Its machines and price are not estimated.
	Expected *Expected `json:"expected,omitempty"`

	// Starts reports whether it would get quota at once; Ready is when its machines would be
	// ready.
	Starts bool   `json:"starts"`
	Ready  string `json:"ready,omitempty"`
	// ClusterQueue and Flavors are those that its quota would come from.
	ClusterQueue string       `json:"clusterQueue,omitempty"`
	Flavors      []FlavorLine `json:"flavors,omitempty"`
	// Where describes its machines in words.
	Where    []string     `json:"where,omitempty"`
	Launches []LaunchLine `json:"launches,omitempty"`
	Uses     []UseLine    `json:"uses,omitempty"`
	// USDPerHour is the price of all launches; Chance is the probability that all succeed,
	// in percent.
	USDPerHour string `json:"usdPerHour,omitempty"`
	Chance     int    `json:"chancePercent,omitempty"`
	// Preempts are the Workloads that it would preempt.
	Preempts []HolderLine `json:"preempts,omitempty"`
	// Awaits are AdmissionChecks of other controllers, whose answer cannot be predicted.
	Awaits []string `json:"awaits,omitempty"`

	// Clusters are those that could run it, if other clusters run the jobs of its queue, in the order in which they would be asked. Cluster
	// is the first, and There the outcome in it.
	Clusters []ClusterOutcome `json:"clusters,omitempty"`
	Cluster  string           `json:"cluster,omitempty"`
	There    *Simulation      `json:"inCluster,omitempty"`

	// Reason is the reason of QuotaReserved=False, and Waits explains it; both are empty if
	// it starts.
	Reason string       `json:"reason,omitempty"`
	Waits  *Explanation `json:"waits,omitempty"`
	Notes  []string     `json:"notes,omitempty"`

	// uid is that of its Workload, and among the Picture in which it waits.
	uid   types.UID
	among *Picture
}

// Foresee estimates when those of the simulated jobs start that would wait. The error is that of Picture.Foresee.
func Foresee(ctx context.Context, simulations []Simulation) error {
	var among *Picture
	for i := range simulations {
		s := &simulations[i]
		if s.Waits == nil || s.Waits.Place == nil || s.Waits.Never {
			continue
		}
		if among == nil {
			if among = s.among; among.Foreseen == nil {
				if err := among.Foresee(ctx); err != nil {
					return err
				}
			}
		}
		s.Waits.Expected = among.Expected(s.uid)
	}
	return nil
}

// FlavorLine is the flavor assignment of a podSet.
type FlavorLine struct {
	PodSet string `json:"podSet"`
	Pods   int32  `json:"pods"`
	// Flavors by resource.
	Flavors map[string]string `json:"flavors"`
}

// LaunchLine is a number of machines that would be launched.
type LaunchLine struct {
	Group        string `json:"group"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone,omitempty"`
	Machines     int    `json:"machines"`
	USDPerHour   string `json:"usdPerHour"`
	Chance       int    `json:"chancePercent"`
}

// UseLine is an existing machine with the pods that would run on it.
type UseLine struct {
	Node  string `json:"node"`
	Group string `json:"group,omitempty"`
	Pods  int    `json:"pods"`
}

// Simulate returns the outcome for submissions that arrive together. Unchanged is the Picture
// before the changes that are simulated; nil if there are none. The workers are the clusters that could run them.
func (p *Picture) Simulate(submissions []Submission, unchanged *Picture, workers ...Worker) []Simulation {
	workloads := make([]*kueue.Workload, len(submissions))
	for i := range submissions {
		workloads[i] = submissions[i].Workload
	}
	workloads = forecast.Arriving(workloads, p.Now)
	with := p.With(workloads)
	var before []forecast.Outcome
	if unchanged != nil {
		before = forecast.SimulateAll(unchanged.Queues, workloads, p.Now)
	}
	out := make([]Simulation, len(submissions))
	outcomes := forecast.SimulateAll(p.Queues, workloads, p.Now)
	history, _ := p.History()
	for i, o := range outcomes {
		note := timeLaunch(&o, history, p.Now)
		if unchanged != nil {
			timeLaunch(&before[i], history, p.Now)
		}
		n, w := &submissions[i], workloads[i]
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
			s.placed(p, &o)
			if note != "" {
				s.Notes = append(slices.Clip(s.Notes), note)
			}
			continue
		}
		s.Reason, s.Waits = o.Reason, with.ExplainWorkload(w)
		s.Waits.Kind, s.Waits.Name, s.uid, s.among = n.Kind, n.Name, w.UID, with
		if s.Summary = s.Waits.Summary; !s.Waits.Never {
			s.Summary = "would not start now: it " + s.Summary
		}
	}
	p.placedIn(workers, submissions, workloads, outcomes, out)
	return out
}

// timeLaunch has launched machines be ready when those of past launches were, and says so; empty where nothing is launched.
func timeLaunch(o *forecast.Outcome, history *forecast.History, now time.Time) string {
	if !o.Starts || o.Plan == nil || o.Plan.Outcome != planner.Launch {
		return ""
	}
	took, known := history.LaunchTime(o.Plan.Launches)
	if o.At = now.Add(took); known {
		return fmt.Sprintf("machines are expected %s after their launch, as in half of the past launches", duration.HumanDuration(took))
	}
	return fmt.Sprintf("machines are taken to be ready %s after their launch: too few past launches are known", duration.HumanDuration(took))
}

// SimulateLater estimates when submissions that arrive together at a later time would start,
// if no other job arrives.
func (p *Picture) SimulateLater(ctx context.Context, submissions []Submission, at time.Time) ([]Simulation, error) {
	history, waiting := p.History()
	switch {
	case waiting > MostForeseen:
		return nil, fmt.Errorf("%w: leave out --at", TooMany{waiting})
	case at.Before(p.Now) || at.After(p.Now.Add(forecast.Horizon)):
		return nil, fmt.Errorf("%s is not within the next %d days, the horizon of the forecast", stamp(at), int(forecast.Horizon.Hours())/24)
	}
	workloads := make([]*kueue.Workload, len(submissions))
	for i := range submissions {
		if workloads[i] = submissions[i].Workload; workloads[i].UID != "" {
			return nil, fmt.Errorf("%s %s is already pending: leave out --at, or use another metadata.name", submissions[i].Kind,
				submissions[i].Name)
		}
	}
	out := make([]Simulation, len(submissions))
	estimates, ok := forecast.Arrivals(p.Queues, history, workloads, at, p.Now, forecast.Horizon, until(ctx))
	if !ok {
		return nil, ctx.Err()
	}
	for i, e := range estimates {
		n := &submissions[i]
		out[i] = Simulation{
			Kind: n.Kind, Namespace: n.Workload.Namespace, Name: n.Name, Expected: p.expected(&e),
			Notes: append(slices.Clip(n.Notes), "the forecast assumes that no other job arrives, and takes run times from past jobs or the "+
				"maximum execution time"),
		}
		out[i].Summary = fmt.Sprintf("would arrive %s and is expected to start %s", in(p.Now, at), out[i].Expected.Words[0])
	}
	return out, nil
}

// inShort summarizes an outcome.
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
		out += ", once the AdmissionChecks of other controllers are Ready: " + strings.Join(names, ", ")
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

// placed describes where the pods would be: on the machines of a plan, and in the racks of a Topology.
func (s *Simulation) placed(p *Picture, o *forecast.Outcome) {
	plan := o.Plan
	if s.Where = p.placesOf(o.Admission); plan == nil {
		if len(s.Where) == 0 {
			s.Where = []string{"its ClusterQueue has no capacity check: kube-scheduler places its pods"}
		}
		return
	}
	s.Where, s.USDPerHour, s.Chance = append(s.Where, machinesOf(plan)), text.USD(plan.MicroUSDPerHour), plan.Chance/10
	if plan.Outcome == planner.Fits {
		s.Chance = 100
	}
	for _, l := range plan.Launches {
		for i := range p.Snapshot.Groups {
			if g := &p.Snapshot.Groups[i]; g.Name == l.Group {
				level := g.LevelOf(plan.Gang.Levels(plan.Policy))
				s.Launches = append(s.Launches, LaunchLine{
					Group: g.Name, CapacityType: string(g.CapacityType), Zone: g.Zone, Machines: l.Count,
					USDPerHour: text.USD(g.MicroUSDPerHour * int64(l.Count)), Chance: g.Chance(l.Count, level, p.Now) / 10,
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

// victims describes preempted Workloads with their quota.
func (p *Picture) victims(names []types.NamespacedName) (out []HolderLine) {
	for _, name := range names {
		w := p.WorkloadNamed(name.Namespace, name.Name)
		line := HolderLine{Workload: name.String(), Priority: priorityOf(w)}
		// A submission that is preempted by another one has no admission yet.
		if a := w.Status.Admission; a != nil {
			line.Queue, line.Has = string(a.ClusterQueue), usageOf(a)
		}
		out = append(out, line)
	}
	return out
}

// usageOf formats the quota of an admission.
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

// Comparison is the effect of changes on the pending Workloads.
type Comparison struct {
	// Start are the Workloads that start only with the changes; Wait are those that start
	// only without.
	Start []ChangeLine `json:"start"`
	Wait  []ChangeLine `json:"wait"`
	// StartAnyway and WaitAnyway count the others.
	StartAnyway int `json:"startAnyway"`
	WaitAnyway  int `json:"waitAnyway"`
}

// ChangeLine is a Workload with another outcome under the changes.
type ChangeLine struct {
	ClusterQueue string `json:"clusterQueue"`
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	Workload     string `json:"workload"`
	Priority     int32  `json:"priority"`
	// Summary is its outcome in words.
	Summary string `json:"summary"`
	// Where describes its machines; Message says why it would wait.
	Where   string `json:"where,omitempty"`
	Message string `json:"message,omitempty"`
}

// Compare returns the pending Workloads whose outcome differs in the changed Picture.
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
			line.Message = plainly(then.Message)
			out.Wait = append(out.Wait, line)
		}
	}
	return out
}

func (p *Picture) changeOf(of *forecast.Prospect, a *kueue.Admission) ChangeLine {
	l := p.lineOf(string(a.ClusterQueue), of.Workload)
	return ChangeLine{
		ClusterQueue: l.ClusterQueue, Namespace: l.Namespace, Name: l.Name, Workload: l.Workload, Priority: l.Priority,
		Summary: p.inShort(&of.Outcome),
	}
}
