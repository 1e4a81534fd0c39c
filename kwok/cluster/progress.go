package cluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells people how the start goes, one line a step. It may be used by several goroutines.
type progress struct {
	started time.Time

	mu  sync.Mutex
	out io.Writer
}

// step writes a line that begins with the seconds since the start. Writing it is a courtesy, so errors are ignored.
func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
