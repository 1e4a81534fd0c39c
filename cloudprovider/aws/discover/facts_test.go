package discover

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Facts that are read seldom are read in turn, and again after an error.
func TestFactsAreReadInTurn(t *testing.T) {
	var s slowly[int]
	keys := []string{"a", "b", "c", "d", "e", "f", "f"}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	reads := map[string]int{}
	read := func(key string) (int, error) {
		reads[key]++
		if key == "c" && reads["c"] == 1 {
			return 0, errors.New("no answer")
		}
		return reads[key], nil
	}
	round := func(keys []string) error {
		now = now.Add(time.Minute)
		return s.read(now, keys, read)
	}
	if err := round(keys); err == nil || len(reads) != 3 {
		t.Errorf("got %v after reads of %v, want the error of the third", err, reads)
	}
	for range 3 {
		if err := round(keys); err != nil {
			t.Error(err)
		}
	}
	for _, key := range slices.Compact(keys) {
		if v, ok := s.of(key); !ok || v != reads[key] || reads[key] < 2 || reads[key] > 4 {
			t.Errorf("%s is %d and was read %d times, want two to four", key, v, reads[key])
		}
	}
	if err := round([]string{"a"}); err != nil {
		t.Error(err)
	}
	if _, ok := s.of("b"); ok {
		t.Error("a fact of a group that is gone is kept")
	}
}
