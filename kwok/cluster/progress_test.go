package cluster

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStartIsGivenUpWithoutProgress: each step of a start gives it the whole time again.
func TestAStartIsGivenUpWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{started: time.Now(), out: io.Discard}
		ctx, cancel := p.watch(t.Context(), time.Minute)
		defer cancel()
		for range 5 {
			<-time.After(59 * time.Second)
			p.step("something serves")
		}
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("a start that makes progress is given up: %v", context.Cause(ctx))
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if err := context.Cause(ctx); !errors.Is(err, errStalled) {
			t.Errorf("the start ends with %v, want %v", err, errStalled)
		}
	})
}
