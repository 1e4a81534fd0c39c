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

// Most that a file may ask for: beyond it the API server of one machine is not what
// one wants to know about.
const (
	mostNodes = 10_000
	mostTeams = 1_000
	mostJobs  = 100_000
	mostPods  = 10_000
	// mostDays keeps a time that was meant in another unit from being waited for.
	mostDays = 7
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

// judge tells what is wrong with a scenario whose fields could all be read.
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
	for i := range s.Arrivals {
		j.arrival(&s.Arrivals[i], s.Teams, field.NewPath("arrivals").Index(i))
	}
	if s.Faults != nil {
		d.Take(s.Faults.Validate(field.NewPath("faults")))
	}
	if j.positive(s.Ends.AtMost, field.NewPath("ends", "atMost")); s.Ends.AtMost.Duration > mostDays*24*time.Hour {
		d.Refuse(field.NewPath("ends", "atMost"), "%s is longer than %d days; give less", s.Ends.AtMost.Duration, mostDays)
	}
}

// judge tells what is wrong with parts of a scenario.
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

// group judges what the API server cannot: it is told the rest when the scenario is
// run.
func (j *judge) group(g *v1alpha1.NodeGroup, path *field.Path) {
	j.unique(g.Name, path.Child("metadata", "name"))
	if g.Spec.Provider != v1alpha1.ProviderKwok {
		j.Refuse(path.Child("spec", "provider"), "it is %q; scenarios buy simulated machines alone: write %s", g.Spec.Provider, v1alpha1.ProviderKwok)
	}
	if g.Spec.Kwok == nil {
		j.Refuse(path.Child("spec", "kwok"), "it is missing; write {} for a pool without faults")
	}
	j.between(g.Spec.MaxNodes, 1, mostNodes, path.Child("spec", "maxNodes"))
	j.amounts(g.Spec.Template.Capacity, path.Child("spec", "template", "capacity"))
}

func (j *judge) arrival(a *Arrival, teams *Teams, path *field.Path) {
	j.unique(a.Name, path.Child("name"))
	j.between(a.Count, 1, mostJobs, path.Child("count"))
	if a.Namespace == TeamWord && teams == nil {
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
	for i := range a.Shapes {
		j.shape(&a.Shapes[i], path.Child("shapes").Index(i))
	}
}

func (j *judge) shape(s *Shape, path *field.Path) {
	j.between(s.Weight, 0, 1_000_000, path.Child("weight"))
	j.between(s.Pods, 1, mostPods, path.Child("pods"))
	j.between(s.Retries, 0, 1_000_000, path.Child("retries"))
	if len(s.Requests) == 0 {
		j.Refuse(path.Child("requests"), "a pod that asks for nothing needs no machine; give amounts, such as {cpu: 2}")
	}
	j.amounts(s.Requests, path.Child("requests"))
	run := path.Child("runFor")
	j.notNegative(s.RunFor.AtLeast, run.Child("atLeast"))
	j.notNegative(s.RunFor.Jitter, run.Child("jitter"))
	j.notNegative(s.RunFor.Mean, run.Child("mean"))
	if s.RunFor.AtLeast.Duration+s.RunFor.Jitter.Duration+s.RunFor.Mean.Duration == 0 {
		j.Refuse(run, "a Job runs for some time; give atLeast, jitter or mean")
	}
	if most := s.RunFor.AtMost.Duration; most != 0 && most < s.RunFor.AtLeast.Duration {
		j.Refuse(run.Child("atMost"), "%s is less than atLeast, which is %s; give more", most, s.RunFor.AtLeast.Duration)
	}
	for name, d := range map[string]*metav1.Duration{"deadline": s.Deadline, "maximumExecution": s.MaximumExecution} {
		if d != nil {
			j.positive(*d, path.Child(name))
		}
	}
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
}

func (j *judge) positive(d metav1.Duration, path *field.Path) {
	if d.Duration <= 0 {
		j.Refuse(path, "it is %s; give a duration greater than 0, such as 10m", d.Duration)
	}
}

func (j *judge) amounts(list corev1.ResourceList, path *field.Path) {
	for resource, amount := range list {
		if amount.Sign() <= 0 {
			j.Refuse(path.Key(string(resource)), "it is %s; give an amount greater than 0", amount.String())
		}
	}
}
