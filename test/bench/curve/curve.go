// Package curve puts what a benchmark measures at several sizes on curves. A curve is
// what one thing costs; its exponent says how that grows: 0 does not, 1 grows with the
// size, 2 with its square.
package curve

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Curve is what one thing costs, in one unit, at several sizes.
type Curve struct {
	name   string
	unit   Unit
	points []point
}

type point struct{ size, value float64 }

// String is the points in the order of their sizes.
func (c *Curve) String() string { return fmt.Sprint(c.points) }

// Unit says what a value counts.
type Unit int

// Units.
const (
	Nanoseconds Unit = iota
	Bytes
	// Operations are allocations, writes, or calls of what is given to the core.
	Operations
)

// Add puts down a value; of several at one size the last counts.
func (c *Curve) Add(size int, value float64) {
	c.points = slices.DeleteFunc(c.points, func(p point) bool { return p.size == float64(size) })
	c.points = append(c.points, point{float64(size), value})
	slices.SortFunc(c.points, func(a, b point) int { return cmp.Compare(a.size, b.size) })
}

// Exponent is the slope of the line that is closest to the points, by least squares,
// where both axes are logarithmic. What costs less than one of its unit counts as one,
// so that what costs nothing does not grow.
func (c *Curve) Exponent() float64 {
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

func (u Unit) show(v float64) string {
	switch {
	case u == Bytes && v >= 1e6:
		return fmt.Sprintf("%.1f MB", v/1e6)
	case u == Bytes:
		return fmt.Sprintf("%.0f B", v)
	case u == Operations:
		return fmt.Sprintf("%.3g", v)
	case v >= 1e9:
		return fmt.Sprintf("%.2f s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2f ms", v/1e6)
	default:
		return fmt.Sprintf("%.2f µs", v/1e3)
	}
}

// Curves are those of one benchmark, in the order in which they were begun.
type Curves []*Curve

// Of returns the curve of that name, which is begun where there is none.
func (cs *Curves) Of(name string, u Unit) *Curve {
	for _, c := range *cs {
		if c.name == name {
			return c
		}
	}
	c := &Curve{name: name, unit: u}
	*cs = append(*cs, c)
	return c
}

// Table prints one line for each curve and one column for each size.
func (cs Curves) Table(out io.Writer) {
	var sizes []float64
	for _, c := range cs {
		for _, p := range c.points {
			sizes = append(sizes, p.size)
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "curve\t")
	for _, size := range sizes {
		fmt.Fprintf(w, "%s\t", label(size))
	}
	fmt.Fprint(w, "exponent\t\n")
	for _, c := range cs {
		fmt.Fprintf(w, "%s\t", c.name)
		for _, size := range sizes {
			value := "-"
			if i := slices.IndexFunc(c.points, func(p point) bool { return p.size == size }); i >= 0 {
				value = c.unit.show(c.points[i].value)
			}
			fmt.Fprintf(w, "%s\t", value)
		}
		fmt.Fprintf(w, "%.2f\t\n", c.Exponent())
	}
	_ = w.Flush() // an error could not be reported either
}

func label(size float64) string {
	if size >= 1000 {
		return fmt.Sprintf("%gk", size/1000)
	}
	return fmt.Sprintf("%g", size)
}
