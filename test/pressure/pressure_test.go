package pressure

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// TestLost: what counts as lost is the part of their working time for which threads waited.
func TestLost(t *testing.T) {
	second := time.Second
	for _, tc := range []struct {
		name string
		// ran and waited by two threads of the process and one of its child within two seconds.
		ran, waited [3]time.Duration
		want        time.Duration
	}{
		{"a machine of its own", [3]time.Duration{second, 0, second}, [3]time.Duration{}, 0},
		{"half of a processor for each", [3]time.Duration{second, second, second}, [3]time.Duration{second, second, second}, second},
		{"only the child waits", [3]time.Duration{second, second, second}, [3]time.Duration{0, 0, second}, second / 2},
		{"nearly idle", [3]time.Duration{second / 1000, 0, 0}, [3]time.Duration{second / 100, 0, 0}, second / 100},
		{"stopped by a quota", [3]time.Duration{0, 0, 0}, [3]time.Duration{2 * second, 2 * second, 2 * second}, 2 * second * 9 / 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := fstest.MapFS{}
			m := newMeter(proc, 7)
			now := time.Unix(1_000_000, 0)
			for i := range 3 { // the same again after the first sample
				set := func(path string, thread int) {
					proc[path+"/schedstat"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d %d 3\n", i*int(tc.ran[thread]), i*int(tc.waited[thread]))}
				}
				set("7/task/7", 0)
				set("7/task/8", 1)
				set("9/task/9", 2)
				proc["7/task/8/children"] = &fstest.MapFile{Data: []byte("9 10 ")} // 10 has ended
				m.sample(now)
				if got, want := m.Lost(), time.Duration(i)*tc.want; (got - want).Abs() > time.Millisecond {
					t.Errorf("%s lost after %d intervals, want %s", got, i, want)
				}
				now = now.Add(2 * second)
			}
		})
	}
}

// TestThreadsThatComeAndGo: a thread is counted from its second sample on, and one that has another's ID is another thread.
func TestThreadsThatComeAndGo(t *testing.T) {
	proc := fstest.MapFS{}
	m := newMeter(proc, 7)
	now := time.Unix(1_000_000, 0)
	for _, stat := range []string{"5000000000 5000000000 1", "1000 1000 1", "", "9000000000 9000000000 1"} {
		delete(proc, "7/task/7/schedstat")
		if stat != "" {
			proc["7/task/7/schedstat"] = &fstest.MapFile{Data: []byte(stat)}
		}
		m.sample(now)
		now = now.Add(time.Second)
	}
	if got := m.Lost(); got != 0 {
		t.Errorf("%s lost, want nothing", got)
	}
}

// TestWithTimeout: a context lasts for as much longer as was lost, and its cause says so.
func TestWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(fstest.MapFS{}, 7)
		ctx, cancel := m.withTimeout(t.Context(), time.Minute)
		defer cancel()
		m.lost = 90 * time.Second
		<-time.After(149 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("it has ended: %v", context.Cause(ctx))
		}
		<-time.After(time.Second)
		synctest.Wait()
		want := "not within 1m0s (2m30s by the clock, 1m30s of it lost waiting for a processor)"
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("its cause is %v, want %s", err, want)
		}
	})
}

// TestShared: the Meter reads what this system reports.
func TestShared(t *testing.T) {
	m := New()
	m.sample(time.Now())
	if _, err := m.proc.Open("self/schedstat"); err != nil {
		t.Skipf("this system does not report how long threads wait: %v", err)
	}
	if len(m.threads) == 0 {
		t.Error("no thread of this process was read")
	}
}
