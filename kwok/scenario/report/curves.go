package report

import (
	"maps"
	"slices"
	"time"
)

// Curve is a picture of something over scenario time.
type Curve struct {
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	Series []Series `json:"series"`
}

// Series is one line of a curve: its values at equal steps of time.
type Series struct {
	Name string `json:"name"`
	// StepMillis is the time between two values, in milliseconds of scenario time.
	StepMillis int64   `json:"stepMillis"`
	Values     []int64 `json:"values"`
}

// samples is how many steps a curve has: about what a picture has room for.
const samples = 240

func curves(r Record) []Curve {
	out := []Curve{
		{Title: "Jobs", Unit: "Jobs", Series: jobSeries(r)},
		{Title: "In use", Unit: "% of " + string(r.Resource), Series: useSeries(r)},
	}
	if len(r.Machines) > 0 {
		out = append(out, Curve{Title: "Machines bought", Unit: "machines", Series: machineSeries(r)})
	}
	return out
}

// series samples an amount that changes by steps, until the last Job's end.
func (r Record) series(name string, changes []step) Series {
	return r.seriesUntil(r.last(), name, changes)
}

func (r Record) seriesUntil(end time.Duration, name string, changes []step) Series {
	slices.SortFunc(changes, compareSteps)
	// Rounded up, so that the last value is that of the end.
	length := max((end+samples-1)/samples, time.Millisecond)
	out := Series{Name: name, StepMillis: r.scaled(length).Milliseconds()}
	var now int64
	for i := range samples + 1 {
		for len(changes) > 0 && changes[0].at <= time.Duration(i)*length {
			now += changes[0].delta
			changes = changes[1:]
		}
		out.Values = append(out.Values, now)
	}
	return out
}

func jobSeries(r Record) []Series {
	var waiting, running, succeeded, failed []step
	for i, at := range together(r) {
		j := r.Jobs[i]
		waiting = append(waiting, step{j.Submitted, 1})
		switch {
		case at != Never:
			waiting, running = append(waiting, step{at, -1}), append(running, step{at, 1})
			if j.Outcome != Unfinished {
				running = append(running, step{j.Ended, -1})
			}
		case j.Outcome != Unfinished:
			waiting = append(waiting, step{j.Ended, -1})
		}
		switch j.Outcome {
		case Succeeded:
			succeeded = append(succeeded, step{j.Ended, 1})
		case Failed:
			failed = append(failed, step{j.Ended, 1})
		case Unfinished:
		}
	}
	return []Series{r.series("waiting", waiting), r.series("running, all pods", running), r.series("succeeded", succeeded),
		r.series("failed", failed)}
}

// useSeries are what is in use of the machines that there are, in percent.
func useSeries(r Record) (out []Series) {
	byNode := runs(r)
	var fixed, bought []span
	var haveFixed, haveBought []step
	for _, n := range r.Nodes {
		fixed = append(fixed, byNode[n.Name]...)
		haveFixed = append(haveFixed, step{0, n.Amount})
	}
	for _, m := range r.Machines {
		bought = append(bought, byNode[m.Name]...)
		haveBought = append(haveBought, step{m.Launched, m.Amount})
		if m.Gone != Never {
			haveBought = append(haveBought, step{m.Gone, -m.Amount})
		}
	}
	for _, kind := range []struct {
		name string
		uses []span
		have []step
	}{{"of fixed machines", fixed, haveFixed}, {"of bought machines", bought, haveBought}} {
		if len(kind.have) == 0 {
			continue
		}
		use, have := r.series(kind.name, steps(kind.uses)), r.series("", kind.have)
		for i := range use.Values {
			if have.Values[i] > 0 {
				use.Values[i] = use.Values[i] * 100 / have.Values[i]
			} else {
				use.Values[i] = 0
			}
		}
		out = append(out, use)
	}
	return out
}

// machineSeries returns the machines that are paid for, by group, until the end of the observation. The last of them are terminated after
// all Jobs have ended.
func machineSeries(r Record) (out []Series) {
	changes := map[string][]step{}
	for _, m := range r.Machines {
		changes[m.Group] = append(changes[m.Group], step{m.Launched, 1})
		if m.Gone != Never {
			changes[m.Group] = append(changes[m.Group], step{m.Gone, -1})
		}
	}
	for _, group := range slices.Sorted(maps.Keys(changes)) {
		out = append(out, r.seriesUntil(r.End, group, changes[group]))
	}
	return out
}
