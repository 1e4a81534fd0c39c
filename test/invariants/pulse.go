package invariants

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// beat is how long a pulse waits between two reads.
	beat = 500 * time.Millisecond
	// prompt is how long a read takes at most in a cluster that has the machine for itself.
	prompt = 100 * time.Millisecond
	// slowest is how many times slower a cluster may become with longer bounds.
	slowest = 10
)

// pulse tells how fast the cluster lives. The bounds of the promises are for a cluster that does nothing else on two cores; tests run
// several, and beside other programs. Where a read takes longer than it should, so does all else that is done in steps.
type pulse struct {
	mu sync.Mutex
	// lost is the time that the cluster did not have until felt.
	lost time.Duration
	felt time.Time
	// began is when the read in flight did; zero while there is none.
	began time.Time
}

// run feels it until ctx is done.
func (p *pulse) run(ctx context.Context, client rest.Interface) {
	for ctx.Err() == nil {
		p.begin(time.Now())
		err := client.Get().AbsPath("/api/v1/namespaces/default").Do(ctx).Error()
		p.end(time.Now(), err == nil)
		select {
		case <-ctx.Done():
		case <-time.After(beat):
		}
	}
}

func (p *pulse) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = now
}

// end is of the read in flight. One that failed tells nothing: how the streams take an outage is said elsewhere.
func (p *pulse) end(now time.Time, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered {
		p.lost += p.pending(now)
	}
	p.felt, p.began = now, time.Time{}
}

// behind is the time that the cluster did not have until now.
func (p *pulse) behind(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost + p.pending(now)
}

// pending is what of the time since the read before the one in flight was lost.
func (p *pulse) pending(now time.Time) time.Duration {
	if p.began.IsZero() || p.felt.IsZero() {
		return 0
	}
	taken := min(now.Sub(p.began), slowest*prompt)
	if taken <= prompt {
		return 0
	}
	return time.Duration(float64(now.Sub(p.felt)) * (1 - float64(prompt)/float64(taken)))
}
