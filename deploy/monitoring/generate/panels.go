package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statushistory"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board is a dashboard.
type board struct {
	// name of the file, and of the dashboard in links.
	name, title, description string
	// from is the default time range.
	from string
	rows []row
}

// row of panels under a heading.
type row struct {
	title  string
	panels []panel
}

// panel shows the results of queries.
type panel struct {
	title, description string
	kind               kind
	// unit of the values, by Grafana's name.
	unit string
	// width in columns, of which there are 24.
	width   uint32
	queries []query
}

// query of Prometheus, with the legend of its series.
type query struct{ expr, legend string }

// kind of visualization.
type kind int

const (
	// lines over time.
	lines kind = iota
	// stacked areas over time, for what adds up.
	stacked
	// bars over time, stacked, for what is counted.
	bars
	// heat is a row of colours for each series, from red for 0 to green for 1.
	heat
	// ranking is a bar for each series, as it is now.
	ranking
	// number is one value, as it is now, over its curve.
	number
)

const height = 8

// source is the Prometheus that the viewer has chosen.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

func (b *board) build() (dashboard.Dashboard, error) {
	out := dashboard.NewDashboardBuilder(b.title).
		Uid("muster-"+b.name).Description(b.description).Tags([]string{"muster"}).
		Time("now-"+b.from, "now").Refresh("30s").Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable().
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("Muster").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"muster"}).KeepTime(true))
	for _, r := range b.rows {
		out.WithRow(dashboard.NewRowBuilder(r.title))
		for i := range r.panels {
			p, err := r.panels[i].build()
			if err != nil {
				return dashboard.Dashboard{}, fmt.Errorf("panel %q: %w", r.panels[i].title, err)
			}
			out.WithPanel(p)
		}
	}
	built, err := out.Build()
	for i := range built.Panels { // Grafana tells panels apart by their numbers
		id := uint32(i + 1)
		if r := built.Panels[i].RowPanel; r != nil {
			r.Id = id
		} else {
			built.Panels[i].Panel.Id = &id
		}
	}
	return built, err
}

func (p *panel) build() (cog.Builder[dashboard.Panel], error) {
	switch p.kind {
	case lines:
		return p.overTime().FillOpacity(0), nil
	case stacked:
		return p.overTime().FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)), nil
	case bars:
		return p.overTime().DrawStyle(common.GraphDrawStyleBars).FillOpacity(80).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)), nil
	case heat:
		return statushistory.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source).Targets(p.targets()).
			Span(p.width).Height(height).Unit(p.unit).Min(0).Max(1).ShowValue(common.VisibilityModeNever).
			ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdContinuousRdYlGr)).
			Legend(common.NewVizLegendOptionsBuilder().ShowLegend(false).DisplayMode(common.LegendDisplayModeList).Placement(
				common.LegendPlacementBottom)), nil
	case ranking:
		return bargauge.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source).Targets(p.targets()).
			Span(p.width).Height(height).Unit(p.unit).Min(0).Orientation(common.VizOrientationHorizontal).
			DisplayMode(common.BarGaugeDisplayModeBasic).ReduceOptions(now()), nil
	case number:
		return stat.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source).Targets(p.targets()).
			Span(p.width).Height(height / 2).Unit(p.unit).ColorMode(common.BigValueColorModeNone).ReduceOptions(now()), nil
	default:
		return nil, fmt.Errorf("unknown kind %d of panels", p.kind)
	}
}

func (p *panel) overTime() *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(source).Targets(p.targets()).
		Span(p.width).Height(height).Unit(p.unit).Min(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(
			common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
}

func (p *panel) targets() (out []cog.Builder[variants.Dataquery]) {
	for i, q := range p.queries {
		target := prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).Datasource(source).RefId(string(rune('A' + i)))
		if p.kind == ranking {
			target.Instant()
		} else {
			target.Range()
		}
		out = append(out, target)
	}
	return out
}

// now reduces a curve to its last value.
func now() *common.ReduceDataOptionsBuilder {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
}
