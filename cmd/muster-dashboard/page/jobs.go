package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/history"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// jobWindows are the times that the jobs can be shown for; the first is the default.
var jobWindows = []time.Duration{24 * time.Hour, 6 * time.Hour, 7 * 24 * time.Hour, 35 * 24 * time.Hour}

// mostBars of a queue are sent at once.
const mostBars = 40

// jobsView has the jobs of each LocalQueue that had quota within the window, with their phases.
type jobsView struct {
	Window int   `json:"window"`
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	// Why says why the jobs whose objects are gone are missing; empty if they are not.
	Why      string    `json:"why,omitempty"`
	Running  int       `json:"running"`
	Starting int       `json:"starting"`
	Ended    int       `json:"ended"`
	Queues   []queueOf `json:"queues"`
}

// queueOf has the jobs of one LocalQueue: those that have not ended first, then the last to end. Total counts those that are not sent, too.
type queueOf struct {
	Name  string   `json:"name"`
	Total int      `json:"total"`
	Jobs  []jobBar `json:"jobs"`
}

// jobBar is a job with its phases.
type jobBar struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Workload  string        `json:"workload"`
	State     view.JobState `json:"state"`
	User      string        `json:"user,omitempty"`
	Devices   string        `json:"devices,omitempty"`
	Phases    []phase       `json:"phases"`

	queue string
}

// phase is a view.JobPhase. To is zero for the one that the job is in.
type phase struct {
	State view.JobState `json:"state"`
	From  int64         `json:"from"`
	To    int64         `json:"to,omitempty"`
}

func phasesOf(phases []view.JobPhase) []phase {
	out := make([]phase, len(phases))
	for i, p := range phases {
		out[i] = phase{State: p.State, From: millis(p.From)}
		if !p.To.IsZero() {
			out[i].To = millis(p.To)
		}
	}
	return out
}

// ended is when the job has ended; zero if it has not.
func (b *jobBar) ended() int64 { return b.Phases[len(b.Phases)-1].To }

// jobs answers with the jobs of a window that match a search.
func (s *Server) jobs(ctx context.Context, d *decision, r *http.Request) (jobsView, error) {
	window, err := windowOf(r.URL.Query().Get("window"), jobWindows)
	if err != nil {
		return jobsView{}, err
	}
	now := s.config.Clock.Now()
	out := jobsView{Window: int(window.Seconds()), From: millis(now.Add(-window)), To: millis(now), Queues: []queueOf{}}
	past, err := s.recorded(ctx)
	if err != nil {
		out.Why = err.Error()
	}
	search := strings.ToLower(r.URL.Query().Get("q"))
	bars := slices.DeleteFunc(barsOf(d.picture, past), func(b jobBar) bool {
		text := strings.ToLower(strings.Join([]string{b.Namespace, b.Name, b.queue, b.User}, "\n"))
		return b.ended() != 0 && b.ended() < out.From || !strings.Contains(text, search)
	})
	slices.SortStableFunc(bars, func(a, b jobBar) int {
		if (a.ended() == 0) != (b.ended() == 0) {
			return cmp.Compare(a.ended(), b.ended())
		}
		return cmp.Or(cmp.Compare(b.ended(), a.ended()), cmp.Compare(b.Phases[0].From, a.Phases[0].From), strings.Compare(a.Name, b.Name))
	})
	at := map[string]int{}
	for i := range bars {
		b := &bars[i]
		switch b.State {
		case view.Running:
			out.Running++
		case view.Starting:
			out.Starting++
		case view.Failed, view.Finished, view.JobState(history.Cancelled):
			out.Ended++
		}
		n, known := at[b.queue]
		if !known {
			n = len(out.Queues)
			at[b.queue] = n
			out.Queues = append(out.Queues, queueOf{Name: b.queue, Jobs: []jobBar{}})
		}
		q := &out.Queues[n]
		if q.Total++; len(q.Jobs) < mostBars {
			q.Jobs = append(q.Jobs, *b)
		}
	}
	slices.SortFunc(out.Queues, func(a, b queueOf) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// barsOf are the jobs that have or had quota, in no order: those whose Workload is there, and those of the history.
func barsOf(p *view.Picture, past *view.Past) (out []jobBar) {
	there := map[workload]time.Time{}
	for _, w := range p.Workloads {
		if workloads.IsReplaced(w) || !view.HasStarted(w) {
			continue
		}
		l := p.Job(w)
		there[workload{w.Namespace, w.Name}] = w.CreationTimestamp.Time
		out = append(out, jobBar{Namespace: l.Namespace, Name: l.Name, Workload: l.Workload, State: l.State, User: l.User, Devices: l.DevicesText,
			Phases: phasesOf(view.PhasesOf(w)), queue: l.Namespace + "/" + l.LocalQueue})
	}
	if past == nil {
		return out
	}
	for i := range past.Jobs {
		j := &past.Jobs[i]
		if created, ok := there[workload{j.Namespace, j.Workload}]; ok && created.Equal(j.Created) || j.Reserved.IsZero() && j.Started.IsZero() {
			continue
		}
		out = append(out, jobBar{Namespace: j.Namespace, Name: j.Name, Workload: j.Workload, State: view.JobState(j.Outcome), User: j.User,
			Devices: view.DevicesText(j.Devices), Phases: phasesOf(view.PhasesOfEnded(&j.Job)), queue: j.Namespace + "/" + j.Queue})
	}
	return out
}
