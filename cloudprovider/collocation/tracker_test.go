package collocation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// cloud has collocations by scope, and does something about calls for those of some names.
type cloud struct {
	mu     sync.Mutex
	there  map[string]map[string]bool
	hangs  map[string]bool
	errors map[string]error
	calls  map[string]int
}

func (c *cloud) call(ctx context.Context, name string) error {
	c.mu.Lock()
	c.calls[name]++
	hangs, err := c.hangs[name], c.errors[name]
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (c *cloud) scope(name string) Scope[string] {
	return Scope[string]{
		Name: name,
		List: func(ctx context.Context) ([]string, error) {
			if err := c.call(ctx, name); err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Sorted(maps.Keys(c.there[name])), nil
		},
		Delete: func(ctx context.Context, id string) (bool, error) {
			if err := c.call(ctx, id); err != nil {
				return false, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			gone := !c.there[name][id]
			delete(c.there[name], id)
			return gone, nil
		},
	}
}

// left are the collocations of all scopes, in order.
func (c *cloud) left() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ids := range c.there {
		out = slices.AppendSeq(out, maps.Keys(ids))
	}
	slices.Sort(out)
	return out
}

func newCloud(scopes map[string][]string) *cloud {
	c := &cloud{there: map[string]map[string]bool{}, hangs: map[string]bool{}, errors: map[string]error{}, calls: map[string]int{}}
	for scope, ids := range scopes {
		c.there[scope] = map[string]bool{}
		for _, id := range ids {
			c.there[scope][id] = true
		}
	}
	return c
}

func newTracker(mayAct func() error) *Tracker[string] {
	return NewTracker[string](Config{Clock: clock.RealClock{}, MayAct: mayAct, LookAgain: time.Hour})
}

// A call that is not answered delays the deletion of nothing else, and the sweep ends before the next list of machines would time out.
func TestASweepGoesOnBesideWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tracker := newCloud(map[string][]string{"a": {"a1"}, "b": {"b1", "b2", "b3"}}), newTracker(nil)
		tracker.Sweep(t.Context(), c.scope("a"), c.scope("b"))
		<-time.After(SweepAfter)
		c.hangs["a1"], c.hangs["b1"] = true, true
		began := time.Now()
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			tracker.Sweep(t.Context(), c.scope("a"), c.scope("b"))
		}()
		synctest.Wait()
		if diff := cmp.Diff([]string{"a1", "b1"}, c.left()); diff != "" || !began.Equal(time.Now()) {
			t.Errorf("left while calls hang (-want +got):\n%s", diff)
		}
		<-swept
		if took := time.Since(began); took != timeout {
			t.Errorf("the sweep took %s, want %s", took, timeout)
		}
	})
}

// A scope whose list is not answered delays no other.
func TestASweepGoesOnBesideAListThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tracker := newCloud(map[string][]string{"a": {"a1"}, "b": {"b1"}}), newTracker(nil)
		tracker.Need("b", "b1")
		<-time.After(SweepAfter)
		c.hangs["a"] = true
		go tracker.Sweep(t.Context(), c.scope("a"), c.scope("b"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"a1"}, c.left()); diff != "" {
			t.Errorf("left while a list hangs (-want +got):\n%s", diff)
		}
		<-time.After(timeout)
	})
}

// Lists that come every few seconds do not each wait for what hangs.
func TestSweepsDoNotAllWait(t *testing.T) {
	for _, hangs := range []string{"a", "a1"} {
		synctest.Test(t, func(t *testing.T) {
			c, tracker := newCloud(map[string][]string{"a": {"a1"}}), newTracker(nil)
			tracker.Need("a", "a1")
			<-time.After(SweepAfter)
			c.hangs[hangs] = true
			began, waited := time.Now(), time.Duration(0)
			for time.Since(began) < 10*time.Minute {
				before := time.Now()
				tracker.Sweep(t.Context(), c.scope("a"))
				waited += time.Since(before)
				<-time.After(5 * time.Second)
			}
			if n := c.calls[hangs]; n < 7 || n > 10 || waited != time.Duration(n)*timeout {
				t.Errorf("while %s hung, %d calls were made in 10 minutes, and sweeps took %s", hangs, n, waited)
			}
		})
	}
}

