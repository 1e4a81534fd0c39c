package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress prints how the start proceeds, one line a step. It may be used by several goroutines.
type progress struct {
	started time.Time

	mu  sync.Mutex
	out io.Writer
	// watchdog, if set, runs for bound from the last step on.
	watchdog *time.Timer
	bound    time.Duration
}

// errStalled says that a start makes no progress.
var errStalled = errors.New("no progress")

// watch returns a context that ends once there was no step for that long, with errStalled as its cause.
func (p *progress) watch(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound, p.watchdog = bound, time.AfterFunc(bound, func() {
		cancel(fmt.Errorf("%w for %s, which `muster-sandbox up --timeout` can make longer", errStalled, bound))
	})
	return ctx, func() {
		p.watchdog.Stop()
		cancel(context.Canceled)
	}
}

// step writes a line that begins with the seconds since the start. Writing it is a courtesy, so errors are ignored.
func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchdog != nil {
		p.watchdog.Reset(p.bound)
	}
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, args...))
}

// line writes a line as it is.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, text)
}

// tail returns the last lines of a file, or why there are none.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimRight(text, "\n")
	if len(text) == 0 {
		return "(it has written nothing)"
	}
	start := len(text)
	for range lines {
		if start = bytes.LastIndexByte(text[:start], '\n'); start < 0 {
			return string(text)
		}
	}
	return string(text[start+1:])
}
