package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

const (
	// shortestRest is the least time between two decisions. After a long decision the page
	// rests restShare times as long: it uses at most a tenth of a core.
	shortestRest = 2 * time.Second
	restShare    = 9
	// longestRest is the oldest decision that an open page shows: backoffs end without an
	// event.
	longestRest = 15 * time.Second
	// patience is how long a page counts as open after a request.
	patience = 30 * time.Second
	// sampleEvery is the period of samples of the history.
	sampleEvery = 30 * time.Second
	// readTimeout bounds a wait for a cluster that has not answered completely yet.
	readTimeout = 5 * time.Second
)

// decision is the result of deciding at one time. It is immutable.
type decision struct {
	// version identifies it, also across restarts of the page.
	version string
	at      time.Time
	// err says why there is nothing else.
	err     error
	reading *view.Reading
	picture *view.Picture
	// statuses are the computed statuses of the ClusterQueues; none without a decision.
	statuses map[string]kueue.ClusterQueueStatus
	lines    []line
	// racks are empty without a decision.
	racks []view.RackLine
	fleet fleet
	// workers are the MultiKueueClusters; hidden are the missing rights to read them, without which all else is decided.
	workers []client.Object
	hidden  []view.Right

	// explaining serializes explanations, which try out options.
	explaining sync.Mutex
}

// Run decides until ctx is done.
func (s *Server) Run(ctx context.Context) {
	c := s.config.Clock
	ticker := c.NewTicker(time.Second)
	defer ticker.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { s.foresee(ctx) })
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
			s.notify()
		case <-s.looked:
		case <-ticker.C():
		}
	}
}

// decide reads all objects and decides; false if the cluster takes longer to answer.
func (s *Server) decide(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	d := &decision{at: s.config.Clock.Now(), racks: []view.RackLine{}}
	d.version = fmt.Sprintf("%d-%d", s.began.UnixMilli(), d.at.UnixMilli())
	reading, err := view.Read(ctx, s.config.Cluster, "", s.config.Settings.Kinds()...)
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var workers *view.Reading
	if err == nil {
		workers, err = view.Read(ctx, s.config.Cluster, "", view.ClusterKinds[0])
	}
	if before := s.latest.Load(); err != nil && before != nil && before.err == nil {
		// An old decision is better than none; the page shows since when it is stale.
		return true
	}
	if err == nil {
		err = reading.Lacks(needed)
	}
	if d.err = err; err == nil {
		d.reading, d.workers, d.hidden = reading, workers.Objects, workers.Missing
		d.picture = view.New(s.config.Clock, s.config.Settings, reading)
		if d.picture.Decides() {
			d.statuses = d.picture.Queues.Report(d.at).ClusterQueues
			d.racks = d.picture.Racks()
		}
		d.lines = linesOf(d.picture)
		d.fleet = fleetOf(d.picture)
	}
	s.latest.Store(d)
	s.notify()
	return true
}

// needed are kinds of which a cluster with Muster serves some.
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

// watched reports whether a page is open.
func (s *Server) watched(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest.Load() != nil && (s.lookers > 0 || now.Before(s.seen.Add(patience)))
}

// wait returns a channel that is closed when there is news.
func (s *Server) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

// notify sends a heartbeat to every open page.
func (s *Server) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}
