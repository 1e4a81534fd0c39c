package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/history"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// explained is what a job's own page has.
type explained struct {
	*view.Explanation
	Job jobDetail `json:"job"`
}

// jobDetail is a job over time.
type jobDetail struct {
	State   view.JobState `json:"state"`
	User    string        `json:"user,omitempty"`
	Queue   string        `json:"queue"`
	Pods    int32         `json:"pods"`
	Devices string        `json:"devices,omitempty"`
	Phases  []phase       `json:"phases"`
	// Now is the time until which the last phase lasts.
	Now       int64           `json:"now"`
	Evictions []view.Eviction `json:"evictions,omitempty"`
	// USD is what machines have cost it; USDPerHour what those cost that it has now. Both are empty if that is not known.
	USD        string `json:"usd,omitempty"`
	USDPerHour string `json:"usdPerHour,omitempty"`
	// Nodes that it has booked or runs on, mostNodes at most of NodeCount.
	Nodes     []view.NodeLine `json:"nodes,omitempty"`
	NodeCount int             `json:"nodeCount,omitempty"`
}

// mostNodes of a job are sent.
const mostNodes = 64

// explain answers as `kubectl muster explain` about a Workload, under the name of its job. A job whose Workload is gone is described from
// the history.
func (s *Server) explain(ctx context.Context, d *decision, r *http.Request) (*explained, error) {
	name := workload{r.URL.Query().Get("namespace"), r.URL.Query().Get("workload")}
	now := s.config.Clock.Now()
	past, _ := s.recorded(ctx) // what there is to say without it is said
	ended := endedJob(past, name)
	w := d.picture.WorkloadNamed(name.namespace, name.name)
	switch {
	case w != nil:
	case ended != nil:
		return explainEnded(ended, now), nil
	default:
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("Workload %s in namespace %s no longer exists: its job was deleted.", name.name,
			name.namespace)}
	}
	d.explaining.Lock()
	defer d.explaining.Unlock()
	if f := s.foreseen.Load(); f != nil {
		// A moment old at most; another one would take seconds.
		d.picture.Foreseen = f.report
	}
	out := d.picture.ExplainWorkload(w)
	if owner := metav1.GetControllerOf(w); owner != nil {
		out.Kind, out.Name, out.Workload = owner.Kind, owner.Name, w.Name
	}
	return &explained{out, d.detail(w, ended, now)}, nil
}

// detail describes a job whose Workload is there. Its cost is in the history once it has ended.
func (d *decision) detail(w *kueue.Workload, ended *view.PastJob, now time.Time) jobDetail {
	l := d.picture.Job(w)
	out := jobDetail{State: l.State, User: l.User, Queue: l.LocalQueue, Pods: l.Pods, Devices: l.DevicesText,
		Phases: phasesOf(view.PhasesOf(w)), Now: millis(now), Evictions: view.EvictionsOf(w)}
	if workloads.IsFinished(w) {
		if ended != nil && ended.Created.Equal(w.CreationTimestamp.Time) {
			out.USD = ended.USD
		}
		return out
	}
	for i := range d.fleet.jobs {
		if j := &d.fleet.jobs[i]; j.Namespace == l.Namespace && j.Name == l.Name {
			out.USD, out.USDPerHour = fmt.Sprintf("%.2f", j.USD), fmt.Sprintf("%.2f", j.USDPerHour)
		}
	}
	if d.picture.Decides() {
		out.Nodes = d.picture.NodesOf(l.Namespace, l.Name)
		out.NodeCount = len(out.Nodes)
		out.Nodes = out.Nodes[:min(mostNodes, len(out.Nodes))]
	}
	return out
}

// endedJob is the last job of a Workload's name in the history; nil if there is none.
func endedJob(past *view.Past, name workload) *view.PastJob {
	if past == nil {
		return nil
	}
	for i := range past.Jobs {
		if j := &past.Jobs[i]; j.Namespace == name.namespace && j.Workload == name.name {
			return j
		}
	}
	return nil
}

// explainEnded describes a job whose Workload is gone.
func explainEnded(j *view.PastJob, now time.Time) *explained {
	kind, name, _ := strings.Cut(j.Name, "/")
	out := &view.Explanation{Kind: kind, Namespace: j.Namespace, Name: name, Workload: j.Workload}
	out.Summary = fmt.Sprintf("%s %s ago, after %s of waiting", map[history.Outcome]string{
		history.Finished: "finished", history.Failed: "failed", history.Cancelled: "was cancelled"}[j.Outcome],
		duration.HumanDuration(now.Sub(j.Ended)), j.WaitedText)
	if !j.Started.IsZero() {
		out.Summary += fmt.Sprintf(" and %s of running", j.RanText)
	}
	if j.Why != "" {
		out.Causes = []string{j.Why}
	}
	detail := jobDetail{State: view.JobState(j.Outcome), User: j.User, Queue: j.Queue, Pods: j.Pods, Devices: view.DevicesText(j.Devices),
		Phases: phasesOf(view.PhasesOfEnded(&j.Job)), Now: millis(now), USD: j.USD}
	if j.Evictions > 0 {
		detail.Evictions = []view.Eviction{{Count: j.Evictions}}
	}
	out.Place = &view.Place{ClusterQueue: cmp.Or(j.ClusterQueue, "unknown"), LocalQueue: j.Queue, Priority: j.Priority}
	return &explained{out, detail}
}
