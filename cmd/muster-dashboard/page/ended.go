package page

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster/cmd/view"
)

// endedView has the jobs that have ended, the last first, and the costs of each queue.
type endedView struct {
	// Why says why there is nothing to show; empty otherwise.
	Why string `json:"why,omitempty"`
	// Total is the number of jobs on record; Jobs are the last of them.
	Total   int            `json:"total"`
	LeftOut int            `json:"leftOut,omitempty"`
	Jobs    []view.PastJob `json:"jobs"`
	Queues  []view.PastSum `json:"queues"`
}

// mostEnded are sent at once.
const mostEnded = 500

// recordedEvery is how often Muster writes the record: the page does not read it more often.
const recordedEvery = time.Minute

// record is what was read of the history last.
type record struct {
	mu   sync.Mutex
	at   time.Time
	past *view.Past
}

// ended answers as `kubectl muster history`.
func (s *Server) ended(ctx context.Context, _ *decision, _ *http.Request) (endedView, error) {
	past, err := s.recorded(ctx)
	if err != nil {
		return endedView{Why: err.Error(), Jobs: []view.PastJob{}, Queues: []view.PastSum{}}, nil
	}
	total := len(past.Jobs)
	return endedView{Total: total, LeftOut: past.LeftOut, Jobs: past.Jobs[:min(total, mostEnded)], Queues: past.Sums("queue")}, nil
}

// recorded returns the history, a minute old at most, or older where it cannot be read any more. Callers only read it.
func (s *Server) recorded(ctx context.Context) (*view.Past, error) {
	r := &s.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := s.config.Clock.Now(); r.past == nil || now.Sub(r.at) >= recordedEvery {
		past, err := view.ReadPast(ctx, s.config.Cluster, "", time.Time{})
		if err != nil && r.past == nil {
			return nil, err
		}
		if err == nil {
			r.at, r.past = now, past
		}
	}
	return r.past, nil
}
