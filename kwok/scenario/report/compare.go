package report

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Compare returns a table of two reports, with the quotient of the second and the first.
func Compare(a, b Report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "A  %s, admitted by %s, at speed %d\nB  %s, admitted by %s, at speed %d\n",
		a.Scenario, a.Admitter, a.Speed, b.Scenario, b.Admitter, b.Speed)
	switch {
	case a.Scenario != b.Scenario:
		out.WriteString("These are different scenarios, so their figures are hardly comparable.\n")
	case a.Bound != b.Bound:
		out.WriteString("These are scenarios of one name with different bounds: the file was changed between the runs, so their Jobs or " +
			"machines differ.\n")
	}
	if a.Speed != b.Speed {
		out.WriteString("These are runs at different speeds: times that are not divided by the speed weigh more in the faster one.\n")
	}
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	left, right := a.rows(), b.rows()
	section := ""
	for _, row := range merged(left, right) {
		if row.section != section {
			section = row.section
			fmt.Fprintf(table, "\n%s\tA\tB\tB ÷ A\n", section)
		}
		x, y := find(left, row), find(right, row)
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", row.name, text(x), text(y), quotient(x, y))
	}
	_ = table.Flush() // to a builder
	out.WriteString("\n" + atRateOf(a, b, "A", "B") + atRateOf(b, a, "B", "A"))
	return out.String()
}

// OverFIFOAtRateOf is the makespan divided by the FIFO bound plus the start-up of the first
// wave at the other run's rate of binding pods. With kube-scheduler alone on the same machine
// as the other run, this is a lower bound. It is 0 if either run has no start-up.
func (r Report) OverFIFOAtRateOf(other Report) float64 {
	if other.Makespan.PodsPerSecond == 0 || r.Bound.FirstWaveIn.Duration > 0 {
		return 0
	}
	startUp := time.Duration(float64(r.Bound.FirstWave) / other.Makespan.PodsPerSecond * float64(time.Second) * float64(r.Speed))
	bound := r.Bound.FIFO.Duration + startUp
	return ratio(r.Makespan.Took.Seconds(), bound.Seconds())
}

func atRateOf(r, other Report, name, otherName string) string {
	over := r.OverFIFOAtRateOf(other)
	if over == 0 {
		return ""
	}
	return fmt.Sprintf("%s's makespan ÷ (first come first served + start-up at %s's rate): %.3f\n", name, otherName, over)
}

// merged are the rows of both, those of the first report first within a section.
func merged(left, right []row) []row {
	out := slices.Clone(left)
	for _, row := range right {
		if find(out, row) != nil {
			continue
		}
		at := len(out)
		for i := range out {
			if out[i].section == row.section {
				at = i + 1
			}
		}
		out = slices.Insert(out, at, row)
	}
	return out
}

func find(rows []row, like row) *row {
	i := slices.IndexFunc(rows, func(r row) bool { return r.section == like.section && r.name == like.name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

func text(r *row) string {
	if r == nil {
		return "-"
	}
	return r.text
}

func quotient(a, b *row) string {
	if a == nil || b == nil || a.value == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", b.value/a.value)
}
