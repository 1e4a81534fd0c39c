package page

import (
	"fmt"
	"time"
)

// history is the past from a time on, with where it comes from: Prometheus, where there
// is one that answers, and what the page has seen itself.
func (s *Server) history(from time.Time) ([]sample, string) {
	own := s.past.since(from)
	source := fmt.Sprintf("What was before %s is not known here: this page remembers since it began. Start it with --prometheus to see more.", s.began.UTC().Format("15:04 MST"))
	return own, source
}
