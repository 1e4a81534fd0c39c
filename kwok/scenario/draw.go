package scenario

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Submissions draws all Jobs, in the order of their creation. Each arrival draws from a
// source of its own, so a change of one leaves the others as they were.
func (s *Scenario) Submissions() []Submission {
	var out []Submission
	for i := range s.Arrivals {
		out = append(out, s.draw(i)...)
	}
	// Those of one time stay in the order of the file.
	slices.SortStableFunc(out, func(a, b Submission) int { return cmp.Compare(a.At, b.At) })
	return out
}

// draw the Jobs of the i-th arrival, in the order of their creation.
func (s *Scenario) draw(i int) (out []Submission) {
	a := &s.Arrivals[i]
	random := rand.New(rand.NewPCG(s.Seed, uint64(i)))
	at := a.When.From.Duration
	for n := range int(a.Count) {
		shape := a.shape(random)
		out = append(out, Submission{
			Namespace: s.namespace(a, n), Name: a.job(n), Queue: a.Queue,
			At: at, RunFor: shape.RunFor.draw(random), Shape: shape,
		})
		at = a.When.next(at, random)
	}
	return out
}

// Examples returns a Job of each shape, with the field of the shape.
func (s *Scenario) Examples() iter.Seq2[*field.Path, Submission] {
	return func(yield func(*field.Path, Submission) bool) {
		for i := range s.Arrivals {
			a := &s.Arrivals[i]
			for k := range a.Shapes {
				shape := &a.Shapes[k]
				job := Submission{Namespace: s.namespace(a, 0), Name: a.job(0), Queue: a.Queue, RunFor: shape.RunFor.AtLeast.Duration,
					Shape: shape}
				if !yield(field.NewPath("arrivals").Index(i).Child("shapes").Index(k), job) {
					return
				}
			}
		}
	}
}

// job is the name of the n-th.
func (a *Arrival) job(n int) string { return fmt.Sprintf("%s-%d", a.Name, n) }

// namespace of an arrival's n-th Job.
func (s *Scenario) namespace(a *Arrival, n int) string {
	switch a.Namespace {
	case "":
		return metav1.NamespaceDefault
	case TeamWord:
		return s.Teams.Namespace(n % int(s.Teams.Count))
	}
	return a.Namespace
}

// Namespace of the n-th team.
func (t *Teams) Namespace(n int) string { return fmt.Sprintf("%s-%03d", t.Name, n) }

// shape draws one by its weight.
func (a *Arrival) shape(random *rand.Rand) *Shape {
	var all int32
	for i := range a.Shapes {
		all += max(a.Shapes[i].Weight, 1)
	}
	left := random.Int32N(all)
	for i := range a.Shapes {
		if left -= max(a.Shapes[i].Weight, 1); left < 0 {
			return &a.Shapes[i]
		}
	}
	panic("the weights of shapes do not add up")
}

func (r RunTime) draw(random *rand.Rand) time.Duration {
	d := r.AtLeast.Duration + share(random.Float64(), r.Jitter.Duration) + share(random.ExpFloat64(), r.Mean.Duration)
	if r.AtMost.Duration > 0 {
		d = min(d, r.AtMost.Duration)
	}
	return d.Round(time.Millisecond)
}

// next is when the Job after the one at that time comes.
func (w When) next(at time.Duration, random *rand.Rand) time.Duration {
	if w.PerHour == 0 {
		return at + w.Every.Duration
	}
	mean := time.Hour / time.Duration(w.PerHour)
	if w.BusiestAt == nil {
		return at + share(random.ExpFloat64(), mean)
	}
	// Twice as many as the mean are drawn, and thinned out by the time of day.
	for {
		at += share(random.ExpFloat64(), mean/2)
		day := (at - w.BusiestAt.Duration).Hours() / 24
		if random.Float64() < (1+math.Cos(2*math.Pi*day))/2 {
			return at
		}
	}
}

func share(of float64, d time.Duration) time.Duration { return time.Duration(of * float64(d)) }
