// Package growth measures what cycles, snapshots and plans cost as clusters and
// backlogs grow, with the pure core driven directly: beyond what an API server on
// this machine could hold.
package growth

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/test/bench/curve"
)

// sizes of backlogs, and of fleets except for the last size.
var sizes = []int{1000, 10_000, 100_000, 1_000_000}

// BenchmarkGrowth measures what backlogs of Workloads and fleets of nodes cost at
// growing sizes, and prints the curves with their exponents at the end. The largest
// backlogs take 5 GB, and minutes to fill: leave them out with
//
//	go test ./test/bench/growth -run none -bench 'Growth/.*/.*=10{3,5}$'
//
// Of the cycles, refuse is one in which quota came back and every Workload that could use
// it is considered in vain. admit is the two in which a Workload finishes, another takes
// its quota and one more is created. change is one in which a Workload is created and
// waits. rebuild is one after a flavor has changed, which discards all that is cached.
func BenchmarkGrowth(b *testing.B) {
	var measured curve.Curves
	for _, queues := range []int{1, 30, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			for _, pending := range sizes {
				b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) { growBacklog(b, &measured, queues, pending) })
			}
		})
	}
	b.Run("shapes=all", func(b *testing.B) {
		for _, pending := range sizes[:2] {
			b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
				l := newSeekers(pending, pending, planner.Plan, newFleet(2*groups, aThousandWays, 2).change)
				measure(b, measured.Of("cycle of as many shapes", curve.Nanoseconds), pending, "crowd", l.crowd)
			})
		}
	})
	b.Run("machines=none", func(b *testing.B) {
		for _, pending := range sizes {
			b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
				l := newWaitForMachines(pending)
				measure(b, measured.Of("cycle without machines", curve.Nanoseconds), pending, "seek", l.seek)
			})
		}
	})
	// Each of both at its largest with the other: 100,000 nodes and 1,000,000 Workloads.
	for _, pending := range sizes {
		nodes := pending / 10
		b.Run(fmt.Sprintf("nodes=%d/pending=%d", nodes, pending), func(b *testing.B) {
			var l *backlog
			memory := heap(func() { l = newWaitForFleet(newFleet(nodes, aThousandWays, int32(nodes/groups)), pending) })
			measure(b, measured.Of("cycle with a full fleet, a tenth as many nodes", curve.Nanoseconds), pending, "seek", l.seek)
			report(b, measured.Of("memory of both, per Workload", curve.Bytes), pending, memory/float64(pending), "B/workload")
		})
	}
	for _, alike := range []alike{aThousandWays, noTwo} {
		b.Run(fmt.Sprintf("alike=%t", alike != noTwo), func(b *testing.B) {
			for _, nodes := range sizes[:3] {
				b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { growFleet(b, &measured, nodes, alike) })
			}
		})
	}
	measured.Table(os.Stdout)
}

func growBacklog(b *testing.B, into *curve.Curves, queues, pending int) {
	var l *backlog
	memory := heap(func() { l = newBacklog(queues, pending) }) / float64(pending)
	at := func(what string) string { return fmt.Sprintf("%s, queues=%d", what, queues) }
	measure(b, into.Of(at("cycle that refuses"), curve.Nanoseconds), pending, "refuse", l.refuse)
	measure(b, into.Of(at("cycles that admit one"), curve.Nanoseconds), pending, "admit", l.admit)
	measure(b, into.Of(at("cycle after one came"), curve.Nanoseconds), pending, "change", l.change)
	measure(b, into.Of(at("cycle that rebuilds"), curve.Nanoseconds), pending, "rebuild", l.rebuild)
	report(b, into.Of(at("memory per Workload"), curve.Bytes), pending, memory, "B/workload")
}

