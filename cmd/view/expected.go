package view

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/queueing/forecast"
	"github.com/muster-dev/muster/queueing/workload"
)

// MostForeseen is the most pending Workloads for a forecast: with more it takes many seconds.
const MostForeseen = 2000

// Expected is the estimated start of a Workload.
type Expected struct {
	// Start is empty if it is beyond the horizon. In 8 of 10 past cases it was between Early
	// and Late. An empty Late is beyond the horizon.
	Start string `json:"start,omitempty"`
	Early string `json:"early,omitempty"`
	Late  string `json:"late,omitempty"`
	// Words are the same as text, with the basis of the estimate.
	Words []string `json:"words"`
}

// Forecast runs the queues forward in time; nil if too many Workloads are pending.
func (p *Picture) Forecast() *forecast.Report {
	history, waiting := p.History()
	if waiting > MostForeseen {
		return nil
	}
	report := forecast.Forecast(p.Queues, history, p.Now, forecast.Horizon)
	return &report
}

// foresee returns the forecast for a Workload; nil if there is none.
func (p *Picture) foresee(workload types.UID) *Expected {
	report := p.Foreseen
	if report == nil {
		report = p.Forecast()
	}
	if report == nil {
		return nil
	}
	i := slices.IndexFunc(report.Estimates, func(e forecast.Estimate) bool { return e.Workload.UID == workload })
	if i < 0 {
		return nil
	}
	out := p.expected(&report.Estimates[i])
	out.Words = append(out.Words, report.Basis())
	return out
}

// History collects what past Workloads and launches tell, and counts the pending Workloads.
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
	switch {
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

// stamp is a time as the API writes it; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
