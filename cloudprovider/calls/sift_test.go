package calls

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSift(t *testing.T) {
	bad := errors.New("one of them is bad")
	halves := func(batch []string, _ error) [][]string { return Halves(batch) }
	for name, tc := range map[string]struct {
		names, bad []string
		parts      func([]string, error) [][]string
		calls      int
		got        []string
	}{
		"none":         {parts: halves, calls: 0},
		"all are good": {names: []string{"a", "b", "c", "d", "e"}, parts: halves, calls: 2, got: []string{"a", "b", "c", "d", "e"}},
		"one is bad":   {names: []string{"a", "b", "c", "d"}, bad: []string{"c"}, parts: halves, calls: 5, got: []string{"a", "b", "d"}},
		"one alone":    {names: []string{"a"}, bad: []string{"a"}, parts: halves, calls: 1},
		"not about one of them": {names: []string{"a", "b", "c", "d", "e"}, bad: []string{"a"},
			parts: func([]string, error) [][]string { return nil }, calls: 2, got: []string{"e"}},
		"the error names it": {names: []string{"a", "b", "c", "d"}, bad: []string{"b"},
			parts: func([]string, error) [][]string { return [][]string{{"a", "c", "d"}, {"b"}} }, calls: 3, got: []string{"a", "c", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			calls := 0
			err := Sift(tc.names, 4, func(batch []string) error {
				calls++
				for _, name := range batch {
					if slices.Contains(tc.bad, name) {
						return fmt.Errorf("%v: %w", batch, bad)
					}
				}
				got = append(got, batch...)
				return nil
			}, tc.parts)
			if calls != tc.calls || errors.Is(err, bad) != (len(tc.bad) > 0) {
				t.Errorf("%d calls and %v, want %d", calls, err, tc.calls)
			}
			if diff := cmp.Diff(tc.got, got); diff != "" {
				t.Errorf("through are (-want +got):\n%s", diff)
			}
		})
	}
}
