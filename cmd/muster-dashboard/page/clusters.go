package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/provisioning/text"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// clustersView is the view of the clusters that jobs are given to.
type clustersView struct {
	Clusters []clusterRow `json:"clusters"`
	// Total is the number of jobs that are in a cluster; Jobs are the first of them.
	Total int          `json:"total"`
	Jobs  []clusterJob `json:"jobs"`
}

// clusterRow is one cluster.
type clusterRow struct {
	view.ClusterLine
	// Held is what its jobs hold of the quota here, as text, devices first; Last its newest refusal.
	Held []string `json:"held"`
	Last string   `json:"last,omitempty"`
}

// clusterJob is a job that runs in a cluster, or was given to it.
type clusterJob struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	Cluster   string `json:"cluster"`
	Running   bool   `json:"running"`
	// Since is when it began to run there.
	Since int64 `json:"since,omitempty"`
	// USDPerHour is what the machines cost that were to be launched for it there, when it was given there; empty where that is not known.
	USDPerHour string `json:"usdPerHour,omitempty"`
}

// in is the job in a cluster.
func (j clusterJob) in(cluster string, w *kueue.Workload) clusterJob {
	j.Cluster = cluster
	if price := view.PriceIn(w, cluster); price > 0 {
		j.USDPerHour = text.USD(price)
	}
	return j
}

// mostClusterJobs are sent at once.
const mostClusterJobs = 500

// clusters answers as `kubectl muster clusters`, with the jobs.
func (s *Server) clusters(_ context.Context, d *decision, _ *http.Request) (clustersView, error) {
	out := clustersView{Clusters: []clusterRow{}, Jobs: []clusterJob{}}
	for _, l := range view.ClusterLines(s.config.Clock.Now(), d.clusterObjects()) {
		out.Clusters = append(out.Clusters, clusterRow{l, append([]string{}, l.Held...), l.Last})
	}
	for _, w := range d.picture.Workloads {
		if workloads.IsFinished(w) {
			continue
		}
		job := clusterJob{Namespace: w.Namespace, Name: "workload/" + w.Name, Workload: w.Name}
		if owner := metav1.GetControllerOf(w); owner != nil {
			job.Name = strings.ToLower(owner.Kind) + "/" + owner.Name
		}
		if w.Status.ClusterName != nil {
			job.Running, job.Since = true, millis(workloads.AdmittedSince(w))
			out.Jobs = append(out.Jobs, job.in(*w.Status.ClusterName, w))
			continue
		}
		for _, name := range w.Status.NominatedClusterNames {
			out.Jobs = append(out.Jobs, job.in(name, w))
		}
	}
	slices.SortFunc(out.Jobs, func(a, b clusterJob) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out.Total = len(out.Jobs)
	out.Jobs = out.Jobs[:min(out.Total, mostClusterJobs)]
	return out, nil
}

// clusterObjects are of the kinds by which a manager reports its clusters.
func (d *decision) clusterObjects() []client.Object {
	out := slices.Clone(d.workers)
	for _, w := range d.picture.Workloads {
		out = append(out, w)
	}
	return out
}
