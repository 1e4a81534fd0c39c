package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/workload"
)

// MostForeseen is the most pending Workloads for a forecast: with more it takes many seconds.
const MostForeseen = 2000

// Expected is the estimated start of a Workload.
type Expected struct {
	// Start is empty if it is beyond the horizon or unknown. In 8 of 10 past cases it was between Early
	// and Late. An empty Late is beyond the horizon.
	Start string `json:"start,omitempty"`
	Early string `json:"early,omitempty"`
	Late  string `json:"late,omitempty"`
	// After are the jobs of unknown run time, one of which is likely to be the last that it waits
	// for; then there is no Start.
	After []string `json:"after,omitempty"`
	// Words are the same as text, and Basis is what the estimate rests on.
	Words []string `json:"words"`
	Basis string   `json:"basis,omitempty"`
}

// TooMany is the error of a forecast for more Workloads than MostForeseen.
type TooMany struct{ Waiting int }

func (e TooMany) Error() string {
	return fmt.Sprintf("%d workloads are pending, and a forecast for more than %d takes too long", e.Waiting, MostForeseen)
}

// Foresee runs the queues forward in time, and notes the forecast in the Picture. The error is that of ctx, if it is done
// before the forecast, or a TooMany.
func (p *Picture) Foresee(ctx context.Context) error {
	history, waiting := p.History()
	if waiting > MostForeseen {
		return TooMany{waiting}
	}
	report, ok := forecast.Paced(p.Queues, history, p.Now, forecast.Horizon, until(ctx))
	if !ok {
		return ctx.Err()
	}
	p.Foreseen = &report
	return nil
}

// until is the rest of a forecast that ends once ctx is done.
func until(ctx context.Context) func() bool { return func() bool { return ctx.Err() == nil } }

// Expected returns the estimated start of a Workload by the forecast of the Picture; nil if that has none.
func (p *Picture) Expected(workload types.UID) *Expected {
	if p.Foreseen == nil {
		return nil
	}
	i := slices.IndexFunc(p.Foreseen.Estimates, func(e forecast.Estimate) bool { return e.Workload.UID == workload })
	if i < 0 {
		return nil
	}
	out := p.expected(&p.Foreseen.Estimates[i])
	out.Basis = p.Foreseen.Basis()
	return out
}

// History collects what past Workloads and launches show, and counts the pending Workloads.
func (p *Picture) History() (history *forecast.History, waiting int) {
	history = &forecast.History{}
	for _, w := range p.Workloads {
		history.Observe(w)
		history.Arrived(w)
		if !workload.IsAdmitted(w) && !workload.IsFinished(w) {
			waiting++
		}
	}
	for _, r := range p.Requests {
		history.Launched(r)
	}
	return history, waiting
}

// expected puts an estimate in words.
func (p *Picture) expected(e *forecast.Estimate) *Expected {
	out := &Expected{Start: stamp(e.Start), Early: stamp(e.Early), Late: stamp(e.Late)}
	for _, w := range e.After {
		out.After = append(out.After, nameFor(w, e.Workload))
	}
	switch {
	case e.Unknown:
		out.Words = []string{When(e) + ", at an unknown time: neither past jobs nor a maximum execution time tell"}
	case e.Start.IsZero() && e.Early.IsZero():
		out.Words = []string{fmt.Sprintf("not within %d days, as things stand", int(forecast.Horizon.Hours())/24)}
	case e.Start.IsZero():
		out.Words = []string{fmt.Sprintf("probably not within %d days; at the earliest %s", int(forecast.Horizon.Hours())/24, in(p.Now, e.Early))}
	case e.Late.IsZero():
		out.Words = []string{fmt.Sprintf("%s; at the earliest %s, possibly not within %d days", in(p.Now, e.Start), stamp(e.Early),
			int(forecast.Horizon.Hours())/24)}
	default:
		out.Words = []string{fmt.Sprintf("%s; most likely from %s to %s", in(p.Now, e.Start), stamp(e.Early), stamp(e.Late))}
	}
	return out
}

// mostAfter is how many jobs When names at most.
const mostAfter = 3

// When describes when an estimate without a time will be.
func When(e *forecast.Estimate) string {
	var names []string
	for _, w := range e.After[:min(mostAfter, len(e.After))] {
		names = append(names, nameFor(w, e.Workload))
	}
	switch more := len(e.After) - len(names); {
	case len(names) == 0:
		return "when jobs of unknown run time end"
	case len(names) == 1:
		return "when " + names[0] + " ends"
	case more > 0:
		return fmt.Sprintf("when enough of %s and %d more end", strings.Join(names, ", "), more)
	default:
		return "when enough of " + strings.Join(names, ", ") + " end"
	}
}

// nameFor returns a job's name, with its namespace if it is another than the reader's.
func nameFor(w, reader *kueue.Workload) string {
	if w.Namespace != reader.Namespace {
		return history.NameOf(w) + " of namespace " + w.Namespace
	}
	return history.NameOf(w)
}

// stamp is a time as the API writes it; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
