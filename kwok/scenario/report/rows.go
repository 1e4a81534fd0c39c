package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// row is a figure as text. The text report, the tables of the page and comparisons are
// made of rows.
type row struct {
	section, name, text string
	// value for the quotient of two reports.
	value float64
}

// rows are the figures in display order.
func (r Report) rows() (out []row) {
	section := ""
	add := func(name string, value float64, text string) {
		out = append(out, row{section, name, text, value})
	}
	count := func(name string, n int64) { add(name, float64(n), grouped(n)) }
	took := func(name string, d metav1.Duration) { add(name, d.Seconds(), short(d.Duration)) }
	factor := func(name string, f float64) { add(name, f, fmt.Sprintf("%.3f", f)) }
	share := func(name string, f float64) { add(name, f, fmt.Sprintf("%.1f %%", 100*f)) }
	cost := func(name string, milli int64) { add(name, float64(milli), usd(milli)) }
	percentiles := func(name string, p Percentiles) {
		if p.Of == 0 {
			return
		}
		had := fmt.Sprintf("%s of %s Jobs", grouped(int64(p.Count)), grouped(int64(p.Of)))
		if p.Count < p.Of {
			had += "; the others count with their wait so far"
		}
		add(name+", Jobs", float64(p.Count), had)
		took(name+", median", p.P50)
		took(name+", p90", p.P90)
		took(name+", p99", p.P99)
	}

	section = "Jobs"
	count("submitted", int64(r.Jobs.Submitted))
	count("succeeded", int64(r.Jobs.Succeeded))
	count("failed", int64(r.Jobs.Failed))
	count("unfinished", int64(r.Jobs.Unfinished))
	percentiles("wait until all pods run", r.Wait)
	percentiles("time to capacity", r.ToCapacity)

	section = "Makespan"
	took("makespan", r.Makespan.Took)
	took("lower bound by total work", r.Bound.Area)
	took("bound, first come first served", r.Bound.FIFO)
	if r.Makespan.PodsPerSecond > 0 {
		took("start-up of the first wave of pods", r.Makespan.StartUp)
		count("pods of the first wave", int64(r.Bound.FirstWave))
		add("pods bound per second of real time", r.Makespan.PodsPerSecond, fmt.Sprintf("%.1f", r.Makespan.PodsPerSecond))
		factor("makespan ÷ (first come first served + start-up)", r.Makespan.OverFIFO)
	} else {
		factor("makespan ÷ first come first served", r.Makespan.OverFIFO)
	}

	if r.Fixed.Machines > 0 {
		section = "Fixed machines"
		count("machines", int64(r.Fixed.Machines))
		share("utilisation", r.Fixed.Share)
	}
	if b := r.Bought; b.Machines > 0 {
		section = "Launched machines"
		count("launched", int64(b.Machines))
		count("needed", int64(b.Needed))
		factor("launched ÷ needed", b.BoughtPerNeeded)
		count("machines left", int64(b.Left))
		share("utilisation", b.Share)
		count("machine-seconds", b.MachineSeconds)
		count("machine-seconds wasted: without pods, or with lost pods", b.Wasted)
		share("idle share of the time", b.IdleShare)
		cost("cost", b.MilliUSD)
		cost("cost wasted: without pods, or with lost pods", b.WastedMilliUSD)
		cost("cost of lost pods", b.LostMilliUSD)

		section = "Launched machines by group"
		for _, g := range b.Groups {
			hours := float64(g.MachineSeconds) / 3600
			count(g.Name+", machines", int64(g.Machines))
			add(g.Name+", machine-hours", hours, fmt.Sprintf("%.2f", hours))
			cost(g.Name+", cost", g.MilliUSD)
		}
	}

	section = "API server and scheduler"
	for _, w := range r.API.Writes {
		count("writes by "+w.Who, w.Writes)
	}
	took("p99 of a write, in real time", r.API.P99)
	count("scheduling attempts that succeeded", r.Scheduling.Scheduled)
	count("scheduling attempts that failed", r.Scheduling.Unschedulable)

	section = "Faults"
	for _, fault := range slices.Sorted(maps.Keys(r.Faults)) {
		count(fault, int64(r.Faults[fault]))
	}

	if len(r.Promises.Judged) > 0 {
		section = "Promises"
		for _, check := range slices.Sorted(maps.Keys(r.Promises.Judged)) {
			count(check, int64(r.Promises.Judged[check]))
		}
		took("time with bounds, in real time", r.Promises.Bounded)
		count("broken", int64(len(r.Promises.Broken)))
	}
	return out
}

// Text is the report for a terminal.
func (r Report) Text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, admitted by %s, at speed %d\n%s\n", r.Scenario, r.Admitter, r.Speed, r.Description)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	section := ""
	for _, row := range r.rows() {
		if row.section != section {
			section = row.section
			fmt.Fprintf(table, "\n%s\n", section)
		}
		fmt.Fprintf(table, "  %s\t%s\n", row.name, row.text)
	}
	_ = table.Flush() // to a builder
	for _, broken := range r.Promises.First() {
		fmt.Fprintf(&out, "✗ %s\n", broken)
	}
	for i, what := range r.Uncompressed {
		if i == 0 {
			out.WriteString("\nNot divided by the speed:\n")
		}
		fmt.Fprintf(&out, "- %s\n", what)
	}
	return out.String()
}

// grouped formats a number with thousands separators.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func usd(milli int64) string { return fmt.Sprintf("%.2f USD", float64(milli)/1000) }

// short formats a duration with few digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-2]
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