func TestSweep(t *testing.T) {
	denied := &cloudprovider.Error{Class: v1alpha1.Auth, Code: "Denied"}
	kept := func(c *cloud, _ *Tracker[string]) { c.errors["x"] = errors.New("no answer") }
	for name, tc := range map[string]struct {
		// before the sweeps, of which there is one a minute.
		before func(*cloud, *Tracker[string])
		// each minute before its sweep.
		each   func(*Tracker[string])
		mayAct func() error
		left   []string
		calls  map[string]int
	}{
		"one of an earlier process goes":   {calls: map[string]int{"scope": 1, "x": 2}},
		"one that a machine is in stays":   {each: func(t *Tracker[string]) { t.Use("scope", "x") }, left: []string{"x"}, calls: map[string]int{"scope": 1}},
		"one that a launch needs stays":    {each: func(t *Tracker[string]) { t.Need("scope", "x") }, left: []string{"x"}, calls: map[string]int{"scope": 1}},
		"what is not Muster's is no one's": {each: func(t *Tracker[string]) { t.Use("scope", "theirs") }, calls: map[string]int{"scope": 1, "x": 2}},
		"one of another scope is its own":  {each: func(t *Tracker[string]) { t.Need("other", "x") }, calls: map[string]int{"scope": 1, "x": 2}},
		"another process acts":             {mayAct: func() error { return errors.New("another leads") }, left: []string{"x"}, calls: map[string]int{}},
		"what fails is tried again soon":   {before: kept, left: []string{"x"}, calls: map[string]int{"scope": 1, "x": 16}},
		"what is refused is tried again later": {before: func(c *cloud, _ *Tracker[string]) { c.errors["x"] = denied }, left: []string{"x"},
			calls: map[string]int{"scope": 1, "x": 4}},
		"a list that is denied is not repeated soon": {before: func(c *cloud, _ *Tracker[string]) { c.errors["scope"] = denied },
			left: []string{"x"}, calls: map[string]int{"scope": 1}},
		"a list that fails is repeated": {before: func(c *cloud, _ *Tracker[string]) { c.errors["scope"] = errors.New("no answer") },
			left: []string{"x"}, calls: map[string]int{"scope": 21}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, tracker := newCloud(map[string][]string{"scope": {"x"}}), newTracker(tc.mayAct)
				if tc.before != nil {
					tc.before(c, tracker)
				}
				for range 21 {
					if tc.each != nil {
						tc.each(tracker)
					}
					tracker.Sweep(t.Context(), c.scope("scope"))
					<-time.After(time.Minute)
				}
				if diff := cmp.Diff(tc.left, c.left()); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.calls, c.calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFared(t *testing.T) {
	tracker := newTracker(nil)
	refused := &cloudprovider.Error{Class: v1alpha1.Quota, Code: "Limit", Message: "too many"}
	for _, step := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{refused, refused.Error()},
		{errors.New("no answer"), refused.Error()},
		{&cloudprovider.Error{Class: v1alpha1.Throttle, Code: "Slow"}, refused.Error()},
		{nil, ""},
	} {
		if tracker.Fared(step.err); tracker.Refused() != step.want {
			t.Errorf("after %v: refused is %q, want %q", step.err, tracker.Refused(), step.want)
		}
	}
}

func TestMost(t *testing.T) {
	for _, tc := range []struct {
		count map[string]int
		want  string
	}{
		{nil, ""},
		{map[string]int{"a": 1, "b": 2}, "b"},
		{map[string]int{"b": 2, "a": 2, "c": 1}, "a"},
	} {
		if got := Most(tc.count); got != tc.want {
			t.Errorf("most of %v is %q, want %q", tc.count, got, tc.want)
		}
	}
}
