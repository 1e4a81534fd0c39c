package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/invariants/promises"
)

// screen writes the timeline.
type screen struct {
	out  io.Writer
	live bool
	// drawn is the line of progress that stands on a live screen, or was last
	// written on another one.
	drawn string
}

func (s *screen) title(st story) {
	s.line("")
	s.line("(%s) %s", st.letter, st.title)
	s.line("    kubectl apply -f kwok/demo/%s", st.manifest)
}

// line writes a line above the progress.
func (s *screen) line(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *screen) chapter(at time.Duration, text string) {
	s.line("  %5.1fs  %s", at.Seconds(), text)
}

// progress draws the progress of the gang in place on a terminal. In a log, the chapters say the same.
func (s *screen) progress(sc *scene, st story) {
	if !s.live {
		return
	}
	text := fmt.Sprintf("  %5.1fs  machines %s  ready %s", sc.at.Seconds(),
		bar(sc.machines[st.group], st.gang), bar(sc.ready[st.group], st.gang))
	if n := sc.machines[spot] + sc.nodes[spot]; n > 0 {
		text += fmt.Sprintf("  spot %s", bar(sc.machines[spot], st.gang))
	}
	if sc.job != nil {
		text += fmt.Sprintf("  pods %s", bar(sc.running+sc.finished, st.gang))
	}
	if text != s.drawn {
		s.erase()
		fmt.Fprint(s.out, text)
		s.drawn = text
	}
}

func (s *screen) erase() {
	if s.live && s.drawn != "" {
		fmt.Fprint(s.out, "\r\033[K")
		s.drawn = ""
	}
}

func bar(n, of int) string {
	n = min(n, of)
	return strings.Repeat("█", n) + strings.Repeat("·", of-n) + fmt.Sprintf(" %d/%d", n, of)
}

// summary says what held and what did not.
func (d *demo) summary(results []result, w *invariants.Watcher) {
	d.screen.line("")
	d.screen.line("Summary")
	for _, r := range results {
		mark := "✓"
		if r.err != nil {
			mark = "✗"
		}
		d.screen.line("  %s (%s) %-72s %5.1fs", mark, r.letter, r.title, r.took.Seconds())
	}
	broken := map[promises.Promise]bool{}
	for _, v := range w.Violations() {
		broken[v.Promise] = true
		d.screen.line("  ✗ %s", v)
	}
	judged := w.Stats().Judged
	for _, p := range kept {
		var checks []string
		for _, check := range slices.Sorted(maps.Keys(judged)) {
			if what, ok := strings.CutPrefix(string(check), p.number+" "); ok {
				checks = append(checks, fmt.Sprintf("%d %s", judged[check], what))
			}
		}
		if !broken[p.promise] {
			d.screen.line("  ✓ %s %s: %s", p.number, p.says, strings.Join(checks, ", "))
		}
	}
}

// kept are the promises that are watched.
var kept = []struct {
	promise promises.Promise
	// number is what the names of the promise's checks begin with.
	number, says string
}{
	{promises.Whole, "P1", "no pod before its whole gang has capacity"},
	{promises.NoLeak, "P2", "no machine is left without an owner"},
	{promises.NoDouble, "P3", "no capacity is promised twice"},
	{promises.Quota, "P4", "no quota is exceeded"},
	{promises.Explained, "P7", "whatever waits has a reason"},
}
