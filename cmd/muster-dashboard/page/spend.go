package page

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/cmd/view"
)

// spendWindows are the times that spend can be shown for; the first is the default.
var spendWindows = []time.Duration{7 * 24 * time.Hour, 35 * 24 * time.Hour}

// spendView is what was spent each day (UTC), the largest sum first.
type spendView struct {
	// Why says why there is nothing to show; empty otherwise.
	Why    string        `json:"why,omitempty"`
	By     string        `json:"by"`
	Window int           `json:"window"`
	Days   []string      `json:"days"`
	Spend  []spendSeries `json:"spend"`
}

// spendSeries is the spend on one name, in USD; the name is empty for what has none.
type spendSeries struct {
	Name string    `json:"name"`
	USD  []float64 `json:"usd"`
	Sum  float64   `json:"sum"`
}

// spendChoice reads what a request selects of the history.
func spendChoice(r *http.Request) (by string, window time.Duration, err error) {
	by = cmp.Or(r.URL.Query().Get("by"), view.DailySpendBy[0])
	if !slices.Contains(view.DailySpendBy, by) {
		return "", 0, refusal{http.StatusBadRequest, fmt.Sprintf("by: %q is not supported: use one of %s", by,
			strings.Join(view.DailySpendBy, ", "))}
	}
	window, err = windowOf(r.URL.Query().Get("window"), spendWindows)
	return by, window, err
}

// daily returns the spend of each day of the window, today included.
func (s *Server) daily(past *view.Past, by string, window time.Duration) (days []string, spend []view.DailySpend) {
	now := s.config.Clock.Now()
	return past.Daily(by, now.Add(24*time.Hour-window), now)
}

// spend answers with what was spent each day.
func (s *Server) spend(ctx context.Context, _ *decision, r *http.Request) (spendView, error) {
	by, window, err := spendChoice(r)
	if err != nil {
		return spendView{}, err
	}
	out := spendView{By: by, Window: int(window.Seconds()), Days: []string{}, Spend: []spendSeries{}}
	past, err := s.recorded(ctx)
	if err != nil {
		out.Why = err.Error()
		return out, nil
	}
	days, spend := s.daily(past, by, window)
	out.Days = days
	for _, d := range spend {
		one := spendSeries{Name: d.Of, Sum: float64(d.Sum) / microUSD, USD: make([]float64, len(days))}
		for i, n := range d.MicroUSD {
			one.USD[i] = float64(n) / microUSD
		}
		out.Spend = append(out.Spend, one)
	}
	return out, nil
}

// spendCSV writes the same as a file: a row for each day and name, to the millionth of a USD.
func (s *Server) spendCSV(w http.ResponseWriter, r *http.Request) {
	by, window, err := spendChoice(r)
	if err != nil {
		fail(w, err)
		return
	}
	past, err := s.recorded(r.Context())
	if err != nil {
		fail(w, refusal{http.StatusServiceUnavailable, err.Error()})
		return
	}
	days, spend := s.daily(past, by, window)
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=\"spend-by-%s.csv\"", by))
	w.Header().Set("Cache-Control", "no-store")
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", by, "usd"}) // the client may have disconnected
	for i, day := range days {
		for _, d := range spend {
			if n := d.MicroUSD[i]; n != 0 {
				_ = out.Write([]string{day, inert(d.Of), view.Decimal(n)})
			}
		}
	}
	out.Flush()
}

// inert keeps a spreadsheet from taking a name of a user for a formula.
func inert(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
