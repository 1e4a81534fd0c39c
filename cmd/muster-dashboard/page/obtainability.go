package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// columns of the heatmap: one per minute in an hour.
const columns = 60

// unknown is the chance at a time without a sample.
const unknown = -1

// windows that can be shown; the first is the default.
var windows = []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour}

// obtainabilityView is the view of machines that could be launched.
type obtainabilityView struct {
	Window  int   `json:"window"`
	Columns int   `json:"columns"`
	From    int64 `json:"from"`
	To      int64 `json:"to"`
	Step    int64 `json:"step"`
	// Source says where the history comes from.
	Source    string     `json:"source"`
	Offerings []offering `json:"offerings"`
	Sizes     []sizeLine `json:"sizes"`
	SizesOf   string     `json:"sizesOf"`
}

// offering is a NodeGroup: machines of one type in one zone, of one capacity type.
type offering struct {
	Name         string `json:"name"`
	Provider     string `json:"provider"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone,omitempty"`
	Type         string `json:"type,omitempty"`
	USDPerHour   string `json:"usdPerHour"`
	Machines     int32  `json:"machines"`
	Max          int32  `json:"max"`
	// Chance and ChanceOfEight are in percent.
	Chance        int      `json:"chance"`
	ChanceOfEight *int     `json:"chanceOfEight,omitempty"`
	LastFailure   string   `json:"lastFailure,omitempty"`
	Backoff       int64    `json:"backoff,omitempty"`
	Troubles      []string `json:"troubles,omitempty"`
	// Chances, in percent, and Evidence, in launches, by column; unknown ones are -1.
	Chances  []int     `json:"chances"`
	Evidence []float64 `json:"evidence"`
	Attempts []attempt `json:"attempts,omitempty"`
}

// attempt is a launch on record.
type attempt struct {
	At        int64  `json:"at"`
	Requested int32  `json:"requested"`
	Got       int32  `json:"got"`
	Class     string `json:"class,omitempty"`
}

// sizeLine is how launches of one size went: of at least so many machines, and fewer than
// twice as many.
type sizeLine struct {
	AtLeast int `json:"atLeast"`
	Got     int `json:"got"`
	Failed  int `json:"failed"`
}

func (s *Server) obtainability(_ context.Context, d *decision, r *http.Request) (obtainabilityView, error) {
	window, err := windowOf(r.URL.Query().Get("window"), windows)
	if err != nil {
		return obtainabilityView{}, err
	}
	now := s.config.Clock.Now()
	from := now.Add(-window)
	step := window / columns
	out := obtainabilityView{
		Window: int(window.Seconds()), Columns: columns, From: millis(from), To: millis(now), Step: step.Milliseconds(),
		Offerings: []offering{}, Sizes: sizesOf(d.picture.Groups), SizesOf: "From the last 10 launches of each NodeGroup.",
	}
	history, source := s.history(now, window)
	out.Source = source
	for _, line := range d.picture.GroupLines() {
		o := offeringOf(&line, d.picture.Groups[line.Name])
		o.Chances, o.Evidence = make([]int, columns), make([]float64, columns)
		for i := range o.Chances {
			o.Chances[i] = unknown
		}
		out.Offerings = append(out.Offerings, o)
	}
	for _, h := range history {
		i := min(columns-1, int(h.at.Sub(from)/step))
		for j := range out.Offerings {
			if g, ok := h.groups[out.Offerings[j].Name]; ok {
				out.Offerings[j].see(i, g)
			}
		}
	}
	for j := range out.Offerings {
		o := &out.Offerings[j]
		o.see(columns-1, groupSampleOf(d.picture.Groups[o.Name], now, 0))
	}
	return out, nil
}

// see puts the last known sample into a column.
func (o *offering) see(column int, g groupSample) {
	o.Chances[column], o.Evidence[column] = int(g.chance), math.Round(float64(g.evidence)*10)/10
}

// windowOf reads one of the windows of a view; the first is the default.
func windowOf(seconds string, windows []time.Duration) (time.Duration, error) {
	if seconds == "" {
		return windows[0], nil
	}
	n, err := strconv.Atoi(seconds)
	if window := time.Duration(n) * time.Second; err == nil && slices.Contains(windows, window) {
		return window, nil
	}
	return 0, refusal{http.StatusBadRequest, fmt.Sprintf("window: %q is not supported: use the seconds of one of %v", seconds, windows)}
}

func offeringOf(l *view.GroupLine, g *v1alpha1.NodeGroup) offering {
	out := offering{
		Name: l.Name, Provider: l.Provider, CapacityType: l.CapacityType, Zone: l.Zone, Type: typeOf(g), USDPerHour: l.USDPerHour,
		Machines: l.Machines, Max: l.Max,
		Chance: l.ChanceOfOne, ChanceOfEight: l.ChanceOfEight, LastFailure: l.LastFailure, Troubles: l.Troubles,
	}
	if l.Backoff != nil {
		out.Backoff = millis(*l.Backoff)
	}
	for _, a := range g.Status.Attempts {
		out.Attempts = append(out.Attempts, attempt{At: millis(a.Time.Time), Requested: a.Requested, Got: a.Got, Class: string(a.Class)})
	}
	return out
}

// typeOf returns the instance type; empty if unknown.
func typeOf(g *v1alpha1.NodeGroup) string {
	return cmp.Or(nodegroups.MachineType(&g.Spec), g.Spec.Template.Labels["node.kubernetes.io/instance-type"])
}

// sizesOf counts the launches on record by their size.
func sizesOf(groups map[string]*v1alpha1.NodeGroup) []sizeLine {
	bySize := map[int]*sizeLine{}
	for _, g := range groups {
		for _, a := range g.Status.Attempts {
			atLeast := 1 << (bits.Len(uint(max(a.Requested, 1))) - 1)
			if bySize[atLeast] == nil {
				bySize[atLeast] = &sizeLine{AtLeast: atLeast}
			}
			if a.Class == "" {
				bySize[atLeast].Got++
			} else {
				bySize[atLeast].Failed++
			}
		}
	}
	out := []sizeLine{}
	for _, atLeast := range slices.Sorted(maps.Keys(bySize)) {
		out = append(out, *bySize[atLeast])
	}
	return out
}
