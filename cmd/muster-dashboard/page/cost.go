package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/cmd/view"
)

// curveWindow is the time range of curves, one of windows; curvePoints is their number of points.
const (
	curveWindow = 24 * time.Hour
	curvePoints = 240
)

// costView is the view of costs.
type costView struct {
	USDPerHour float64      `json:"usdPerHour"`
	Teams      []teamSpend  `json:"teams"`
	Groups     []groupSpend `json:"groups"`
	Jobs       []jobSpend   `json:"jobs"`
	// Budgets are those of CapacityPolicies.
	Budgets []view.BudgetCost `json:"budgets,omitempty"`
	// Unpriced are groups with machines and without a price.
	Unpriced []string `json:"unpriced,omitempty"`
	// Waste is the cost by purpose since Since.
	Since  int64       `json:"since"`
	Waste  []wasteLine `json:"waste"`
	Spend  curve       `json:"spend"`
	Prices curves      `json:"prices"`
	Source string      `json:"source"`
}

// groupSpend is the number of a group's machines; USDPerHour is for one.
type groupSpend struct {
	Name         string  `json:"name"`
	Provider     string  `json:"provider"`
	CapacityType string  `json:"capacityType"`
	USDPerHour   float64 `json:"usdPerHour"`
	Machines     int     `json:"machines"`
}

// wasteLine is the accumulated time and cost of one purpose.
type wasteLine struct {
	Purpose purpose `json:"purpose"`
	Seconds float64 `json:"seconds"`
	USD     float64 `json:"usd"`
}

// curve has values at times, in seconds. A null value is unknown.
type curve struct {
	Times  []int64    `json:"times"`
	Values []*float64 `json:"values"`
}

// curves share their times.
type curves struct {
	Times  []int64       `json:"times"`
	Series []namedValues `json:"series"`
}

type namedValues struct {
	Name   string     `json:"name"`
	Values []*float64 `json:"values"`
}

func (s *Server) cost(_ context.Context, d *decision, _ *http.Request) (costView, error) {
	now := s.config.Clock.Now()
	history, source := s.history(now, curveWindow)
	history = append(thinned(history, curvePoints), sampleNow(now, d))
	out := costView{
		USDPerHour: d.fleet.spend, Teams: d.fleet.teams, Jobs: d.fleet.jobs, Unpriced: d.fleet.unpriced, Groups: groupsOf(d),
		Budgets: d.fleet.budgets, Since: millis(s.began),
		Waste: []wasteLine{}, Spend: spendOf(history), Source: source,
	}
	bills := s.past.bills(now, &d.fleet)
	for _, p := range everyPurpose {
		if b, ok := bills[p]; ok && b.seconds > 0 {
			out.Waste = append(out.Waste, wasteLine{Purpose: p, Seconds: b.seconds, USD: b.usd})
		}
	}
	out.Prices = pricesOf(history, out.Groups)
	return out, nil
}

// sampleNow is the end of all curves.
func sampleNow(now time.Time, d *decision) sample {
	out := sample{at: now, groups: map[string]groupSample{}, spend: d.fleet.spend, seen: true}
	for name, g := range d.picture.Groups {
		out.groups[name] = groupSampleOf(g, now, d.fleet.prices[name])
	}
	return out
}

// groupsOf returns the groups, the highest cost first.
func groupsOf(d *decision) []groupSpend {
	out := []groupSpend{}
	for name, g := range d.picture.Groups {
		one := groupSpend{Name: name, Provider: string(g.Spec.Provider), CapacityType: string(g.Spec.CapacityType),
			USDPerHour: d.fleet.prices[name]}
		for _, n := range d.fleet.purposes[name] {
			one.Machines += n
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b groupSpend) int {
		return cmp.Or(cmp.Compare(b.USDPerHour*float64(b.Machines), a.USDPerHour*float64(a.Machines)), strings.Compare(a.Name, b.Name))
	})
	return out
}

func spendOf(history []sample) (out curve) {
	for _, h := range history {
		var value *float64
		if h.seen {
			value = &h.spend
		}
		out.Times, out.Values = append(out.Times, h.at.Unix()), append(out.Values, value)
	}
	return out
}

// pricesOf returns the price curves of the groups that have a price, in the order given.
func pricesOf(history []sample, groups []groupSpend) curves {
	out := curves{Series: []namedValues{}}
	for _, h := range history {
		out.Times = append(out.Times, h.at.Unix())
	}
	for _, g := range groups {
		one := namedValues{Name: g.Name}
		for _, h := range history {
			var value *float64
			if seen, ok := h.groups[g.Name]; ok {
				value = &seen.price
			}
			one.Values = append(one.Values, value)
		}
		if g.USDPerHour > 0 {
			out.Series = append(out.Series, one)
		}
	}
	return out
}

// thinned drops samples, but not the first, if there are more than n.
func thinned(history []sample, most int) []sample {
	step := (len(history) + most - 1) / most
	if step <= 1 {
		return history
	}
	out := make([]sample, 0, most)
	for i := 0; i < len(history); i += step {
		out = append(out, history[i])
	}
	return out
}
