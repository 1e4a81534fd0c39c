package page

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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

// chosenSpend is what a request selects of the history.
func (s *Server) chosenSpend(ctx context.Context, r *http.Request) (by string, window time.Duration, days []string, spend []view.DailySpend,
	err error) {
	if by = r.URL.Query().Get("by"); by == "" {
		by = view.DailySpendBy[0]
	}
	if !slices.Contains(view.DailySpendBy, by) {
		return by, 0, nil, nil, refusal{http.StatusBadRequest, fmt.Sprintf("by: %q is not supported: use one of %s", by,
			strings.Join(view.DailySpendBy, ", "))}
	}
	if window, err = windowOf(r.URL.Query().Get("window"), spendWindows); err != nil {
		return by, 0, nil, nil, err
	}
	past, err := s.recorded(ctx)
	if err != nil {
		return by, window, nil, nil, refusal{http.StatusServiceUnavailable, err.Error()}
	}
	now := s.config.Clock.Now()
	days, spend = past.Daily(by, now.Add(24*time.Hour-window), now)
	return by, window, days, spend, nil
}

// spend answers with what was spent each day.
func (s *Server) spend(ctx context.Context, _ *decision, r *http.Request) (spendView, error) {
	by, window, days, spend, err := s.chosenSpend(ctx, r)
	out := spendView{By: by, Window: int(window.Seconds()), Days: days, Spend: []spendSeries{}}
	if known := (refusal{}); errors.As(err, &known) && known.status == http.StatusServiceUnavailable {
		out.Why, out.Days = known.why, []string{}
		return out, nil
	}
	for _, d := range spend {
		one := spendSeries{Name: d.Of, Sum: float64(d.Sum) / microUSD, USD: make([]float64, len(days))}
		for i, n := range d.MicroUSD {
			one.USD[i] = float64(n) / microUSD
		}
		out.Spend = append(out.Spend, one)
	}
	return out, err
}

// spendCSV writes the same as a file: a row for each day and name, to the millionth of a USD.
func (s *Server) spendCSV(w http.ResponseWriter, r *http.Request) {
	by, _, days, spend, err := s.chosenSpend(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=\"spend-by-%s.csv\"", by))
	w.Header().Set("Cache-Control", "no-store")
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", by, "usd"}) // the client may have disconnected
	for i, day := range days {
		for _, d := range spend {
			if n := d.MicroUSD[i]; n != 0 {
				_ = out.Write([]string{day, inert(d.Of), strconv.FormatInt(n/microUSD, 10) + fmt.Sprintf(".%06d", n%microUSD)})
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
