package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/cmd/view"
)

// beat is how often a pulse is sent though there is nothing new: who hears none for
// longer has lost the page.
const beat = 10 * time.Second

// pulse is what is sent to all who look.
type pulse struct {
	// Version of the newest decision; what is shown of another is out of date.
	Version   string `json:"version"`
	DecidedAt int64  `json:"decidedAt,omitempty"`
	// Loading: nothing is decided yet.
	Loading bool `json:"loading,omitempty"`
	// StaleSince is when the cluster has ceased to answer.
	StaleSince int64  `json:"staleSince,omitempty"`
	StaleWhy   string `json:"staleWhy,omitempty"`
	// Missing rights, and the command that gives them.
	Missing []missing `json:"missing,omitempty"`
	Remedy  string    `json:"remedy,omitempty"`
	// Error is why there is nothing to see.
	Error string `json:"error,omitempty"`
}

// missing are rights that are lacking, and what they are for.
type missing struct {
	Rights  []string `json:"rights"`
	Purpose string   `json:"purpose"`
}

// millis is a time as browsers count it; 0 for none.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (s *Server) pulse() (out pulse) {
	since, why := s.config.Cluster.Stale()
	if out.StaleSince = millis(since); out.StaleSince != 0 {
		out.StaleWhy = fmt.Sprintf("The cluster does not answer: %s. What you see is what was last known.", why)
	}
	rights := s.config.Cluster.Missing()
	d := s.latest.Load()
	switch {
	case d == nil:
		out.Loading = true
	case d.err != nil:
		out.Version, out.Error = d.version, d.err.Error()
	default:
		out.Version, out.DecidedAt = d.version, millis(d.at)
		rights = slices.DeleteFunc(rights, func(r view.Right) bool {
			return slices.ContainsFunc(d.picture.Missing, func(m view.Right) bool { return m.Resource == r.Resource })
		})
		rights = slices.Concat(d.picture.Missing, rights)
	}
	if f := s.foreseen.Load(); f != nil {
		out.Version += fmt.Sprintf("-%d", f.at.UnixMilli())
	}
	if s.prometheus != nil {
		out.Version += fmt.Sprintf("-%d", s.prometheus.times())
	}
	if len(rights) > 0 {
		out.Missing, out.Remedy = byPurpose(rights), remedy(rights)
	}
	return out
}

// byPurpose puts together the rights that are for the same, in their order.
func byPurpose(rights []view.Right) (out []missing) {
	for _, r := range rights {
		purpose := purposeOf(r)
		i := slices.IndexFunc(out, func(m missing) bool { return m.Purpose == purpose })
		if i < 0 {
			i, out = len(out), append(out, missing{Purpose: purpose})
		}
		out[i].Rights = append(out[i].Rights, r.String())
	}
	return out
}

// purposes of kinds, by their resource: what is so without them.
var purposes = map[string]string{
	"workloads.kueue.x-k8s.io":                  "nobody is seen to wait",
	"clusterqueues.kueue.x-k8s.io":              "no queue and no quota is seen",
	"localqueues.kueue.x-k8s.io":                "nobody knows which queue a job waits in",
	"resourceflavors.kueue.x-k8s.io":            "nobody knows what quota is for",
	"nodegroups.muster.dev":                     "no machines are seen that could be had, nor what they cost",
	"nodes":                                     "nobody knows what room there is, nor what machines are used for",
	"pods":                                      "nobody knows what room there is, nor what machines are used for",
	"provisioningrequests.autoscaling.x-k8s.io": "nobody knows who has the machines",
	"capacitypolicies.muster.dev":               "nobody knows which machines a job may have",
	"admissionchecks.kueue.x-k8s.io":            "nobody knows what a job has to pass",
	"provisioningrequestconfigs.kueue.x-k8s.io": "nobody knows what a job has to pass",
	"cohorts.kueue.x-k8s.io":                    "nobody knows what may be borrowed",
	"namespaces":                                "nobody knows who may use a queue",
}

func purposeOf(r view.Right) string {
	if r.Verb == "watch" {
		return "changes are seen late"
	}
	return cmp.Or(purposes[r.Resource], "nobody knows whether pods suit a machine")
}

// remedy is the command that gives the rights to whoever the page runs as.
func remedy(rights []view.Right) string {
	var resources []string
	for _, r := range rights {
		resources = append(resources, r.Resource)
	}
	slices.Sort(resources)
	return fmt.Sprintf("kubectl create clusterrole muster-page --verb=get,list,watch --resource=%s && "+
		"kubectl create clusterrolebinding muster-page --clusterrole=muster-page --serviceaccount=muster-system:muster-dashboard",
		strings.Join(slices.Compact(resources), ","))
}

// events sends pulses for as long as somebody looks.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	s.mu.Lock()
	s.lookers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.lookers--
		s.mu.Unlock()
	}()
	select {
	case s.looked <- struct{}{}:
	default:
	}
	ticker := s.config.Clock.NewTicker(beat)
	defer ticker.Stop()
	flusher := http.NewResponseController(w)
	for {
		news := s.wait()
		text, err := json.Marshal(s.pulse())
		if err != nil {
			return
		}
		// A page that has lost its stream asks for another after a second.
		if _, err := fmt.Fprintf(w, "retry: 1000\nevent: pulse\ndata: %s\n\n", text); err != nil || flusher.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-news:
		case <-ticker.C():
		}
	}
}
