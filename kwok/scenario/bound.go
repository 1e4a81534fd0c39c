package scenario

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bound is how long all Jobs would take, from the creation of the first to the end of the
// last, if only their runs and the boot of the first machines took time. It counts all
// machines as one large machine: node boundaries and selectors make a run longer than its
// bound, never shorter than Area. So does a drought, which the bound ignores since machines
// that were launched before it stay.
type Bound struct {
	// Area is what the Jobs use in total, divided by what the machines have: no order of
	// Jobs is faster.
	Area metav1.Duration `json:"area"`
	// FIFO starts each Job, in the order of creation, as soon as it fits; a later Job
	// overtakes earlier ones that do not fit.
	FIFO metav1.Duration `json:"fifo"`
	// FirstWave is how many pods FIFO starts before the first Job ends. A run is longer
	// by the time that their creation and binding take.
	FirstWave int `json:"firstWavePods"`
	// FirstWaveIn is how long FIFO takes to start them: 0 if all are submitted at once.
	FirstWaveIn metav1.Duration `json:"firstWaveIn"`
	// Boot is the shortest boot delay if all machines have to be launched. It is part of
	// both bounds.
	Boot metav1.Duration `json:"boot"`
	// Binding is the scarcest resource, relative to the requests.
	Binding corev1.ResourceName `json:"bindingResource"`
	// Impossible is the number of Jobs that fit on no machines at once. They are left out.
	Impossible int `json:"impossibleJobs,omitempty"`
}

// Bound computes it for all machines that there are or may be bought.
func (s *Scenario) Bound() Bound {
	jobs := s.Submissions()
	work := newWork(jobs, s.capacity())
	work.leave(s.roomless())
	boot := s.boot()
	fifo, wave, waveIn := work.schedule()
	area, binding := work.area()
	return Bound{
		Area: duration(area + boot), FIFO: duration(fifo + boot),
		FirstWave: wave, FirstWaveIn: duration(waveIn), Boot: duration(boot), Binding: binding, Impossible: len(jobs) - len(work.possible),
	}
}

func duration(d time.Duration) metav1.Duration {
	return metav1.Duration{Duration: d.Round(time.Millisecond)}
}

// capacity of all machines together.
func (s *Scenario) capacity() corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, m := range s.machines() {
		add(all, m.offer, m.count)
	}
	return all
}

func add(to, each corev1.ResourceList, count int64) {
	for name, amount := range each {
		amount.Mul(count)
		amount.Add(to[name])
		to[name] = amount
	}
}

// boot is how long the quickest machine takes, if none is there from the beginning.
func (s *Scenario) boot() time.Duration {
	if len(s.Nodes) > 0 {
		return 0
	}
	least := s.Groups[0].Spec.Kwok.BootDelay.Duration
	for _, g := range s.Groups {
		least = min(least, g.Spec.Kwok.BootDelay.Duration)
	}
	return least
}

// work is what is to be done, with all amounts in the order of resources.
type work struct {
	jobs      []Submission
	resources []corev1.ResourceName
	capacity  []int64
	// requests are those of the whole Job. possible are the Jobs that the machines have room for at all.
	requests [][]int64
	possible []int
}

func newWork(jobs []Submission, capacity corev1.ResourceList) *work {
	w := &work{jobs: jobs, resources: slices.Sorted(maps.Keys(capacity))}
	for _, r := range w.resources {
		w.capacity = append(w.capacity, amount(capacity[r], r))
	}
	for i, j := range jobs {
		requests := make([]int64, len(w.resources))
		isOffered := true
		for _, p := range j.Shape.podSets() {
			for r, q := range p.requests {
				k, ok := slices.BinarySearch(w.resources, r)
				if isOffered = isOffered && ok; ok {
					requests[k] += amount(q, r) * int64(p.pods)
				}
			}
		}
		w.requests = append(w.requests, requests)
		if isOffered && w.fits(i, w.capacity) {
			w.possible = append(w.possible, i)
		}
	}
	return w
}

