package poll

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRecent(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := NewRecent[string, int](time.Minute, clock)
	for _, step := range []struct {
		name string
		do   func()
		want map[string]int
	}{
		{"nothing", func() {}, map[string]int{}},
		{"noted", func() { r.Note("a", 1) }, map[string]int{"a": 1}},
		{"noted later", func() { clock.Step(40 * time.Second); r.Note("b", 2); r.Note("c", 3) }, map[string]int{"a": 1, "b": 2, "c": 3}},
		{"its last moment", func() { clock.Step(20 * time.Second) }, map[string]int{"a": 1, "b": 2, "c": 3}},
		{"over", func() { clock.Step(time.Second) }, map[string]int{"b": 2, "c": 3}},
		{"forgotten", func() { r.Forget("c", "d") }, map[string]int{"b": 2}},
		{"noted again", func() { r.Note("b", 4); clock.Step(time.Minute) }, map[string]int{"b": 4}},
	} {
		step.do()
		got := r.All()
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		for _, key := range []string{"a", "b", "c"} {
			value, ok := r.Of(key)
			if want, wanted := step.want[key]; value != want || ok != wanted {
				t.Errorf("%s: %s is %d, %t; want %d, %t", step.name, key, value, ok, want, wanted)
			}
		}
	}
}

// TestGrouped: each group has its own notes, and one without any is no longer kept.
func TestGrouped(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	g := NewGrouped[string, string, int](time.Minute, clock)
	want := func(what, group string, want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, g.All(group)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("before a note", "x", nil)
	g.Note("x", "a", 1)
	g.Note("x", "b", 2)
	g.Note("y", "a", 3)
	g.Forget("x", "a")
	g.Forget("z", "a")
	want("of one group", "x", map[string]int{"b": 2})
	want("of another", "y", map[string]int{"a": 3})
	clock.Step(2 * time.Minute)
	want("when it is over", "x", map[string]int{})
	g.Note("y", "b", 4)
	want("a group whose notes are over", "x", nil)
	want("one with a new note", "y", map[string]int{"b": 4})
	if len(g.groups) != 1 {
		t.Errorf("%d groups are kept, want 1", len(g.groups))
	}
}
