// Package growth measures what cycles, pictures and plans cost as clusters and
// backlogs grow, with the pure core driven directly: beyond what an API server on
// this machine could hold. A curve is what one thing costs at several sizes; its
// exponent says how: 0 does not grow, 1 grows with the size, 2 with its square.
package growth

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// curve is what one thing costs, in one unit, at several sizes.
type curve struct {
	name   string
	unit   unit
	points []point
}

type point struct{ size, value float64 }

// unit says what a value counts.
type unit int

const (
	nanoseconds unit = iota
	bytes
	// operations are allocations, or calls of what is given to the core.
	operations
)

// add puts down a value; of several at one size the last counts.
func (c *curve) add(size int, value float64) {
	c.points = slices.DeleteFunc(c.points, func(p point) bool { return p.size == float64(size) })
	c.points = append(c.points, point{float64(size), value})
	slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.size, b.size) })
}

// exponent is the slope of the line that is closest to the points, by least squares,
// where both axes are logarithmic. What costs less than one of its unit counts as one,
// so that what costs nothing does not grow.
func (c *curve) exponent() float64 {
	var x, y, xx, xy float64
	for _, p := range c.points {
		lx, ly := math.Log(p.size), math.Log(max(1, p.value))
		x, y, xx, xy = x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	n := float64(len(c.points))
	if n < 2 {
		return math.NaN()
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

func (u unit) show(v float64) string {
	switch {
	case u == bytes && v >= 1e6:
		return fmt.Sprintf("%.1f MB", v/1e6)
	case u == bytes:
		return fmt.Sprintf("%.0f B", v)
	case u == operations:
		return fmt.Sprintf("%.0f", v)
	case v >= 1e9:
		return fmt.Sprintf("%.2f s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2f ms", v/1e6)
	default:
		return fmt.Sprintf("%.2f µs", v/1e3)
	}
}

// curves are those of one benchmark, in the order in which they were begun.
type curves []*curve

func (cs *curves) of(name string, u unit) *curve {
	for _, c := range *cs {
		if c.name == name {
			return c
		}
	}
	c := &curve{name: name, unit: u}
	*cs = append(*cs, c)
	return c
}

// table prints one line for each curve.
func (cs curves) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "curve\t1k\t10k\t100k\t1,000k\texponent\t\n")
	for _, c := range cs {
		fmt.Fprintf(w, "%s\t", c.name)
		for _, size := range sizes {
			value := "-"
			if i := slices.IndexFunc(c.points, func(p point) bool { return p.size == float64(size) }); i >= 0 {
				value = c.unit.show(c.points[i].value)
			}
			fmt.Fprintf(w, "%s\t", value)
		}
		fmt.Fprintf(w, "%.2f\t\n", c.exponent())
	}
	_ = w.Flush() // there is nobody left to tell
}

func TestExponent(t *testing.T) {
	for name, tc := range map[string]struct {
		cost func(size float64) float64
		want float64
	}{
		"what stays the same":          {func(float64) float64 { return 700 }, 0},
		"what is free":                 {func(float64) float64 { return 0 }, 0},
		"what grows with the size":     {func(n float64) float64 { return 12 * n }, 1},
		"what grows with its square":   {func(n float64) float64 { return n * n / 10 }, 2},
		"a sort grows hardly faster":   {func(n float64) float64 { return n * math.Log2(n) }, 1.1},
		"a search in a tree hardly so": {func(n float64) float64 { return 50 * math.Log2(n) }, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &curve{}
			for _, size := range sizes {
				c.add(size, tc.cost(float64(size)))
			}
			if got := c.exponent(); !(math.Abs(got-tc.want) <= 0.03) {
				t.Errorf("exponent %.3f, want %.2f", got, tc.want)
			}
		})
	}
}

func TestTableHasALineForEachCurve(t *testing.T) {
	var cs curves
	cs.of("cycle", nanoseconds).add(1000, 2500)
	cs.of("cycle", nanoseconds).add(10_000, 25e6)
	cs.of("memory", bytes).add(1000, 1e9)
	var out strings.Builder
	cs.table(&out)
	for _, want := range []string{"cycle 2.50 µs 25.00 ms - - 4.00", "memory 1000.0 MB - - - NaN"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
