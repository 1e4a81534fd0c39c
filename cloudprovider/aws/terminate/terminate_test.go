package terminate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSift(t *testing.T) {
	for name, c := range map[string]struct {
		bad   []int
		calls int
	}{
		"all good": {nil, 1},
		"one bad":  {[]int{17}, 13},
		"two bad":  {[]int{0, 63}, 23},
	} {
		t.Run(name, func(t *testing.T) {
			var ids, want []string
			for i := range 64 {
				ids = append(ids, fmt.Sprint(i))
				if !slices.Contains(c.bad, i) {
					want = append(want, fmt.Sprint(i))
				}
			}
			var got []string
			calls := 0
			err := sift(ids, 500, func(batch []string) error {
				calls++
				for _, b := range c.bad {
					if slices.Contains(batch, fmt.Sprint(b)) {
						return errUnknown
					}
				}
				got = append(got, batch...)
				return nil
			})
			if err != nil || calls != c.calls {
				t.Errorf("got %v after %d calls, want %d", err, calls, c.calls)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}