// leave out the Jobs of these shapes.
func (w *work) leave(shapes map[*Shape]bool) {
	w.possible = slices.DeleteFunc(w.possible, func(i int) bool { return shapes[w.jobs[i].Shape] })
}

// roomless are the shapes whose pods do not run at once, by what each machine has.
func (s *Scenario) roomless() map[*Shape]bool {
	out, all := map[*Shape]bool{}, s.machines()
	for i := range s.Arrivals {
		for k := range s.Arrivals[i].Shapes {
			shape := &s.Arrivals[i].Shapes[k]
			out[shape] = slices.ContainsFunc(shape.podSets(), func(p podSet) bool { return p.room(usable(all, p.nodeSelector)) < int64(p.pods) })
		}
	}
	return out
}

// amount in milli-CPU, or in whole units of all else.
func amount(q resource.Quantity, r corev1.ResourceName) int64 {
	if r == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func (w *work) fits(job int, free []int64) bool {
	for k, amount := range w.requests[job] {
		if amount > free[k] {
			return false
		}
	}
	return true
}

// area is the time for which the scarcest resource is in full use.
func (w *work) area() (longest time.Duration, binding corev1.ResourceName) {
	for k, r := range w.resources {
		var used float64 // amounts × nanoseconds pass what 64 bits hold
		for _, i := range w.possible {
			used += float64(w.requests[i][k]) * float64(w.jobs[i].RunFor)
		}
		if t := time.Duration(used / float64(w.capacity[k])); t > longest {
			longest, binding = t, r
		}
	}
	return longest, binding
}

// schedule starts each Job, in the order of creation, as soon as it is there and there is room. It returns how long all take, how many
// pods start before the first ends, and the time between the first and the last of these starts.
func (w *work) schedule() (makespan time.Duration, firstWave int, firstWaveIn time.Duration) {
	arrivals := slices.Clone(w.possible)
	slices.SortStableFunc(arrivals, func(a, b int) int { return cmp.Compare(w.jobs[a].At, w.jobs[b].At) })
	free := slices.Clone(w.capacity)
	var waiting []int
	var running ends
	var now time.Duration
	ended := false
	for len(arrivals)+len(waiting)+len(running) > 0 {
		for len(arrivals) > 0 && w.jobs[arrivals[0]].At <= now {
			waiting, arrivals = append(waiting, arrivals[0]), arrivals[1:]
		}
		refused := map[*Shape]bool{}
		waiting = slices.DeleteFunc(waiting, func(job int) bool {
			shape := w.jobs[job].Shape
			if refused[shape] || !w.fits(job, free) {
				refused[shape] = true
				return false
			}
			for k, amount := range w.requests[job] {
				free[k] -= amount
			}
			if !ended {
				firstWave += shape.AllPods()
				firstWaveIn = now
			}
			heap.Push(&running, end{now + w.jobs[job].RunFor, job})
			return true
		})
		// On to the next end or arrival, whichever is first.
		switch {
		case len(running) > 0 && (len(arrivals) == 0 || running[0].at <= w.jobs[arrivals[0]].At):
			now = running[0].at
		case len(arrivals) > 0:
			now = w.jobs[arrivals[0]].At
		}
		for len(running) > 0 && running[0].at <= now {
			ended = true
			for k, amount := range w.requests[heap.Pop(&running).(end).job] {
				free[k] += amount
			}
			makespan = now
		}
	}
	if len(w.possible) > 0 {
		makespan -= w.jobs[0].At
		firstWaveIn -= w.jobs[w.possible[0]].At
	}
	return makespan, firstWave, firstWaveIn
}

// end of a Job that runs.
type end struct {
	at  time.Duration
	job int
}

// ends are a heap, the earliest first.
type ends []end

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].job, e[j].job)) < 0
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)   { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
