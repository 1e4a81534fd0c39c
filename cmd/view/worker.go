package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/forecast"
)

// Worker is a cluster that jobs of another, its manager, are given to, as its reader may see it.
type Worker struct {
	// Name of its MultiKueueCluster; empty if even that may not be read.
	Name string
	// Inactive is why the manager is not connected to it; empty if it is.
	Inactive string
	// Places are its places in the MultiKueueConfigs that list it, by their names.
	Places map[string]int
	// Picture of it; nil if it was not read, and Unread is why.
	Picture *Picture
	Unread  string
}

// ClusterOutcome is what would become of a job in a cluster.
type ClusterOutcome struct {
	Cluster string `json:"cluster"`
	// Order in which clusters would be asked, from 1; 0 for those that would not be, or of which that is not known.
	Order int `json:"order,omitempty"`
	// Words go on from the name of the cluster.
	Words string `json:"words"`
}

// placedIn reports which of the workers would get the submissions that have quota here for that, by what the dispatcher decides by:
// the same code, on the same objects. Those before count in.
func (p *Picture) placedIn(workers []Worker, submissions []Submission, workloads []*kueue.Workload,
	outcomes []forecast.Outcome, out []Simulation) {
	given := map[string][]Submission{}
	for i := range outcomes {
		config, delegated := p.configOf(&outcomes[i])
		if !delegated {
			continue
		}
		s, n := &out[i], Submission{Kind: submissions[i].Kind, Name: submissions[i].Name, Workload: copied(workloads[i])}
		clusters := clustersFor(n.Workload, listedIn(workers, config), given)
		s.Clusters = inTheirOrder(clusters, p)
		s.Where = nil
		s.Summary = "would get quota here at once, on " + flavorsOf(outcomes[i].Admission)
		if first := s.Clusters[:min(1, len(s.Clusters))]; len(first) == 1 && first[0].Order == 1 {
			s.Cluster = first[0].Cluster
			s.Summary += ", and be given to cluster " + s.Cluster
			given[s.Cluster] = append(given[s.Cluster], n)
			w := workers[slices.IndexFunc(workers, func(w Worker) bool { return w.Name == s.Cluster })]
			there := w.Picture.Simulate(given[s.Cluster], nil)
			s.There = &there[len(there)-1]
		} else {
			s.Summary += "; which cluster would run it is not known"
		}
		for j := range workers {
			if w := &workers[j]; w.Unread != "" {
				s.Notes = append(slices.Clip(s.Notes), said(w.Name, w.Unread)+"; it may be asked first")
			}
		}
		s.Notes = append(slices.Clip(s.Notes), "the dispatcher decides when the job is there, and the clusters then decide for themselves")
	}
}

// said names the cluster of a reason.
func said(cluster, why string) string {
	if cluster == "" {
		return why
	}
	return fmt.Sprintf("cluster %s: %s", cluster, why)
}

// configOf is the MultiKueueConfig by which another cluster is to run what gets that quota; false if none is to.
func (p *Picture) configOf(o *forecast.Outcome) (config string, delegated bool) {
	if o.Starts {
		for _, check := range o.Awaits {
			if config, delegated = p.delegates[check]; delegated {
				return config, true
			}
		}
	}
	return "", false
}

// listedIn are the workers of a MultiKueueConfig, in its order.
func listedIn(workers []Worker, config string) (out []Worker) {
	for _, w := range workers {
		if _, listed := w.Places[config]; listed {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Places[config], b.Places[config]) })
	return out
}

// clustersFor are the workers as the dispatcher would see them for the Workload, those that were not read without a prospect.
func clustersFor(w *kueue.Workload, workers []Worker, given map[string][]Submission) (out []dispatch.Cluster) {
	for i := range workers {
		worker := &workers[i]
		c := dispatch.Cluster{Name: worker.Name, Connected: worker.Inactive == ""}
		queue := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
		switch {
		case worker.Picture == nil:
		case worker.Picture.localQueues[queue] == nil:
			c.Lacks = "LocalQueue " + queue.String()
		default:
			var before []*kueue.Workload
			for _, n := range given[worker.Name] {
				before = append(before, n.Workload)
			}
			c.Prospect = worker.Picture.Prospects()(before, w)
		}
		out = append(out, c)
	}
	return out
}

// inTheirOrder asks the dispatcher's own choice again and again, each time without those before. Those without a prospect, which the
// dispatcher may have, come last.
func inTheirOrder(clusters []dispatch.Cluster, p *Picture) (out []ClusterOutcome) {
	var rest []ClusterOutcome
	left := slices.DeleteFunc(slices.Clone(clusters), func(c dispatch.Cluster) bool {
		switch {
		case !c.Connected:
			rest = append(rest, ClusterOutcome{Cluster: c.Name, Words: "is not connected to its manager, and would not be asked"})
		case c.Lacks != "":
			rest = append(rest, ClusterOutcome{Cluster: c.Name, Words: "lacks " + c.Lacks + ", and would not be asked"})
		case c.Prospect == nil:
			rest = append(rest, ClusterOutcome{Cluster: c.Name, Words: "was not read"})
		default:
			return false
		}
		return true
	})
	for len(left) > 0 {
		step := dispatch.Next(&dispatch.Job{Open: true}, left, p.Now)
		i := slices.IndexFunc(left, func(c dispatch.Cluster) bool { return c.Name == step.Cluster })
		out = append(out, ClusterOutcome{Cluster: step.Cluster, Order: len(out) + 1, Words: strings.TrimSuffix(left[i].Prospect.String(), ": ")})
		left = slices.Delete(left, i, i+1)
	}
	return append(out, rest...)
}

// copied is the Workload as a worker would have it once it may take quota there.
func copied(w *kueue.Workload) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, UID: w.UID, CreationTimestamp: w.CreationTimestamp, Labels: dispatch.Kept(w.Labels),
		Annotations: dispatch.Kept(w.Annotations),
	}}
	w.Spec.DeepCopyInto(&out.Spec)
	return out
}
