package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML renders the report as one self-contained page, without scripts, fonts or external images.
func (r Report) HTML() ([]byte, error) {
	var out strings.Builder
	err := page.Execute(&out, struct {
		Report
		Sections []section
		Pictures []picture
	}{r, sections(r.rows()), pictures(r.Curves)})
	return []byte(out.String()), err
}

// section is a table.
type section struct {
	Name string
	Rows []line
}

type line struct{ Name, Text string }

func sections(rows []row) (out []section) {
	for _, r := range rows {
		if len(out) == 0 || out[len(out)-1].Name != r.section {
			out = append(out, section{Name: r.section})
		}
		last := &out[len(out)-1]
		last.Rows = append(last.Rows, line{r.name, r.text})
	}
	return out
}

// picture is a curve, drawn. Its lines are in the units of a box of 640 × 180.
type picture struct {
	Title, Unit string
	Most, Last  string
	Lines       []drawn
	// Width and Height of the box.
	Width, Height int
}

// drawn is a line with its colour, which is a class of the page's style.
type drawn struct {
	Name, Class, Points string
	// Final is the value at the end, for the legend.
	Final string
}

const (
	pictureWidth  = 640
	pictureHeight = 180
	// colours that the page's style has.
	colours = 6
)

func pictures(curves []Curve) (out []picture) {
	for _, c := range curves {
		p := picture{Title: c.Title, Unit: c.Unit, Width: pictureWidth, Height: pictureHeight}
		var most int64 = 1
		for _, s := range c.Series {
			most = max(most, slices.Max(s.Values))
		}
		for i, s := range c.Series {
			last := len(s.Values) - 1
			var points strings.Builder
			for k, v := range s.Values {
				fmt.Fprintf(&points, "%.1f,%.1f ", float64(k*pictureWidth)/float64(max(last, 1)), pictureHeight-float64(v*pictureHeight)/float64(most))
			}
			p.Lines = append(p.Lines, drawn{
				Name: s.Name, Class: fmt.Sprintf("c%d", i%colours), Points: strings.TrimSpace(points.String()), Final: grouped(s.Values[last]),
			})
			p.Last = short(time.Duration(int64(last)*s.StepMillis) * time.Millisecond)
		}
		p.Most = grouped(most)
		out = append(out, p)
	}
	return out
}
