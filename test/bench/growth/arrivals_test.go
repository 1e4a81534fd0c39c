package growth

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/bench/curve"
)

const (
	// perSecond is how many Workloads arrive, and how many end.
	perSecond = 1000
	// manyQueues are below cohorts of three levels; each has the quota for runningPerQueue.
	manyQueues      = 1000
	runningPerQueue = 100
)

// BenchmarkArrivals measures a second in which 1,000 Workloads arrive and 1,000 end, at random times: the CPU time of a decision, with the
// collection of its garbage, and how long an arrival or an end waits for the verdicts that follow. The wait is right only while nothing
// else runs. The largest backlog takes 6 GB, and minutes to fill: leave it out with
//
//	go test ./test/bench/growth -run none -bench 'Arrivals/pending=10{3,5}$'
func BenchmarkArrivals(b *testing.B) {
	var measured curve.Curves
	for _, pending := range sizes {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			var a *arrivals
			memory := heap(func() { a = newArrivals(pending) })
			a.second() // the first events find results of a tree that was not full yet
			var work time.Duration
			var waits []time.Duration
			decided := 0
			for b.Loop() {
				w, d, n := a.second()
				work, decided, waits = work+w, decided+n, append(waits, d...)
			}
			slices.Sort(waits)
			for _, m := range []struct {
				name  string
				value float64
				unit  string
				in    curve.Unit
			}{
				{"work for a decision", float64(work.Nanoseconds()) / float64(decided), "ns/decision", curve.Nanoseconds},
				{"longest wait for a verdict of 99 %", float64(waits[len(waits)*99/100].Nanoseconds()), "ns-p99", curve.Nanoseconds},
				{"memory", memory, "B", curve.Bytes},
			} {
				b.ReportMetric(m.value, m.unit)
				measured.Of(m.name, m.in).Add(pending, m.value)
			}
			b.ReportMetric(float64(decided)/work.Seconds(), "decisions/s")
		})
	}
	measured.Table(os.Stdout)
}

// arrivals is a backlog of many queues whose Workloads arrive and end all the time.
type arrivals struct {
	*backlog
	random *rand.Rand
}

func newArrivals(pending int) *arrivals {
	return &arrivals{newTree(manyQueues, runningPerQueue, pending), rand.New(rand.NewPCG(seed, seed))}
}

// second is one second of arrivals and ends. Its clock skips the time in which there is nothing to decide, and passes with the work, so
// cycles take together what came meanwhile. It returns the CPU time of the work, how long each arrival and each end waited for the end of
// the cycles that followed it, and the number of decisions.
func (a *arrivals) second() (work time.Duration, waits []time.Duration, decided int) {
	type event struct {
		at    time.Duration
		apply func()
	}
	var events []event
	for range perSecond {
		events = append(events,
			event{time.Duration(a.random.Int64N(int64(time.Second))), func() { a.state.Set(a.next()) }},
			event{time.Duration(a.random.Int64N(int64(time.Second))), a.end})
	}
	slices.SortFunc(events, func(x, y event) int { return cmp.Compare(x.at, y.at) })
	before := a.judged
	for now, i := time.Duration(0), 0; i < len(events); {
		now = max(now, events[i].at)
		first := i
		start, cpu := time.Now(), used()
		for ; i < len(events) && events[i].at <= now; i++ {
			events[i].apply()
		}
		for a.cycle() {
		}
		now, work = now+time.Since(start), work+used()-cpu
		for _, e := range events[first:i] {
			waits = append(waits, now-e.at)
		}
	}
	return work, waits, a.judged - before
}

// used is the CPU time of this process, which other processes do not change.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// end finishes a random running Workload.
func (a *arrivals) end() {
	i := a.random.IntN(len(a.running))
	over := *a.running[i]
	a.running[i] = a.running[len(a.running)-1]
	a.running = a.running[:len(a.running)-1]
	over.ResourceVersion = a.version()
	over.Status = *workload.Finished(&over, "Succeeded", "done", noon)
	a.state.Set(&over)
	a.state.Delete(&over)
}
