package curve

import (
	"math"
	"strings"
	"testing"
)

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
			c := &Curve{}
			for _, size := range []int{1000, 10_000, 100_000, 1_000_000} {
				c.Add(size, tc.cost(float64(size)))
			}
			if got := c.Exponent(); !(math.Abs(got-tc.want) <= 0.03) {
				t.Errorf("exponent %.3f, want %.2f", got, tc.want)
			}
		})
	}
}

func TestTableHasALineForEachCurve(t *testing.T) {
	var cs Curves
	cs.Of("cycle", Nanoseconds).Add(1000, 2500)
	cs.Of("cycle", Nanoseconds).Add(10_000, 25e6)
	cs.Of("memory", Bytes).Add(500, 1e9)
	var out strings.Builder
	cs.Table(&out)
	for _, want := range []string{"curve 500 1k 10k exponent", "cycle - 2.50 µs 25.00 ms 4.00", "memory 1000.0 MB - - NaN"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
