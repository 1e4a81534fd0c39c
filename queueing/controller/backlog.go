package controller

import (
	"context"
	"sync"
	"time"
)

// write is a call of the API server, or a few that belong together. It says what is
// to be done in the loop's goroutine once it is over.
type write func(ctx context.Context) settle

// settle takes what became of a write into the loop.
type settle func(now time.Time)

// urgency is the order in which writes are carried out.
type urgency int

const (
	// paced writes come first: the loop hands out only as many of them as it may.
	paced urgency = iota
	// freeing writes give quota back that others wait for.
	freeing
	// acting are all others.
	acting
	// trailing writes come last: a change of one object asks for as many of them as
	// there are Workloads.
	trailing

	urgencies
)

// writers is how many writes are under way at once. One write takes the API
// server some milliseconds of one CPU, so more would only queue up there.
const writers = 16

// callTimeout bounds one write. The API server gives up on its own after a minute.
const callTimeout = 30 * time.Second

// backlog is what is to be written.
type backlog struct {
	mu    sync.Mutex
	ready sync.Cond
	rest  [urgencies]fifo
	over  bool
}

func newBacklog() *backlog {
	b := &backlog{}
	b.ready.L = &b.mu
	return b
}

func (b *backlog) add(u urgency, w write) {
	b.mu.Lock()
	b.rest[u].push(w)
	b.mu.Unlock()
	b.ready.Signal()
}

// next waits for a write; nil when all is over.
func (b *backlog) next() write {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.over {
		for u := range b.rest {
			if w := b.rest[u].pop(); w != nil {
				return w
			}
		}
		b.ready.Wait()
	}
	return nil
}

func (b *backlog) close() {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	b.ready.Broadcast()
}

// run carries out writes until the backlog is closed.
func (b *backlog) run(ctx context.Context, done func(settle)) {
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

// fifo gives out writes in the order in which they came.
type fifo struct{ in, out []write }

func (f *fifo) push(w write) { f.in = append(f.in, w) }

func (f *fifo) pop() write {
	if len(f.out) == 0 {
		if len(f.in) == 0 {
			return nil
		}
		f.out, f.in = f.in, f.out[:0]
	}
	w := f.out[0]
	f.out[0] = nil
	f.out = f.out[1:]
	return w
}
