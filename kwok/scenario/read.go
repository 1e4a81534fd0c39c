package scenario

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Limits of a file: beyond them, a run would mostly measure the API server of one machine.
const (
	mostNodes = 10_000 // fixed ones in all, or of one group
	mostTeams = 1_000
	mostJobs  = 100_000 // in all
	mostPods  = 10_000  // of a Job
	// mostBought is the sum of all maxNodes.
	mostBought = 50_000
	// mostAllPods counts each pod with all its retries: memory is set aside for them,
	// about 60 bytes each.
	mostAllPods = 1_000_000
	mostRetries = 1_000
	// mostOccurrences of faults.
	mostOccurrences = 100_000
	// mostAmount, in milli-CPU or whole units, can be multiplied by the pods of a Job
	// and by all machines and still be a number of 64 bits.
	mostAmount = 100_000_000_000_000
	// mostDays keeps a time that was meant in another unit from being waited for.
	mostDays = 7
	// mostTime is the longest duration of a file. So times can be added up.
	mostTime = 365 * 24 * time.Hour
	// mostRun is how long all Jobs may run one after the other: beyond 292 years
	// times are too long for 64 bits.
	mostRun = 200 * mostTime
)

// Read reads a scenario. The error is document.Faults: all that is wrong, with lines
// and fields.
func Read(text []byte) (*Scenario, error) {
	s := &Scenario{}
	d := document.Read(text, s)
	if err := d.Err(); err != nil {
		return nil, err
	}
	s.document = d
	s.judge(d)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// judge reports the errors of a scenario whose fields could all be parsed.
func (s *Scenario) judge(d *document.Document) {
	if s.APIVersion != APIVersion {
		d.Refuse(field.NewPath("apiVersion"), "it is %q, but must be %s", s.APIVersion, APIVersion)
	}
	if s.Kind != Kind {
		d.Refuse(field.NewPath("kind"), "it is %q, but must be %s", s.Kind, Kind)
	}
	if s.Description == "" {
		d.Refuse(field.NewPath("description"), "it is missing; say in a sentence what this shows")
	}
	j := judge{Document: d}
	for i := range s.Nodes {
		j.nodes(&s.Nodes[i], field.NewPath("nodes").Index(i))
	}
	for i := range s.Groups {
		j.group(&s.Groups[i], field.NewPath("groups").Index(i))
	}
	if len(s.Nodes)+len(s.Groups) == 0 {
		d.Refuse(field.NewPath("nodes"), "there are neither nodes nor groups, so no Job can run; add some")
	}
	if s.Teams != nil {
		path := field.NewPath("teams")
		j.name(s.Teams.Name, path.Child("name"))
		j.between(s.Teams.Count, 1, mostTeams, path.Child("count"))
	}
	if len(s.Arrivals) == 0 {
		d.Refuse(field.NewPath("arrivals"), "no Jobs arrive; add some")
	}
	j.operators(s.Operators)
	for i := range s.Arrivals {
		j.arrival(&s.Arrivals[i], s, field.NewPath("arrivals").Index(i))
	}
	if s.Faults != nil {
		d.Take(s.Faults.Validate(field.NewPath("faults"), reach()))
	}
	if j.positive(s.Ends.AtMost, field.NewPath("ends", "atMost")); s.Ends.AtMost.Duration > mostDays*24*time.Hour {
		d.Refuse(field.NewPath("ends", "atMost"), "%s is longer than %d days; give less", s.Ends.AtMost.Duration, mostDays)
	}
	j.refers(s)
	// Numbers are only compared with each other once each of them is valid.
	if d.Err() == nil {
		j.whole(s)
	}
}

// judge reports errors in parts of a scenario.
type judge struct {
	*document.Document
	names map[string]bool
}

func (j *judge) nodes(n *Nodes, path *field.Path) {
	j.unique(n.Name, path.Child("name"))
	j.between(n.Count, 1, mostNodes, path.Child("count"))
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := n.Capacity[resource]; !ok {
			j.Refuse(path.Child("capacity"), "%s is missing; give an amount", resource)
		}
	}
	j.amounts(n.Capacity, path.Child("capacity"))
}

// group reports errors that the API server cannot find. The API server reports the others when the scenario is run.
func (j *judge) group(g *v1alpha1.NodeGroup, path *field.Path) {
	j.unique(g.Name, path.Child("metadata", "name"))
	if g.Spec.Provider != v1alpha1.ProviderKwok {
		j.Refuse(path.Child("spec", "provider"), "it is %q; scenarios buy simulated machines alone: write %s", g.Spec.Provider,
			v1alpha1.ProviderKwok)
	}
	if g.Spec.Kwok == nil {
		j.Refuse(path.Child("spec", "kwok"), "it is missing; write {} for a pool without faults")
	}
	j.between(g.Spec.MaxNodes, 1, mostNodes, path.Child("spec", "maxNodes"))
	j.amounts(g.Spec.Template.Capacity, path.Child("spec", "template", "capacity"))
	j.amounts(g.Spec.Template.Allocatable, path.Child("spec", "template", "allocatable"))
}

