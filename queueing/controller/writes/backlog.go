package writes

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster/provisioning/fairqueue"
)

// Write is a call of the API server, or a few that belong together. It returns what is to
// be done in the goroutine of the loop once it is over.
type Write func(ctx context.Context) Done

// Done takes the outcome of a write into the loop.
type Done func(now time.Time)

// Urgency is the order in which writes are carried out.
type Urgency int

const (
	// Paced writes come first: the loop starts only as many of them as it may.
	Paced Urgency = iota
	// Freeing writes release quota that others wait for.
	Freeing
	// Acting are all others.
	Acting
	// Trailing writes come last: a change of one object can cause as many of them as there are Workloads.
	Trailing

	urgencies
)

// writers is how many writes are under way at once. A write takes the API server some
// milliseconds of one CPU, so more would only queue up there.
const writers = 16

// callTimeout bounds one write. The API server gives up on its own after a minute.
const callTimeout = 30 * time.Second

// Backlog has the writes that are to be carried out.
type Backlog struct {
	mu     sync.Mutex
	ready  sync.Cond
	rest   [urgencies]*fairqueue.Queue[item]
	closed bool
}

// item is a write for an object of a namespace.
type item struct {
	namespace string
	write     Write
}

// NewBacklog returns an empty Backlog.
func NewBacklog() *Backlog {
	b := &Backlog{}
	b.ready.L = &b.mu
	for u := range b.rest {
		b.rest[u] = fairqueue.New(func(i item) string { return i.namespace })
	}
	return b
}

// Add adds a write for an object of a namespace. Namespaces take turns, except for what gives quota: that keeps the order
// of the decisions, which share quota by weights, while turns would give all namespaces the same.
func (b *Backlog) Add(u Urgency, namespace string, w Write) {
	if u == Acting {
		namespace = ""
	}
	b.mu.Lock()
	b.rest[u].Push(item{namespace, w})
	b.mu.Unlock()
	b.ready.Signal()
}

// next waits for a write; nil once the backlog is closed.
func (b *Backlog) next() Write {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		for u := range b.rest {
			if b.rest[u].Len() > 0 {
				return b.rest[u].Pop().write
			}
		}
		b.ready.Wait()
	}
	return nil
}

// Close ends Run once the writes under way are over.
func (b *Backlog) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
}

// Run carries out writes until the backlog is closed.
func (b *Backlog) Run(ctx context.Context, done func(Done)) {
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for w := b.next(); w != nil; w = b.next() {
				call, cancel := context.WithTimeout(ctx, callTimeout)
				done(w(call))
				cancel()
			}
		})
	}
	group.Wait()
}
