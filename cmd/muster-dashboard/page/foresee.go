package page

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/forecast"
)

// foreseen are the expected starts of the pending Workloads, as of a decision.
type foreseen struct {
	// at is zero without a forecast.
	at        time.Time
	report    *forecast.Report
	estimates map[workload]forecast.Estimate
	// words are its basis, or say why there is none.
	words string
	end   time.Time
}

// foresee makes forecasts of decisions while a page is open.
func (s *Server) foresee(ctx context.Context) {
	c := s.config.Clock
	ticker := c.NewTicker(shortestRest)
	defer ticker.Stop()
	var last *decision
	var rest time.Time
	for {
		d, now := s.latest.Load(), c.Now()
		if d != nil && d != last && d.err == nil && !now.Before(rest) && (s.watched(now) || last == nil) {
			last = d
			// With its own Picture, since it takes long and requests use the decision's.
			f := foreseeAll(ctx, view.New(c, s.config.Settings, d.reading))
			if f == nil {
				return
			}
			s.foreseen.Store(f)
			s.notify()
			rest = c.Now().Add(max(5*shortestRest, restShare*c.Since(now)))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wait():
		case <-ticker.C():
		}
	}
}

// foreseeAll runs the queues forward in time; nil if ctx is done before.
func foreseeAll(ctx context.Context, p *view.Picture) *foreseen {
	out := &foreseen{estimates: map[workload]forecast.Estimate{}}
	if !p.Decides() {
		out.words = "No forecast: rights to read are missing."
		return out
	}
	// A forecast for 400 Workloads that need machines of 24 groups takes ten seconds of CPU.
	switch err := p.Foresee(ctx); {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		out.words = fmt.Sprintf("No forecast: %s.", err)
		return out
	}
	out.at, out.report = p.Now, p.Foreseen
	for _, e := range out.report.Estimates {
		out.estimates[workload{e.Workload.Namespace, e.Workload.Name}] = e
		for _, at := range []time.Time{e.Start, e.Late} {
			if at.After(out.end) {
				out.end = at
			}
		}
		if e.Late.IsZero() && !e.Early.IsZero() {
			out.end = p.Now.Add(forecast.Horizon)
		}
	}
	out.words = "There, " + out.report.Basis() + "."
	return out
}

// forecastSummary reports the time and the basis of the forecast.
type forecastSummary struct {
	At    int64  `json:"at,omitempty"`
	Words string `json:"words"`
}

func (s *Server) forecastSummary() forecastSummary {
	f := s.foreseen.Load()
	switch {
	case f == nil:
		return forecastSummary{Words: "The forecast is being computed."}
	case f.at.IsZero():
		return forecastSummary{Words: f.words}
	}
	return forecastSummary{At: millis(f.at), Words: f.words}
}

// axis is from now to where the last range ends.
func (f *foreseen) axis(now time.Time) [2]int64 {
	if f == nil || !f.end.After(now) {
		return [2]int64{millis(now), millis(now.Add(time.Hour))}
	}
	return [2]int64{millis(now), millis(f.end)}
}

// sortedBy is the time by which a line is sorted: lines without an expected start come last.
func (f *foreseen) sortedBy(l *line) time.Time {
	never := time.Unix(1<<40, 0)
	if f == nil {
		return never
	}
	e, ok := f.estimates[workload{l.Namespace, l.Workload}]
	switch {
	case !ok || e.Early.IsZero():
		return never
	case e.Start.IsZero():
		return e.Early.Add(forecast.Horizon)
	}
	return e.Start
}

// row converts a line for the page.
func (f *foreseen) row(l *line) row {
	out := row{
		Queue: l.ClusterQueue, Position: l.Position, Namespace: l.Namespace, Name: l.Name, Workload: l.Workload, Priority: l.Priority,
		Created: millis(l.Created), Reason: l.reasonOf(), Words: l.Words, Message: l.Message, Requests: l.requests,
	}
	if l.Next != nil {
		out.Next = millis(*l.Next)
	}
	if f == nil || f.at.IsZero() {
		return out
	}
	e, ok := f.estimates[workload{l.Namespace, l.Workload}]
	switch {
	case !ok:
		out.Foreseen = foreseenNo
	case e.Unknown:
		out.Foreseen, out.After = foreseenAfter, view.When(&e)
	case e.Early.IsZero():
		out.Foreseen = foreseenBeyond
	default:
		out.Foreseen, out.Start, out.Early, out.Late = foreseenYes, millis(e.Start), millis(e.Early), millis(e.Late)
	}
	return out
}
