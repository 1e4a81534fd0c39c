package scenario

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Summary says for people what a run of the scenario would be about, and where its bound
// comes from.
func (s *Scenario) Summary() string {
	jobs, b := s.Submissions(), s.Bound()
	var pods, nodes, bought int64
	for _, j := range jobs {
		pods += int64(j.Shape.AllPods())
	}
	for _, n := range s.Nodes {
		nodes += int64(n.Count)
	}
	for _, m := range s.machines() {
		bought += m.count
	}
	bought -= nodes
	var out strings.Builder
	fmt.Fprintln(&out, s.Description)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Jobs", "%d, the first after %s, the last after %s", len(jobs), short(jobs[0].At), short(jobs[len(jobs)-1].At))
	row("Pods", "%d", pods)
	row("Machines", "%d fixed, up to %d launched", nodes, bought)
	if len(s.Operators) > 0 {
		row("Operators", "%s, each of which is built the first time, in a few minutes", strings.Join(s.Operators, ", "))
	}
	row("Bound", "%s from the first Job's creation, first come, first served", short(b.FIFO.Duration))
	row("", "%s at least in any order: the time for which all %s is in use", short(b.Area.Duration), b.Binding)
	if b.Boot.Duration > 0 {
		row("", "both include the %s that the first machine takes to boot", short(b.Boot.Duration))
	}
	row("", "%d pods start before any Job ends, within %s: a run is longer by the time that their creation and binding take", b.FirstWave,
		short(b.FirstWaveIn.Duration))
	row("", "all machines count as one large machine, and only runs and boots take time")
	if b.Impossible > 0 {
		row("", "%d Jobs are left out, since their pods do not fit on the machines at once", b.Impossible)
	}
	row("Ends", "once all Jobs have ended, after %s at the latest", short(s.Ends.AtMost.Duration))
	if over := jobs[0].At + b.Area.Duration; over > s.Ends.AtMost.Duration {
		row("", "but no order of Jobs ends before %s: some will not have ended", short(over))
	}
	if s.Faults != nil {
		row("Faults", "%d, which the bound ignores", len(s.Faults.Occurrences(s.Ends.AtMost.Duration)))
	}
	_ = table.Flush() // into memory
	return out.String()
}

// short leaves out what is less than a second.
func short(d time.Duration) string { return d.Round(time.Second).String() }
