package runner

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// screen reports how far a run is: a bar that is redrawn on a terminal, else a line now
// and then.
type screen struct {
	out   io.Writer
	live  bool
	speed int
}

// pace is how often it reports.
func (s *screen) pace() time.Duration {
	if s.live {
		return 250 * time.Millisecond
	}
	return 10 * time.Second
}

func (s *screen) draw(took time.Duration, p progress) {
	if s.live {
		fmt.Fprintf(s.out, "\r\033[K%s", s.text(took, p))
	} else {
		fmt.Fprintln(s.out, s.text(took, p))
	}
}

func (s *screen) finish(took time.Duration, p progress) {
	s.draw(took, p)
	if s.live {
		fmt.Fprintln(s.out)
	}
}

func (s *screen) text(took time.Duration, p progress) string {
	const width = 24
	done := p.succeeded + p.failed
	filled := width * done / max(p.all, 1)
	text := fmt.Sprintf("%8s  %s%s  %d of %d Jobs ended", (took * time.Duration(s.speed)).Round(time.Second),
		strings.Repeat("█", filled), strings.Repeat("·", width-filled), done, p.all)
	if p.failed > 0 {
		text += fmt.Sprintf(", %d of them failed", p.failed)
	}
	text += fmt.Sprintf("; %d run, %d wait", p.running, p.submitted-done-p.running)
	switch {
	case p.left > 0 && done == p.all:
		text += fmt.Sprintf("; idle machines to be terminated: %d", p.left)
	case p.machines > 0:
		text += fmt.Sprintf("; %d machines", p.machines)
	}
	return text
}
