package page

import (
	"fmt"
	"time"
)

// history is the past of one of the windows, with its source: Prometheus if it answers, else
// what the page has recorded itself.
func (s *Server) history(now time.Time, window time.Duration) ([]sample, string) {
	from := now.Add(-window)
	own := s.past.since(from)
	began := s.began.UTC().Format("15:04 MST")
	if s.prometheus == nil {
		return own, fmt.Sprintf("History starts at %s with this page: start it with --prometheus for more.", began)
	}
	known, err := s.prometheus.known(window)
	if err != nil {
		return own, fmt.Sprintf("History starts at %s with this page: %s.", began, err)
	}
	out := make([]sample, 0, len(known)+len(own))
	for _, a := range known {
		if !a.at.Before(from) && (a.seen || len(a.groups) > 0) {
			out = append(out, a)
		}
	}
	// What the page has recorded since then is newer.
	for _, o := range own {
		if len(out) == 0 || o.at.After(out[len(out)-1].at) {
			out = append(out, o)
		}
	}
	return out, fmt.Sprintf("History is from Prometheus at %s.", s.prometheus.url)
}
