package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// faults configures faults of calls, caches and the process. A scenario may script others.
type faults struct {
	// staleness bounds how long after a write an informer delivers it.
	staleness time.Duration
	// slow options, by prefix of their keys, happen as late as they may.
	slow []string
	// Faults in thousandths: of a call to fail, of a step to be a crash, of a step
	// to break a watch, of a step to have the clock of muster's machine jump.
	calls, crashes, watches, jumps int
}

// serve answers a call, or has it fail.
func (s *simulator) serve(c *call) {
	s.muster.mu.Lock()
	s.muster.calls = slices.DeleteFunc(s.muster.calls, func(o *call) bool { return o == c })
	s.muster.mu.Unlock()
	if c.kind.point() {
		if s.crashesAt(c, before) {
			return
		}
		if s.chance(5 * s.crashes) {
			s.muster.calls = append(s.muster.calls, c)
			s.crash()
			return
		}
		s.points = append(s.points, c.key)
		if s.tried[c.key]++; s.tried[c.key] > mostRepeats {
			s.failure = fmt.Errorf("muster tries the same again and again: %s", c.key)
		}
	}
	if c.kind != turn && s.chance(s.calls) {
		s.fail(c)
		return
	}
	o, err := s.takeEffect(c)
	if c.kind.point() && s.crashesAt(c, after) {
		return
	}
	c.finish(o, err)
}

// takeEffect carries a call out.
func (s *simulator) takeEffect(c *call) (client.Object, error) {
	o, err := c.effect()
	switch {
	case err == nil:
	case apierrors.IsConflict(err):
		s.feature("conflict")
	case apierrors.IsNotFound(err):
		s.feature("not found")
	}
	if err != nil {
		s.note("  %v", err)
	}
	return o, err
}

// fail has a call fail in one of the ways in which its kind can.
func (s *simulator) fail(c *call) {
	timeout := apierrors.NewTimeoutError("the simulated server did not answer in time", 1)
	way := s.random.IntN(5)
	switch {
	case c.kind == answer, c.kind == write && way == 0:
		s.note("  takes effect, but the answer is lost")
		s.feature("answer lost")
		_, _ = s.takeEffect(c) // its caller does not hear of the outcome
		c.finish(nil, timeout)
	case c.kind == write && way == 1:
		s.note("  times out, and takes effect later")
		s.feature("late effect")
		s.delay(c)
		c.finish(nil, timeout)
	case c.kind == write && way == 2 && s.touch(c.target):
		s.note("  somebody writes the object first")
		s.feature("object touched")
		c.finish(s.takeEffect(c))
	case way == 3:
		s.note("  is throttled")
		s.feature("throttled")
		c.finish(nil, apierrors.NewTooManyRequests("the simulated server is busy", 1))
	default:
		s.note("  times out without effect")
		s.feature("timeout")
		c.finish(nil, timeout)
	}
}

// delay has the call take effect later, after its caller is gone.
func (s *simulator) delay(c *call) {
	s.delayed++
	c.number = s.delayed
	s.late = append(s.late, c)
}

// touch changes an object as another client would.
func (s *simulator) touch(o client.Object) bool {
	if o == nil {
		return false
	}
	if _, err := s.store.get(o); err != nil {
		return false
	}
	change(s.store, o, func(o client.Object) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["example.com/touched"] = fmt.Sprint(s.store.revision)
		o.SetAnnotations(annotations)
	})
	return true
}

// crash kills muster. What it was calling is lost, or takes effect now or later.
func (s *simulator) crash() {
	p := s.muster
	s.note("muster crashes")
	s.feature("crash")
	calls := p.waiting()
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.key, b.key) })
	for _, c := range calls {
		if c.kind != write {
			continue
		}
		s.feature("crash in a call")
		switch s.random.IntN(3) {
		case 0:
			s.note("  takes effect: %s", c.key)
			_, _ = s.takeEffect(c) // the caller is gone
		case 1:
			s.note("  will take effect: %s", c.key)
			s.delay(c)
		default:
			s.note("  is lost: %s", c.key)
		}
	}
	s.awaitEnd(time.Duration(s.random.Int64N(int64([]time.Duration{downTime, downTime / 20}[s.random.IntN(2)]))))
}

// awaitEnd waits until the process has ended, and starts it again after down.
func (s *simulator) awaitEnd(down time.Duration) {
	p := s.muster
	s.muster = nil
	p.die()
	<-p.ended
	s.up = time.Now().Add(down)
	s.checker.StandStill(s.up.Add(recovery))
}

// farthest is by how much a clock jumps at most.
const farthest = 5 * time.Minute

// jump sets the clock of muster's machine forwards or back. Unlike a real one, it takes
// what muster measures with it: so an interval that is under way may end at once, or
// last longer by as much as the clock was set back, and no bound can be shorter.
func (s *simulator) jump() {
	by := time.Duration(s.random.Int64N(int64(2*farthest))) - farthest
	s.ahead.Add(int64(by))
	s.note("muster's clock jumps by %s", by)
	if by > 0 {
		s.feature("clock set forwards")
		return
	}
	s.feature("clock set back")
	if s.again.Before(time.Now()) {
		s.again = time.Now()
	}
	s.again = s.again.Add(-by)
	s.checker.StandStill(s.again.Add(recovery))
}

// crashPoint is where the sweep has muster crash: before or after a call.
type crashPoint struct {
	// index of the call among the possible crash points.
	index int
	side  side
	// down is how long it is until the next process starts.
	down time.Duration
	// key of the call at which it did crash; empty before.
	hit string
}

// side of a call.
type side string

const (
	// before: the call never comes.
	before side = "before"
	// after: it takes effect, and its outcome is lost.
	after side = "after"
)

// crashesAt has muster crash if it is the time and place to do so.
func (s *simulator) crashesAt(c *call, side side) bool {
	p := s.crashAt
	index := len(s.points)
	if side == after {
		index-- // the call is in the list by then
	}
	if p == nil || p.hit != "" || p.side != side || p.index != index {
		return false
	}
	p.hit = c.key
	s.note("muster crashes %s this call", side)
	s.muster.calls = append(s.muster.calls, c) // so that its caller ends, too
	s.awaitEnd(p.down)
	return true
}