func (j *judge) arrival(a *Arrival, s *Scenario, path *field.Path) {
	j.unique(a.Name, path.Child("name"))
	j.between(a.Count, 1, mostJobs, path.Child("count"))
	if a.Namespace == TeamWord && s.Teams == nil {
		j.Refuse(path.Child("namespace"), "it is %s, but there are no teams; add them, or name a namespace", TeamWord)
	} else if a.Namespace != "" && a.Namespace != TeamWord {
		j.name(a.Namespace, path.Child("namespace"))
	}
	when := path.Child("when")
	if j.notNegative(a.When.From, when.Child("from")); a.When.PerHour < 0 {
		j.Refuse(when.Child("perHour"), "%d is negative; give the mean number of Jobs in an hour", a.When.PerHour)
	}
	j.notNegative(a.When.Every, when.Child("every"))
	if a.When.Every.Duration > 0 && a.When.PerHour > 0 {
		j.Refuse(when.Child("perHour"), "Jobs come either every %s or at random; keep one of every and perHour", a.When.Every.Duration)
	}
	if a.When.BusiestAt != nil {
		j.notNegative(*a.When.BusiestAt, when.Child("busiestAt"))
		if a.When.PerHour == 0 {
			j.Refuse(when.Child("busiestAt"), "it shapes perHour, which is missing; add it")
		}
	}
	if len(a.Shapes) == 0 {
		j.Refuse(path.Child("shapes"), "there is none; say what a Job looks like")
	}
	var weights int64
	for i := range a.Shapes {
		shape := path.Child("shapes").Index(i)
		if j.shape(a, &a.Shapes[i], s.Operators, shape); a.Shapes[i].Object != nil && a.Queue == "" {
			j.Refuse(path.Child("queue"), "it is missing, and only objects of a queue have a Workload, which tells when they end; name a LocalQueue")
		}
		weights += int64(a.Shapes[i].Weight)
	}
	if weights > mostWeight {
		j.Refuse(path.Child("shapes"), "their weights add up to %d; give weights that add up to %d at most", weights, mostWeight)
	}
}

// mostWeight leaves room in 32 bits for the shapes of weight 0, which count as 1.
const mostWeight = 1_000_000_000

func (j *judge) shape(a *Arrival, s *Shape, operators []string, path *field.Path) {
	j.between(s.Weight, 0, 1_000_000, path.Child("weight"))
	if s.Object != nil {
		j.jobOfAKind(a, s, operators, path)
	} else {
		j.pods(s, path)
	}
	j.between(s.Retries, 0, mostRetries, path.Child("retries"))
	run := path.Child("runFor")
	j.notNegative(s.RunFor.AtLeast, run.Child("atLeast"))
	j.notNegative(s.RunFor.Jitter, run.Child("jitter"))
	j.notNegative(s.RunFor.Mean, run.Child("mean"))
	j.notNegative(s.RunFor.AtMost, run.Child("atMost"))
	if s.RunFor.AtLeast.Duration+s.RunFor.Jitter.Duration+s.RunFor.Mean.Duration == 0 {
		j.Refuse(run, "a Job runs for some time; give atLeast, jitter or mean")
	}
	if most := s.RunFor.AtMost.Duration; most > 0 && most < s.RunFor.AtLeast.Duration {
		j.Refuse(run.Child("atMost"), "%s is less than atLeast, which is %s; give more", most, s.RunFor.AtLeast.Duration)
	}
	for name, d := range map[string]*metav1.Duration{"deadline": s.Deadline, "maximumExecution": s.MaximumExecution} {
		if d == nil {
			continue
		}
		if j.positive(*d, path.Child(name)); d.Duration > 0 && d.Duration < s.RunFor.AtLeast.Duration {
			j.Refuse(path.Child(name), "%s is less than runFor.atLeast, which is %s, so no such Job could succeed; give more", d.Duration,
				s.RunFor.AtLeast.Duration)
		}
	}
}

// pods validates the pods that the shape defines itself.
func (j *judge) pods(s *Shape, path *field.Path) {
	j.between(s.Pods, 1, mostPods, path.Child("pods"))
	if len(s.Requests) == 0 {
		j.Refuse(path.Child("requests"), "a pod that asks for nothing needs no machine; give amounts, such as {cpu: 2}")
	}
	j.amounts(s.Requests, path.Child("requests"))
}

// unique judges a name that nothing else of the file may have.
func (j *judge) unique(name string, path *field.Path) {
	j.name(name, path)
	if j.names[name] {
		j.Refuse(path, "%q is the name of something else in this file, too; choose another", name)
	}
	if j.names == nil {
		j.names = map[string]bool{}
	}
	j.names[name] = true
}

// longestName leaves room for a number after it, and for those of its pods.
const longestName = 40

func (j *judge) name(name string, path *field.Path) {
	if len(validation.IsDNS1123Label(name)) > 0 || len(name) > longestName {
		j.Refuse(path, "%q is no name; use up to %d lower-case letters, digits and inner dashes", name, longestName)
	}
}

func (j *judge) between(n, least, most int32, path *field.Path) {
	if n < least || n > most {
		j.Refuse(path, "it is %d; give a number from %d to %d", n, least, most)
	}
}

func (j *judge) notNegative(d metav1.Duration, path *field.Path) {
	if d.Duration < 0 {
		j.Refuse(path, "%s is negative; give a duration such as 90s", d.Duration)
	}
	j.notTooLong(d, path)
}

func (j *judge) positive(d metav1.Duration, path *field.Path) {
	if d.Duration <= 0 {
		j.Refuse(path, "it is %s; give a duration greater than 0, such as 10m", d.Duration)
	}
	j.notTooLong(d, path)
}

func (j *judge) notTooLong(d metav1.Duration, path *field.Path) {
	if d.Duration > mostTime {
		j.Refuse(path, "%s is longer than a year; give at most %s", d.Duration, mostTime)
	}
}

func (j *judge) amounts(list corev1.ResourceList, path *field.Path) {
	for name, quantity := range list {
		switch {
		case quantity.Sign() <= 0:
			j.Refuse(path.Key(string(name)), "it is %s; give an amount greater than 0", quantity.String())
		case quantity.CmpInt64(mostAmount) > 0 || amount(quantity, name) > mostAmount:
			j.Refuse(path.Key(string(name)), "it is %s, which no machine has; give less than 100G of cpu, 100T of all else", quantity.String())
		}
	}
}
