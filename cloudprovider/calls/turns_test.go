package calls

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A launch does not wait for ever for another into its group, of which the cloud may not answer a call.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, began := &Turns{}, time.Now()
		release, err := turns.Take(t.Context(), "group")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := turns.Take(t.Context(), "other"); err != nil {
			t.Errorf("a launch into another group waits: %v", err)
		}
		if _, err := turns.Take(t.Context(), "group"); err == nil || time.Since(began) != timeout {
			t.Errorf("got %v after %s, want an error after %s", err, time.Since(began), timeout)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := turns.Take(ended, "group"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v after the end of the caller", err)
		}
		release()
		if _, err := turns.Take(t.Context(), "group"); err != nil {
			t.Error(err)
		}
	})
}