func growFleet(b *testing.B, into *curve.Curves, nodes int, alike alike) {
	var f *fleet
	memory := heap(func() { f = newFleet(nodes, alike, mayGrow) }) / float64(nodes)
	at := func(what string) string {
		if alike == noTwo {
			return what + ", no two nodes alike"
		}
		return what
	}
	measure(b, into.Of(at("snapshot after a node changed"), curve.Nanoseconds), nodes, "snapshot", func() { f.change() })
	s := f.change()
	measure(b, into.Of(at("plan of a gang of 64"), curve.Nanoseconds), nodes, "plan", func() {
		if v := plan(s); v.Outcome != planner.Launch {
			b.Fatalf("the plan is %s: %s", v.Outcome, v.Message())
		}
	})
	report(b, into.Of(at("memory per node with its pod"), curve.Bytes), nodes, memory, "B/node")
}

// measure puts the time that one go takes on the curve.
func measure(b *testing.B, c *curve.Curve, size int, name string, do func()) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			do()
		}
		c.Add(size, float64(b.Elapsed().Nanoseconds())/float64(b.N))
	})
}

// report puts a value on the curve that was found out already.
func report(b *testing.B, c *curve.Curve, size int, value float64, unit string) {
	c.Add(size, value)
	b.Run("memory", func(b *testing.B) {
		for b.Loop() { // nothing to wait for
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(value, unit)
	})
}

// heap is by how many bytes what is made makes the heap grow.
func heap(make func()) float64 {
	in := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := in()
	make()
	return in() - before
}

// TestGrowth bounds the exponents of costs that are the same on every machine: allocations in number and bytes, plans and judged
// Workloads. A cycle for one Workload may cost as much as trees are deep, and a cycle for all pending Workloads as much as there are, but
// never the square. With the sizes here, a bound of 0.25 allows a factor of 1.7 from the smallest to the largest, where a linear cost
// would be 8; a bound of 1.15 allows 11, where a square would be 64.
func TestGrowth(t *testing.T) {
	const (
		flat   = 0.25
		linear = 1.15
	)
	small := []int{500, 1000, 2000, 4000}
	for name, tc := range map[string]struct {
		build func(size int) *backlog
		do    func(*backlog)
		// The most that allocations and bytes, plans and verdicts may grow.
		memory, planned, judged float64
	}{
		"a cycle that refuses":               {oneQueue, (*backlog).refuse, linear, flat, flat},
		"a cycle that refuses, in 30 queues": {thirtyQueues, (*backlog).refuse, linear, flat, flat},
		"a cycle that admits one":            {oneQueue, (*backlog).admit, linear, flat, flat},
		"a cycle after one came":             {oneQueue, (*backlog).change, flat, flat, flat},
		"a cycle that rebuilds":              {thirtyQueues, (*backlog).rebuild, linear, flat, flat},
		"a cycle without machines":           {newWaitForMachines, (*backlog).seek, linear, flat, flat},
		"a cycle of as many shapes":          {newCrowd, (*backlog).crowd, linear, flat, flat},
	} {
		t.Run(name, func(t *testing.T) {
			var count, amount, planned, judged curve.Curve
			for _, size := range small {
				b := tc.build(size)
				tc.do(b) // the first time, tables grow to their size
				b.planned, b.judged = 0, 0
				allocated := func() (float64, float64) {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					return float64(m.Mallocs), float64(m.TotalAlloc)
				}
				const times = 8
				n, total := allocated()
				for range times {
					tc.do(b)
				}
				nAfter, totalAfter := allocated()
				count.Add(size, (nAfter-n)/times)
				amount.Add(size, (totalAfter-total)/times)
				planned.Add(size, float64(b.planned)/times)
				judged.Add(size, float64(b.judged)/times)
			}
			for _, x := range []struct {
				what  string
				curve *curve.Curve
				most  float64
			}{
				{"allocations", &count, tc.memory}, {"bytes allocated", &amount, tc.memory},
				{"plans", &planned, tc.planned}, {"verdicts", &judged, tc.judged},
			} {
				if got := x.curve.Exponent(); got > x.most {
					t.Errorf("%s grow with the exponent %.2f, at most %.2f wanted: %v", x.what, got, x.most, x.curve)
				}
			}
		})
	}
}

func oneQueue(pending int) *backlog     { return newBacklog(1, pending) }
func thirtyQueues(pending int) *backlog { return newBacklog(30, pending) }
