package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

const (
	// shortestRest lies between two decisions, and after a decision that took long the
	// page rests restShare times as long: it takes at most a tenth of a core.
	shortestRest = 2 * time.Second
	restShare    = 9
	// longestRest is how old a decision may get that somebody looks at: time alone ends
	// pauses.
	longestRest = 15 * time.Second
	// patience is how long somebody counts as looking who has asked once.
	patience = 30 * time.Second
	// sampleEvery is how often the past is written down.
	sampleEvery = 30 * time.Second
	// readTimeout bounds one wait for a cluster that has not told all yet.
	readTimeout = 5 * time.Second
)

// decision is what was decided at one time. It is never changed.
type decision struct {
	// version names it, also across restarts of the page.
	version string
	at      time.Time
	// err is why there is nothing else.
	err     error
	reading *view.Reading
	picture *view.Picture
	// statuses are what the ClusterQueues should say; none where nothing can be decided.
	statuses map[string]kueue.ClusterQueueStatus
	lines    []line
	fleet    fleet

	// explaining: an explanation tries options out, one at a time.
	explaining sync.Mutex
}

// Run decides until ctx is done.
func (s *Server) Run(ctx context.Context) {
	c := s.config.Clock
	ticker := c.NewTicker(time.Second)
	defer ticker.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	// A forecast cannot be broken off, so that nobody waits for its end.
	go s.foresee(ctx)
	if s.prometheus != nil {
		working.Go(func() { s.prometheus.recall(ctx, s) })
	}
	changed := true
	var rest, sample time.Time
	for {
		now := c.Now()
		due := changed && (s.watched(now) || s.latest.Load() == nil || !now.Before(sample)) ||
			s.watched(now) && !now.Before(s.latest.Load().at.Add(longestRest))
		if due && !now.Before(rest) {
			changed = !s.decide(ctx)
			took := c.Since(now)
			rest = c.Now().Add(max(shortestRest, restShare*took))
		}
		if d := s.latest.Load(); !now.Before(sample) && d != nil && d.err == nil {
			s.past.add(now, d)
			sample = now.Add(sampleEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.config.Cluster.Changed():
			changed = true
			s.tell()
		case <-s.looked:
		case <-ticker.C():
		}
	}
}

// decide reads all that there is and decides; false if the cluster takes longer to answer.
func (s *Server) decide(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	d := &decision{at: s.config.Clock.Now()}
	d.version = fmt.Sprintf("%d-%d", s.began.UnixMilli(), d.at.UnixMilli())
	reading, err := view.Read(ctx, s.config.Cluster, "", s.config.Settings.Kinds()...)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if before := s.latest.Load(); err != nil && before != nil && before.err == nil {
		// What was true is better than nothing; since when it is stale stands above it.
		return true
	}
	if err == nil {
		err = reading.Lacks(needed)
	}
	if d.err = err; err == nil {
		d.reading = reading
		d.picture = view.New(s.config.Clock, s.config.Settings, reading)
		if d.picture.Decides() {
			d.statuses = d.picture.Queues.Report(d.at).ClusterQueues
		}
		d.lines = linesOf(d.picture)
		d.fleet = fleetOf(d.picture)
	}
	s.latest.Store(d)
	s.tell()
	return true
}

// needed are kinds of which a cluster with Muster knows some.
var needed = slices.Concat(view.QueueKinds, view.GroupKinds)

// decided is the newest decision, as soon as there is one.
func (s *Server) decided(ctx context.Context) (*decision, error) {
	s.mu.Lock()
	s.seen = s.config.Clock.Now()
	s.mu.Unlock()
	select {
	case s.looked <- struct{}{}:
	default:
	}
	for {
		news := s.wait()
		if d := s.latest.Load(); d != nil {
			return d, d.err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watched says that somebody looks.
func (s *Server) watched(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest.Load() != nil && (s.lookers > 0 || now.Before(s.seen.Add(patience)))
}

// wait returns what is closed when there is news.
func (s *Server) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

// tell has a pulse sent to all who look.
func (s *Server) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}
