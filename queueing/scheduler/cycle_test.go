package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/queueing/lifecycle"
)

// TestVerdictsOfTreesComeInTurn, those of each in its order.
func TestVerdictsOfTreesComeInTurn(t *testing.T) {
	of := func(messages ...string) (out []lifecycle.Verdict) {
		for _, m := range messages {
			out = append(out, lifecycle.Verdict{Message: m})
		}
		return out
	}
	for name, tt := range map[string]struct {
		lists [][]lifecycle.Verdict
		want  []string
	}{
		"none":            {nil, nil},
		"one tree":        {[][]lifecycle.Verdict{of("a1", "a2")}, []string{"a1", "a2"}},
		"trees of a kind": {[][]lifecycle.Verdict{of("a1", "a2"), of("b1", "b2")}, []string{"a1", "b1", "a2", "b2"}},
		"one has more":    {[][]lifecycle.Verdict{of("a1"), of(), of("c1", "c2", "c3"), of("d1", "d2")}, []string{"a1", "c1", "d1", "c2", "d2", "c3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range inTurn(tt.lists) {
				got = append(got, v.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
