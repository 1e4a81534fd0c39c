package worth

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// measure is a figure of a day, in the unit that its name says.
type measure struct {
	name string
	of   func(result) float64
}

var (
	makespan    = measure{"makespan min", func(r result) float64 { return r.makespan.Minutes() }}
	wait        = measure{"wait s", func(r result) float64 { return r.wait.Seconds() }}
	waste       = measure{"waste machine-s", func(r result) float64 { return r.waste.Seconds() }}
	wastedUSD   = measure{"wasted USD", func(r result) float64 { return float64(r.wastedMicroUSD) / 1e6 }}
	paidUSD     = measure{"paid USD", func(r result) float64 { return float64(r.paidMicroUSD) / 1e6 }}
	refusals    = measure{"refused launches", func(r result) float64 { return float64(r.refused) }}
	allMeasures = []measure{makespan, wait, waste, wastedUSD, paidUSD, refusals}
	allArms     = []without{nothing, fallback, ledger, sharing, atomicity}
)

// Signs of a difference.
const (
	more = 1.0
	less = -1.0
)

// BenchmarkWorth plays ten days of 100 gangs with all, and without each, and prints the
// medians, with the least and the most of the ten, and how each day stands to the same
// day of Muster as it is. Time is virtual, so the figures are the same on every machine.
// Seen, as the median of the days and their range: without fallback gangs wait 1.8 times
// as long [1.4–2.4], and 0.82 as much is paid [0.59–1.01], since no gang takes a more
// expensive offering; without the ledger they wait 25 times as long [11–57], the day lasts 2.8 times
// as long [1.9–4.0], and 42 times as many launches are refused [21–163]; where each gang
// learns for itself, 2.3 times as many are [1.7–4.1]; without atomicity 1.13 times as
// much machine-time is wasted [0.88–1.24], and with the 60 gangs of the test 1.09 times
// [1.02–1.25].
func BenchmarkWorth(b *testing.B) {
	for b.Loop() {
		table(os.Stdout, play(b, 10, 100))
	}
}

// play has each seed's day with so many gangs for every arm, by seed.
func play(tb testing.TB, seeds, gangs int) map[without][]result {
	out := map[without][]result{}
	for _, off := range allArms {
		for seed := range uint64(seeds) {
			w := newWorld(seed, gangs, off)
			if err := w.run(); err != nil {
				tb.Fatalf("seed %d without %s: %v", seed, off, err)
			}
			out[off] = append(out[off], w.result())
		}
	}
	return out
}

// table prints a line for each arm: what its days came to, and how each stands to the
// same day with all. Days differ by more than most of what is switched off is worth, so
// their ranges overlap where nearly every day agrees.
func table(out io.Writer, days map[without][]result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "without")
	for _, m := range allMeasures {
		fmt.Fprintf(w, "\t%s", m.name)
	}
	fmt.Fprintln(w)
	for _, off := range allArms {
		fmt.Fprint(w, off)
		for _, m := range allMeasures {
			least, median, most := spread(figures(days[off], m))
			fmt.Fprintf(w, "\t%.0f [%.0f–%.0f]", median, least, most)
			if off != nothing {
				least, median, most = spread(ratios(days[off], days[nothing], m))
				fmt.Fprintf(w, " ×%.2f [%.2f–%.2f]", median, least, most)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // an error could not be reported either
}

func figures(days []result, m measure) (out []float64) {
	for _, r := range days {
		out = append(out, m.of(r))
	}
	return out
}

// ratios are how a figure of each day stands to that of the same day in the other list.
func ratios(days, to []result, m measure) (out []float64) {
	for seed, r := range days {
		out = append(out, m.of(r)/m.of(to[seed]))
	}
	return out
}

func spread(values []float64) (least, median, most float64) {
	slices.Sort(values)
	middle := len(values) / 2
	return values[0], (values[middle] + values[(len(values)-1)/2]) / 2, values[len(values)-1]
}

func TestADayIsComparedWithItself(t *testing.T) {
	short, long := result{makespan: 10 * time.Minute}, result{makespan: 20 * time.Minute}
	got := ratios([]result{short, short, long}, []result{long, short, short}, makespan)
	if want := []float64{0.5, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("the days are %v times as long as the same in the other order, want %v", got, want)
	}
}

// TestWorth holds the sign of what each is worth: in at least four of five days the
// figure without it is on the same side of that of Muster as it is, and so are the
// medians. Fallback, which is what the ledger leads to, buys time for money.
func TestWorth(t *testing.T) {
	if testing.Short() {
		t.Skip("25 days are long, and tell what each is worth on average")
	}
	const seeds, gangs = 5, 60
	days := play(t, seeds, gangs)
	for _, c := range []struct {
		off  without
		m    measure
		sign float64
	}{
		{fallback, wait, more}, {fallback, paidUSD, less},
		{ledger, wait, more}, {ledger, makespan, more}, {ledger, refusals, more}, {ledger, paidUSD, less},
		{sharing, refusals, more},
		{atomicity, waste, more},
	} {
		same := 0
		for seed := range seeds {
			if c.sign*c.m.of(days[c.off][seed]) > c.sign*c.m.of(days[nothing][seed]) {
				same++
			}
		}
		_, whole, _ := spread(figures(days[nothing], c.m))
		_, median, _ := spread(figures(days[c.off], c.m))
		if same < 4 || c.sign*median <= c.sign*whole {
			t.Errorf("without %s: %s has the sign that is wanted in %d of %d days, the median is %.0f instead of %.0f", c.off, c.m.name,
				same, seeds, median, whole)
		}
	}
	var out strings.Builder
	table(&out, days)
	t.Log("\n" + out.String())
}

// TestADayAddsUp: with each feature switched off, machines run pods for as long as the gangs take, no pool provides more than it has, all
// machines are terminated, and a seed repeats the same day.
func TestADayAddsUp(t *testing.T) {
	for _, off := range allArms {
		t.Run(off.String(), func(t *testing.T) {
			w := newWorld(7, 40, off)
			if err := w.run(); err != nil {
				t.Fatal(err)
			}
			var want time.Duration
			for _, g := range w.gangs {
				want += g.runs * time.Duration(g.request.Pods)
				if got := g.ended.Sub(g.started); got != g.runs {
					t.Errorf("%s ran for %s, want %s", g.request.Name, got, g.runs)
				}
			}
			if got := w.result().used; got != want {
				t.Errorf("machines were used for %s, want %s", got, want)
			}
			if len(w.machines) > 0 || w.nodes.Len() > 0 {
				t.Errorf("%d machines and %d nodes are left", len(w.machines), w.nodes.Len())
			}
			again := newWorld(7, 40, off)
			if err := again.run(); err != nil {
				t.Fatal(err)
			}
			if again.result() != w.result() {
				t.Errorf("the same day came to\n%+v and to\n%+v", w.result(), again.result())
			}
		})
	}
}
