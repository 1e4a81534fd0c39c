package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/cmd/view"
)

// beat is the period of heartbeats without news: a page that receives none for longer has lost
// its server.
const beat = 10 * time.Second

// heartbeat is sent to every open page.
type heartbeat struct {
	// Version of the newest decision; a page that shows another is out of date.
	Version   string `json:"version"`
	DecidedAt int64  `json:"decidedAt,omitempty"`
	// Loading is true before the first decision.
	Loading bool `json:"loading,omitempty"`
	// StaleSince is when the cluster stopped answering.
	StaleSince int64  `json:"staleSince,omitempty"`
	StaleWhy   string `json:"staleWhy,omitempty"`
	// Missing rights, and the command that gives them.
	Missing []missing `json:"missing,omitempty"`
	Remedy  string    `json:"remedy,omitempty"`
	// Error says why there is nothing to show.
	Error string `json:"error,omitempty"`
	// Clusters: jobs are given to other clusters.
	Clusters bool `json:"clusters,omitempty"`
}

// missing are missing rights, with their effect.
type missing struct {
	Rights  []string `json:"rights"`
	Purpose string   `json:"purpose"`
}

// millis is a time in milliseconds since 1970; 0 for none.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (s *Server) heartbeat() (out heartbeat) {
	since, why := s.config.Cluster.Stale()
	if out.StaleSince = millis(since); out.StaleSince != 0 {
		out.StaleWhy = fmt.Sprintf("The cluster does not answer: %s. The page shows the last known state.", why)
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
			return slices.ContainsFunc(slices.Concat(d.picture.Missing, d.hidden), func(m view.Right) bool { return m.Resource == r.Resource })
		})
		rights = slices.Concat(d.picture.Missing, d.hidden, rights)
		out.Clusters = len(d.workers) > 0
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

// byPurpose groups the rights with the same effect, in their order.
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

// purposes are the effects of missing rights, by resource.
var purposes = map[string]string{
	"workloads.kueue.x-k8s.io":                  "no pending jobs are shown",
	"clusterqueues.kueue.x-k8s.io":              "no queues and quotas are shown",
	"localqueues.kueue.x-k8s.io":                "the queue of a job is unknown",
	"resourceflavors.kueue.x-k8s.io":            "flavors are unknown",
	"topologies.kueue.x-k8s.io":                 "whether the topologies of flavors exist is unknown",
	"nodegroups.muster.dev":                     "no node groups and prices are shown",
	"nodes":                                     "free capacity and the use of machines are unknown",
	"pods":                                      "free capacity and the use of machines are unknown",
	"provisioningrequests.autoscaling.x-k8s.io": "the owners of machines are unknown",
	"capacitypolicies.muster.dev":               "the machines that a job may use are unknown",
	"admissionchecks.kueue.x-k8s.io":            "the admission checks of a job are unknown",
	"provisioningrequestconfigs.kueue.x-k8s.io": "the admission checks of a job are unknown",
	"multikueueclusters.kueue.x-k8s.io":         "the clusters that jobs are dispatched to are unknown",
	"cohorts.kueue.x-k8s.io":                    "borrowing limits are unknown",
	"namespaces":                                "the namespaces of a queue are unknown",
}

func purposeOf(r view.Right) string {
	if r.Verb == "watch" {
		return "changes are shown late"
	}
	return cmp.Or(purposes[r.Resource], "whether pods fit a machine is unknown")
}

// remedy is the command that grants the rights to the page's service account.
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

// mostStreams is how many pages a client may have open: each is a connection and a goroutine.
const mostStreams = 32

// clientOf distinguishes clients: by their token, which a proxy passes on, or by their address.
func clientOf(r *http.Request) string {
	if token := r.Header.Get("Authorization"); token != "" {
		return token
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// open counts a stream of a client. It reports whether that may have one more.
func (s *Server) open(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[client] >= mostStreams {
		return false
	}
	s.streams[client]++
	s.lookers++
	return true
}

func (s *Server) close(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookers--
	if s.streams[client]--; s.streams[client] == 0 {
		delete(s.streams, client)
	}
}

// events sends heartbeats while the page is open.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	client := clientOf(r)
	if !s.open(client) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open already: close some", mostStreams), http.StatusTooManyRequests)
		return
	}
	defer s.close(client)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	select {
	case s.looked <- struct{}{}:
	default:
	}
	ticker := s.config.Clock.NewTicker(beat)
	defer ticker.Stop()
	flusher := http.NewResponseController(w)
	for {
		news := s.wait()
		text, err := json.Marshal(s.heartbeat())
		if err != nil {
			return
		}
		// A page that has lost its stream reconnects after a second.
		if _, err := fmt.Fprintf(w, "retry: 1000\nevent: heartbeat\ndata: %s\n\n", text); err != nil || flusher.Flush() != nil {
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
